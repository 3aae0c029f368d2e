"""IR -> IR: one pass per file, their order in `loopax.lowering.order`."""

from loopax.lowering.in_pytensor import register_with_pytensor
from loopax.lowering.order import (
    CANONICAL_PASSES,
    NATIVE_PASSES,
    OPTIMIZERS,
    PASSES,
    PASSES_FOR_LARGE_ROWS,
    after_canonical,
    lower,
    lower_program,
    lower_to_loops,
    passes_with,
    run_passes,
)

__all__ = [
    "CANONICAL_PASSES",
    "NATIVE_PASSES",
    "OPTIMIZERS",
    "PASSES",
    "PASSES_FOR_LARGE_ROWS",
    "after_canonical",
    "lower",
    "lower_program",
    "lower_to_loops",
    "passes_with",
    "register_with_pytensor",
    "run_passes",
]
