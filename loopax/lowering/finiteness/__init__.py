"""Detection of nonfinite values in programs: ``jaxify(..., checks="nan")``."""

from loopax.lowering.finiteness.finiteness import Finiteness
from loopax.lowering.finiteness.flag import add_flag

__all__ = ["Finiteness", "add_flag"]
