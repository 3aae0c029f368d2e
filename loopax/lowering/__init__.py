"""IR -> IR: one pass per file, their order in `loopax.lowering.order`."""

from loopax.lowering.order import PASSES, lower

__all__ = ["PASSES", "lower"]
