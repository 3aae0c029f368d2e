"""A graph for given values of its static inputs, as a function that JAX traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise

from loopax.base.errors import LoopTypeError
from loopax.base.gc_pause import gc_paused
from loopax.base.lock import TRACING
from loopax.base.status_line import waiting
from loopax.base.upstream.jax import default_platform
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.program import GraphParts, Program
from loopax.jax_backend.callable.forms import NativeForm, native_form
from loopax.jax_backend.callable.looking import Looking
from loopax.jax_backend.staging.batch_rows import batch_rows
from loopax.jax_backend.staging.context import Context
from loopax.jax_backend.staging.evaluate import run
from loopax.jax_backend.staging.symbolic import traced
from loopax.jax_backend.values.crossing import release
from loopax.jax_backend.values.x64 import as_declared
from loopax.lowering import PASSES, PASSES_FOR_LARGE_ROWS, after_canonical, passes_with, run_passes
from loopax.lowering.analysis.computed_rows import ComputedRows, computed_rows
from loopax.numerics import manual_axes
from loopax.numerics.no_number import is_no_number

NOTHING = -1  # no check has failed; checkify numbers its checks from 0
SUSPECT = -2  # a result is NaN, and an index may have been out of range


@dataclass(eq=False)
class Variant:
    """A graph of ``program`` for values of its static inputs, by position.

    ``as_read`` has the inputs and outputs of the graph from before the passes, for native code, or is None;
    ``loops`` is one of `LOOPS`, ``optimize`` one of `OPTIMIZERS`; ``jit`` says whether it is compiled,
    ``donated`` which inputs it may write its results to, ``is_direct`` whether it is for direct calls.
    ``looking`` raises errors for nonfinite values in a program with a flag that is not called directly.
    """

    program: Program
    graph: FunctionGraph
    static: Mapping[int, Any]
    context: Context
    loops: str
    optimize: str
    jit: bool
    as_read: GraphParts | None = None
    donated: frozenset[int] = frozenset()
    looking: Looking | None = None
    is_direct: bool = True

    def __post_init__(self) -> None:
        self.has_run = False  # whether a direct call has run it
        self._ran_natively = False  # native code raises its own errors

    @cached_property
    def compiled(self) -> Any:
        """The compiled function of the nonstatic inputs: results, updates, and a flag.

        The flag is the number of the failing check, from checkify, or `NOTHING`, or `SUSPECT`; None without
        such checks, and if no index may be out of range. In a program with a flag for nonfinite values it
        is any other number if that is set.
        """
        build, n_returned = self.program.build, self.program.n_returned

        def program(*traced: object) -> Any:
            outs, flag = self._flagged(traced) if self.looking is None else self._looked_at(traced)
            returned = build(outs[:n_returned])
            _refuse_dataclasses(returned)
            return returned, tuple(outs[n_returned:]), flag

        program.__name__ = program.__qualname__ = self.program.name
        if not self.jit:
            return program
        # Under the caller's own jit, JAX before 0.12 shows the program itself, not a call of it.
        places = [k for k in range(len(self.graph.inputs)) if k not in self.static]
        donated = tuple(j for j, k in enumerate(places) if k in self.donated)
        return jax.jit(program, inline=True, donate_argnums=donated)

    def run(self, args: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Make a direct call of `compiled`. The first one compiles it, and reports a long compilation."""
        if self.has_run:
            return self.compiled(*args)
        what = f"{self.program.name}, traced and compiled by XLA"
        with gc_paused(), waiting(what) if self.jit else nullcontext():
            results = self.compiled(*args)
        self.has_run = True
        return results

    @property
    def remarks(self) -> list[str]:
        """The engines that it has used on the CPU so far, with reasons, if there was a choice."""
        return [] if self._native is None else list(self._native.remarks)

    def _flagged(self, traced: Sequence[Any]) -> tuple[list[Any], Any]:
        """The outputs, and the flag of the checks."""
        context = self.context
        if self.program.has_flag:
            *outs, flag = self._outputs(traced)
            return outs, jnp.where(flag, 0, NOTHING).astype("int32")
        if context.checks != "flag":
            return self._outputs(traced), None
        if not self._asserts:
            outs = self._outputs(traced)
            if not context.flagged:  # a step that may never run adds checks as well
                return outs, self._suspicion(outs)
        error, outs = checkify.checkify(self._outputs)(traced)
        leaves, structure = jax.tree.flatten(error)
        suspicion = self._suspicion(outs)
        if not leaves:
            return outs, suspicion
        context.errors.append(structure)
        fails, number = leaves  # for checks without payload there is a single error
        otherwise = NOTHING if suspicion is None else suspicion
        return outs, jnp.where(fails, number, otherwise).astype("int32")

    def _suspicion(self, outs: Sequence[Any]) -> Any:
        """The flag `SUSPECT` if a result is not a number, else `NOTHING`; None if all indices are in range.

        Native code raises on its own; on an accelerator JAX's operations run, which do not.
        """
        if self._ran_natively:
            if jax.default_backend() == "cpu":
                return None
        elif not self.context.open_indices:
            return None
        flags = [
            jnp.any(is_none)
            for x in jax.tree.leaves(outs)
            if (is_none := is_no_number(x)) is not None
        ]
        return (
            jnp.where(jnp.any(jnp.stack(flags)), SUSPECT, NOTHING).astype("int32")
            if flags
            else None
        )

    def _looked_at(self, traced: Sequence[Any]) -> tuple[list[Any], None]:
        """The outputs, with an error if a value of the program, or a gradient, is not finite."""
        assert self.looking is not None
        places = [k for k in range(len(self.graph.inputs)) if k not in self.static]
        traced = [self.looking.at_gradient(x, k) for x, k in zip(traced, places, strict=True)]
        *outs, flag = self._outputs(traced)
        value_at = dict(zip(places, traced, strict=True))
        args = [value_at.get(k, self.static.get(k)) for k in range(len(self.graph.inputs))]
        return self.looking.at_values(outs, flag, args), None

    @cached_property
    def _asserts(self) -> bool:
        nodes = nodes_within(self.graph.inputs, self.graph.outputs)
        return any(isinstance(node.op, CheckAndRaise) for node in nodes)

    def _outputs(self, traced: Sequence[Any]) -> list[Any]:
        values = iter(traced)
        args = [
            self.static[k] if k in self.static else as_declared(next(values), v)
            for k, v in enumerate(self.graph.inputs)
        ]
        native = self._native
        if manual_axes.in_shard_map():
            # If all results vary over a mesh anyway, such as the log-density of a shard of the data, native
            # code may run, and a gradient has a single all-reduce: JAX casts, and sums cotangents, at each
            # place where a value meets one that varies.
            if manual_axes.all_vary(self._in_jax, args):
                args = manual_axes.vary_alike(args)
            else:
                native = None
        outs = None if native is None else native.run(args)
        self._ran_natively = outs is not None
        if outs is None:
            return self._in_jax(args)
        self.context.failures.update(self._in_native.failures)
        return outs

    @cached_property
    def _native(self) -> NativeForm | None:
        if self.as_read is None or self.loops == "xla" or not self.jit:
            return None
        if self.context.parallel is True:  # native code takes the steps one by one
            return None
        return native_form(
            *self.as_read,
            self.program.name,
            partial(self._in_jax, context=self._in_native),
            self._transpiled,
            self._in_native.checks,
            self.static,
            self.loops,
            self.optimize,
            self.is_direct,
            self._canonical,
        )

    @property
    def _canonical(self) -> GraphParts | None:
        """The form of ``as_read`` after the passes that all forms begin with, if it has been kept."""
        return self.program.canonical if self.as_read is self.program.as_read else None

    @cached_property
    def _in_native(self) -> Context:
        """The context for native code, whose checks raise instead of setting flags."""
        if self.context.checks != "flag":
            return self.context
        return replace(self.context, checks="raise", failures=set())

    def _in_jax(
        self,
        args: Sequence[Any],
        graph: FunctionGraph | None = None,
        context: Context | None = None,
    ) -> list[Any]:
        """Evaluate the program, or another ``graph`` of its inputs, in JAX's operations."""
        with TRACING:
            graph = graph or self._graph_for(args)
            outs = run(context or self.context, graph, args, range(len(args)))
        return [release(traced(x), v) for x, v in zip(outs, graph.outputs, strict=True)]

    def _graph_for(self, args: Sequence[Any]) -> FunctionGraph:
        """The graph for arguments of these shapes: on a CPU functions of large rows stay in loops."""
        is_sequential = self.context.parallel in (False, "auto")
        if not self._computed_rows or not is_sequential or default_platform() != "cpu":
            return self.graph
        inputs = dict(zip(self.graph.inputs, map(_shape_or_number, args), strict=True))
        copies = batch_rows()
        if not any(rows.are_large(inputs, copies) for rows in self._computed_rows):
            return self.graph
        remark = "functions of rows stay in their loops: the results for all steps would be large"
        self.context.remarks[remark] = None
        return self._with_large_rows

    @cached_property
    def _computed_rows(self) -> list[ComputedRows]:
        return [] if self.as_read is None else computed_rows(self.graph)

    @cached_property
    def _with_large_rows(self) -> FunctionGraph:
        assert self.as_read is not None
        graph = FunctionGraph(*self.as_read, clone=True)
        passes = passes_with(self.optimize, PASSES_FOR_LARGE_ROWS)
        run_passes(graph, passes, self._canonical)
        return graph

    def _transpiled(self, graph: FunctionGraph) -> Callable[[Sequence[Any]], list[Any]]:
        run_passes(graph, after_canonical(passes_with(self.optimize, PASSES)))
        return partial(self._in_jax, graph=graph, context=self._in_native)


def _shape_or_number(x: Any) -> Any:
    """The shape of an array, the value of an integer that is known; None for other values."""
    if isinstance(x, np.ndarray | np.generic | int) and np.ndim(x) == 0:
        return int(x) if np.issubdtype(np.result_type(x), np.integer) else None
    return x.shape if isinstance(x, np.ndarray | jax.Array) else None


def _refuse_dataclasses(returned: Any) -> None:
    """Raise if JAX does not know a dataclass in the results, whose fields it would not see."""
    for leaf in jax.tree.leaves(returned):
        if is_dataclass(leaf):
            name = type(leaf).__name__
            raise LoopTypeError(
                f"The function returns a {name}, a dataclass that JAX does not know as a pytree. Decorate "
                f"the class {name} with @jax.tree_util.register_dataclass."
            )
