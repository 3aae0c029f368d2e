"""Import of jaxprs: a table of rules, one file for each family of primitives."""

from loopax.frontend.from_jaxpr import (  # noqa: F401  (they register their rules)
    bits,
    calls,
    contractions,
    conversions,
    cumulative,
    elementwise,
    indexing,
    integers,
    linalg,
    loops,
    ordering,
    random,
    reductions,
    scattering,
    shapes,
    windows,
)
from loopax.frontend.from_jaxpr.reading import NotImportable, read_equations, tensor_type

__all__ = ["NotImportable", "read_equations", "tensor_type"]
