"""IR -> IR: one pass per file, their order in `loopax.lowering.order`."""

from loopax.lowering.in_pytensor import register_with_pytensor
from loopax.lowering.order import NATIVE_PASSES, PASSES, lower, lower_to_loops

__all__ = ["NATIVE_PASSES", "PASSES", "lower", "register_with_pytensor", "lower_to_loops"]
