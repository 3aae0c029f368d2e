"""Facts about each op: one record that every analysis, pass and cost estimate reads."""

from loopax.facts import axes, elementwise, indexing, products, shapes  # noqa: F401  (their records)
from loopax.facts.families import elementwise_op, op_along_axes, reduction_op
from loopax.facts.record import Errors, OpFacts, ScalarFacts, Structure, Work, facts_of, register
from loopax.facts.scalars import register_scalar, scalar_facts

__all__ = [
    "Errors",
    "OpFacts",
    "ScalarFacts",
    "Structure",
    "Work",
    "elementwise_op",
    "facts_of",
    "op_along_axes",
    "reduction_op",
    "register",
    "register_scalar",
    "scalar_facts",
]
