"""PyTensor's modes ``LOOPAX`` and ``LOOPAX_NUMBA``: functions compiled by a backend of loopax.

    pytensor.function([x], y, mode="LOOPAX")          as jaxify([x], y, checks="raise")
    pytensor.function([x], y, mode="LOOPAX_NUMBA")    as jaxify([x], y, backend="numba")

A mode is a linker and a choice of rewrites. The linker makes one program of the whole graph, as `jaxify`
does, and the passes are ours. From PyTensor's rewrites the modes use the ones that any graph needs, and the
ones that a user adds by name, as PyMC does.

Inputs and outputs are PyTensor's: NumPy arrays, NumPy generators, SciPy matrices, lists. In JAX a
generator is a key only inside of the program. A shared one holds a NumPy ``Generator`` before and after a
call, so that it is seeded, swapped, copied and restored as in every other mode.

The linkers are not subclasses of PyTensor's for JAX and Numba: samplers look for these to compile a model
in a way of their own, and would silently bypass ours.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.compile.mode import Mode, predefined_modes, register_linker, register_mode
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import InputStorageType, OutputStorageType, StorageMapType
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.basic import Container, PerformLinker
from pytensor.link.utils import map_storage
from pytensor.tensor.random.type import RandomType

from loopax.base.upstream.pytensor import wrap_setting
from loopax.builders import Builder
from loopax.calling import Backend, backend_named
from loopax.frontend import read_linked

MODES = {"LOOPAX": "jax", "LOOPAX_NUMBA": "numba"}

# `canonicalize_db` is the database that holds rewrites which others ask for by name, and no rewrite in it.
_REWRITES = RewriteDatabaseQuery(include=["minimum_compile", "canonicalize_db"])


class BackendLinker(PerformLinker):
    """A linker that compiles a graph whole, by a backend of loopax.

    Parameters
    ----------
    backend
        The name of a backend, as for `loopax.jaxify`.
    allow_gc
        Whether a function releases its arguments and results after a call; None uses PyTensor's
        configuration.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> from pytensor.compile.mode import Mode
    >>> from loopax.pytensor_modes import BackendLinker
    >>> x = pt.dvector("x")
    >>> f = pytensor.function([x], x.sum(), mode=Mode(BackendLinker("numba"), "fast_compile"))
    >>> f([1.0, 2.0])
    array(3.)
    """

    required_rewrites = ("minimum_compile",)
    # Storage, fusion and C code are the backends' own.
    incompatible_rewrites = (
        "cxx_only",
        "inplace",
        "fusion",
        "BlasOpt",
        "scan_reduce_trace_prealloc",
    )

    def __init__(self, backend: str, allow_gc: bool | None = None) -> None:
        super().__init__(allow_gc=allow_gc)
        self.backend = backend

    def accept(
        self,
        fgraph: FunctionGraph,
        no_recycling: Sequence[Variable] | None = None,
        profile: object = None,
    ) -> BackendLinker:
        if self.fgraph is not None and self.fgraph is not fgraph:
            return type(self)(self.backend, self.allow_gc).accept(fgraph, no_recycling, profile)
        self.fgraph = fgraph
        return self

    def make_all(
        self,
        input_storage: InputStorageType | None = None,
        output_storage: OutputStorageType | None = None,
        storage_map: StorageMapType | None = None,
    ) -> Any:
        graph = self.fgraph
        assert graph is not None, "PyTensor calls accept first"
        input_storage, output_storage, storage_map = map_storage(
            graph, graph.toposort(), input_storage, output_storage, storage_map
        )
        run = LinkedProgram(self.backend, graph, input_storage, output_storage)
        run.allow_gc, run.storage_map = self.allow_gc, storage_map
        ins = zip(graph.inputs, input_storage, strict=True)
        outs = zip(graph.outputs, output_storage, strict=True)
        return (
            run,
            [Container(v, cell) for v, cell in ins],
            [Container(v, cell, readonly=True) for v, cell in outs],
            [run],
            [],
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.backend!r})"


class LinkedProgram:
    """The function that PyTensor calls, from the values in the cells of the inputs to all outputs.

    Parameters
    ----------
    backend
        The name of a backend.
    graph
        The function's graph. Its outputs are first the returned, then the stored values.
    inputs, outputs
        For each input and output of the graph a cell: a list whose only element is the value.
    """

    lazy = False
    allow_gc: Any
    storage_map: Any

    def __init__(
        self, backend: str, graph: FunctionGraph, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        self.graph, self.inputs, self.outputs = graph, inputs, outputs
        before = _generators_before(graph, inputs)
        self._results = [
            (cell, v.type, before.get(j))
            for j, (cell, v) in enumerate(zip(outputs, graph.outputs, strict=True))
        ]
        self._link(backend_named(backend))

    def _link(self, backend: Backend) -> None:
        self._backend, self._process = backend, os.getpid()
        program, self._given = read_linked(self.graph, self.inputs)
        options = backend.options(True, "callback", checks="raise")
        self.function = Builder(backend, options)(program)

    def __call__(self) -> None:
        if os.getpid() != self._process:
            self._link_after_fork()
        values = self.function(*[cell[0] for cell in self._given])
        context: Any = self._backend.context
        stored = context.crossing.stored
        for (cell, t, before), x in zip(self._results, values, strict=True):
            cell[0] = stored(x, t, before and before[0])

    @property
    def jit_fn(self) -> Any:
        """The native function in the form of PyTensor's Numba linker, of arguments and shared values."""
        return self.function.compiled

    def _link_after_fork(self) -> None:
        """Replace the backend in a forked process if it does not survive a fork."""
        other = self._backend.after_fork
        self._process = os.getpid()
        if other is None:
            return
        warnings.warn(
            f"{self.graph.name or 'A function'} was compiled by backend={self._backend.name!r} in the "
            "parent process, and a fork does not copy the threads that it needs. This process "
            f"compiles it by backend={other!r}. To keep the backend, start processes with "
            "multiprocessing.get_context('forkserver'), in PyMC with pm.sample(mp_ctx='forkserver').",
            stacklevel=4,
        )
        self._link(backend_named(other))


def _generators_before(graph: FunctionGraph, inputs: Sequence[Any]) -> dict[int, list[Any]]:
    """For each output that is a generator: a cell with a generator of the kind that PyTensor gets."""
    # PyTensor annotates variables, but stores positions.
    updated: Any = graph.update_mapping or {}
    cells = [c for v, c in zip(graph.inputs, inputs, strict=True) if isinstance(v.type, RandomType)]
    some = cells[0] if cells else [np.random.default_rng(0)]
    return {
        j: inputs[updated[j]] if j in updated else some
        for j, v in enumerate(graph.outputs)
        if isinstance(v.type, RandomType)
    }


def register_with_pytensor() -> None:
    """Register the modes and their linkers with PyTensor by name, once."""
    for name, backend in MODES.items():
        if name not in predefined_modes:
            linker = BackendLinker(backend)
            register_linker(name.lower(), linker)
            register_mode(name, Mode(linker, _REWRITES))
    # `register_mode` does not reach the configuration, which has its own list of PyTensor's modes.
    wrap_setting("mode", _ByName)


class _ByName:
    """The setting ``pytensor.config.mode``, extended by the names of our modes."""

    def __init__(self, before: Callable[[Any], Any]) -> None:
        self.before = before

    def __call__(self, mode: object) -> Any:
        return mode if isinstance(mode, str) and mode in MODES else self.before(mode)
