"""Symbolic dimensions: lengths and trip counts as affine expressions."""

from loopax.facts.accesses import Access, access_of, read_of
from loopax.ir.sizes import scalars, tensors  # noqa: F401  (their rules register themselves)
from loopax.ir.sizes.analysis import Dims, Fact, loop_facts
from loopax.ir.sizes.bodies import body_dims
from loopax.ir.sizes.dim_expr import Clipped, DimExpr, Length, asked_length, counts_steps
from loopax.ir.sizes.feature import dims_of, unconditional_dims_of, without_dims
from loopax.ir.sizes.intervals import hull, interval_of, interval_of_values, masks_of
from loopax.ir.sizes.rules import Interval, length_rule, value_rule
from loopax.ir.sizes.slices import Slice, Window, head, mirrored_row, position, slice_of, window_of

__all__ = [
    "Access",
    "Clipped",
    "DimExpr",
    "Dims",
    "Fact",
    "Interval",
    "Length",
    "Slice",
    "Window",
    "access_of",
    "asked_length",
    "body_dims",
    "counts_steps",
    "dims_of",
    "head",
    "hull",
    "interval_of",
    "interval_of_values",
    "length_rule",
    "loop_facts",
    "masks_of",
    "mirrored_row",
    "position",
    "read_of",
    "slice_of",
    "unconditional_dims_of",
    "value_rule",
    "window_of",
    "without_dims",
]
