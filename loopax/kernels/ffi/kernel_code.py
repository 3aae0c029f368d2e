"""Compile a graph to handlers for XLA: lower it once, compile it per set of small lengths and per batch."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.type import DenseTensorType

from loopax.base.errors import UnsupportedOpError, describe
from loopax.base.lock import TRACING
from loopax.base.upstream.numba import NumbaError
from loopax.ir.ops.inner_graph_op import InnerGraphOp, nodes_within
from loopax.ir.program import GraphParts
from loopax.jax_backend.staging.primitive_rules import Batch
from loopax.kernels.ffi.handler import handler
from loopax.kernels.ffi.row import ArrayType
from loopax.lowering import NATIVE_PASSES, after_canonical, passes_with, run_passes
from loopax.lowering.canonical.solve_for_inverses import solve_for_inverses
from loopax.lowering.redundancy.drop_checks import drop_checks
from loopax.numba_backend.cache.content import content_key
from loopax.numba_backend.callable.program import is_known, native_variants
from loopax.numba_backend.emit.leaf import has_own_rule
from loopax.numba_backend.emit.program_length import LINES

# A loop's body is looked at by itself; a check is left out, or written by PyTensor.
_ALWAYS_WRITTEN = InnerGraphOp, CheckAndRaise

# XLA keeps the address of a handler for as long as the process lives.
_HANDLERS: dict[str, Any] = {}


class KernelCode:
    """The native code of a graph of arrays.

    Parameters
    ----------
    inputs, outputs
        The inputs and outputs of a graph in the IR, from before the passes; it is left as it is.
    checks
        Whether its checks raise, or are left out.
    optimize
        One of `loopax.lowering.OPTIMIZERS`.
    canonical
        Whether the graph is part of one that has been through `loopax.lowering.CANONICAL_PASSES`.
    longest
        The most lines of a source with small arrays in locals; None for the default.
    canonical_form
        The inputs and outputs of a copy of the graph after these passes, if they have run.

    Raises
    ------
    UnsupportedOpError
        A value in the graph is not an array, or an op has no native code.
    """

    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        checks: bool = True,
        optimize: str = "none",
        canonical: bool = False,
        longest: int | None = None,
        canonical_form: GraphParts | None = None,
    ) -> None:
        if lines := [describe(v) for v in (*inputs, *outputs) if not is_array(v)]:
            raise UnsupportedOpError(
                "Native code inside JAX takes and returns arrays only:\n" + "\n".join(lines), lines
            )
        graph = FunctionGraph(list(inputs), list(outputs), clone=True)
        check_passes = () if checks else (drop_checks,)
        passes = passes_with(optimize, NATIVE_PASSES)
        passes = after_canonical(passes) if canonical else passes
        # The form has the checks: without them, the passes may find more.
        form = canonical_form if checks and not canonical else None
        run_passes(graph, (*check_passes, *passes, solve_for_inverses), form)
        self.graph = graph  # lowered: what the native code computes
        self._variants = native_variants(
            graph, on_missing="raise", inner=True, longest=longest or LINES
        )
        self._inputs = [_array_type(v) for v in graph.inputs]
        self._outputs = [_array_type(v) for v in graph.outputs]

    @property
    def lines(self) -> int:
        """The number of lines of the most recently written source."""
        return self._variants.source.count("\n") + 1

    def handler(
        self, shapes: Sequence[tuple[int, ...]], mapped: Batch, threads: bool = False
    ) -> tuple[str, int]:
        """The name and address of a handler for arguments of these shapes.

        Parameters
        ----------
        shapes
            The shapes of the arguments, without the axes of a batch.
        mapped, threads
            See `loopax.kernels.ffi.handler.handler`.

        Returns
        -------
        Equal names stand for equal code, in other processes too: JAX's own cache on disk keeps them.

        Raises
        ------
        UnsupportedOpError
            Numba cannot compile it.
        """
        with TRACING:
            lengths = tuple(shapes[k][axis] for k, axis in self._variants.axes)
            function = self._variants.find(lengths)
            key = content_key(function.py_func, self._inputs, self._outputs, mapped, threads)
            name = f"loopax_{key or uuid.uuid4().hex}"
            if name not in _HANDLERS:
                try:
                    _HANDLERS[name] = handler(
                        function, self._inputs, self._outputs, mapped, key, threads
                    )
                except NumbaError as error:
                    message = f"Numba cannot compile a program for JAX: {error}"
                    raise UnsupportedOpError(message, [message]) from error
            return name, _HANDLERS[name].address


def has_rules(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> bool:
    """Whether a graph has only arrays and ops with rules, so that it almost surely has native code.

    Certainty takes lowering the graph and writing its code.
    """
    return all(map(is_array, (*inputs, *outputs))) and all(
        all(is_known(v.type) for v in node.outputs)
        and (isinstance(node.op, _ALWAYS_WRITTEN) or has_own_rule(node))
        for node in nodes_within(inputs, outputs)
    )


def is_array(v: Variable) -> bool:
    return isinstance(v.type, DenseTensorType)


def _array_type(v: Variable) -> ArrayType:
    return ArrayType(v.type.dtype, v.type.ndim)
