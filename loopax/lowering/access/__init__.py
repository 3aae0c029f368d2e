"""Which rows of an array are read or written, along its leading axis: what passes ask."""

from loopax.lowering.access import piece_rules  # noqa: F401  (its rules register themselves)
