"""The derivatives of ops that PyTensor has wrong, or not at all."""

from loopax.ir.derivatives.rules import blockwise, cumulative_products, solves, writes
from loopax.ir.derivatives.rules.registry import pullback_of, pushforward_of

__all__ = [
    "blockwise",
    "cumulative_products",
    "pullback_of",
    "pushforward_of",
    "solves",
    "writes",
]
