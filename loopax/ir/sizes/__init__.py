"""Symbolic dimensions: lengths and numbers of steps as affine expressions."""

from loopax.ir.sizes import scalars, tensors  # noqa: F401  (their rules register themselves)
from loopax.ir.sizes.analysis import Dims, Fact, loop_facts
from loopax.ir.sizes.bodies import body_dims
from loopax.ir.sizes.dim_expr import Clipped, DimExpr, Length, asked_length, counts_steps
from loopax.ir.sizes.feature import dims_of, unconditional_dims_of, without_dims
from loopax.ir.sizes.rules import length_inputs, length_rule, value_rule

__all__ = [
    "Clipped",
    "DimExpr",
    "Dims",
    "Fact",
    "Length",
    "asked_length",
    "body_dims",
    "counts_steps",
    "dims_of",
    "length_inputs",
    "length_rule",
    "loop_facts",
    "unconditional_dims_of",
    "value_rule",
    "without_dims",
]
