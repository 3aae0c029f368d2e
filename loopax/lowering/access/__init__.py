"""Rows of an array that are read or written, along its leading axis, for passes."""

from loopax.lowering.access import piece_rules  # noqa: F401  (its rules register themselves)
