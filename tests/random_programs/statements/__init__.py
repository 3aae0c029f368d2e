"""The kinds of statements, a file for each family; importing them registers them."""

from tests.random_programs.statements import (
    calls,
    elementwise,
    indices,
    integers,
    linear,
    loops,
    mixed,
    open_lengths,
    paths,
    reductions,
    shapes,
    special,
)

__all__ = [
    "calls",
    "elementwise",
    "indices",
    "integers",
    "linear",
    "loops",
    "mixed",
    "open_lengths",
    "paths",
    "reductions",
    "shapes",
    "special",
]
