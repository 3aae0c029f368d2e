"""Registration of conversions with PyTensor, just before their first use.

PyTensor's registry of Numba conversions is a module that imports Numba, so that registration at
``import loopax`` would cost every user that import. PyTensor's own linker imports it when it first
converts a graph; a rewrite that only runs in Numba's modes comes just before that.
"""

from __future__ import annotations

from importlib import import_module

from pytensor.compile.mode import optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.type import Type

NAME = "loopax_numba_conversions"


class ImportConversions(GraphRewriter):
    """Register the conversions before a graph is converted to Numba; the graph stays unchanged."""

    def apply(self, fgraph: FunctionGraph, *args: Type, **kwargs: object) -> None:
        import_module("loopax.numba_backend.pytensor_mode.conversions")


def register_with_pytensor() -> None:
    """Register the rewrite by which ``pytensor.function(..., mode="NUMBA")`` compiles ops of the IR."""
    if NAME not in optdb:
        optdb.register(NAME, ImportConversions(), "numba", position=0)
