"""Analyses for passes: which rows of an array are read or written along its leading axis."""

from loopax.lowering.access import piece_rules  # noqa: F401  (its rules register themselves)
