"""Decide whether a program runs as a native kernel on the CPU, or as JAX's operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.export import is_symbolic_dim
from jax.sharding import AxisType
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import DenseTensorType

from loopax.base.upstream.jax import default_platform
from loopax.ir import Loop, Scan
from loopax.ir.ops.inner_graph_op import InnerGraphOp, nodes_within
from loopax.ir.program import GraphParts
from loopax.jax_backend.callable.forms import register_native_form
from loopax.kernels import (
    derivative_rules,  # noqa: F401  (it registers its rules)
    measurement,
)
from loopax.kernels.cost import Cost, cost_of
from loopax.kernels.kernel import Kernel, NotPlain, Policy, Shape, Shapes
from loopax.kernels.native_call.function import with_native_loops
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.primitive import bind
from loopax.numerics.arrays import Array

# With "auto". A hidden Markov model with its gradient, 710 lines, is ready after 2.9 s, in PyTensor's JAX
# mode after 2.0; from then on native code takes a third of the time. A second process loads it from the
# disk in 1.2 s.
_MOST_LINES = 1000
# Nanoseconds saved by each call, with "auto" and no loop: less does not pay for a second of compilation.
_LEAST_SAVED = 5_000.0
# Nanoseconds of a batch that is measured, with "auto" and no loop, where XLA's compiler takes half a
# second. Of 49 models in batches of 8, 64 and 1,024, seven were in a form 1.1 to 2.5 times as slow as the
# other. Without a loop XLA may take 25 times the estimate.
_MEASURED_WITHOUT_LOOP = 1e5, 2e7

InJax = Callable[[Sequence[Any]], list[Any]]


@dataclass(eq=False)
class Candidate:
    """A program that may run as a kernel.

    Parameters
    ----------
    inputs, outputs
        The graph's, from before the passes.
    name
        The program's name.
    in_jax
        The program in JAX's operations, from a value for each input.
    transpiled
        Turns another graph of the same inputs, after the canonical passes, into a function like
        ``in_jax``.
    checks
        One of `CHECKS`.
    static
        The values of inputs, by position, that JAX must know.
    loops
        One of `LOOPS`.
    optimize
        One of `loopax.lowering.OPTIMIZERS`.
    is_direct
        Whether it is for direct calls. Other callers may need only a derivative: then it is not checked in
        advance that the program itself has native code.
    canonical
        The inputs and outputs of the graph after the canonical passes, if these have run.
    """

    inputs: Sequence[Variable]
    outputs: Sequence[Variable]
    name: str
    in_jax: InJax
    transpiled: Callable[[FunctionGraph], InJax]
    checks: str
    static: Mapping[int, Any]
    loops: str
    optimize: str = "none"
    is_direct: bool = True
    canonical: GraphParts | None = None

    def __post_init__(self) -> None:
        self._traced: dict[Shapes, tuple[list[Shape], Cost]] = {}
        self.remarks: dict[str, None] = {}  # the form chosen for each call so far, and why

    def run(self, args: Sequence[Array]) -> list[Any] | None:
        """Run the kernel; None where native code does not suit the program or its arguments."""
        if self._draws:
            return self._with_native_loops(args)
        arrays = [np.asarray(x) if isinstance(x, bool | int | float | complex) else x for x in args]
        if obstacle := self._obstacle or self._obstacle_of_platform or self._obstacle_in(arrays):
            self.remarks[f"JAX's operations: {obstacle}"] = None
            return None
        form = "a kernel" if self._is_close(shapes := _shapes(arrays), 1) else "native code"
        self._remark(f"{form} {self._cost_in_words(shapes)}")
        return bind(self._kernel, arrays)

    @cached_property
    def _draws(self) -> bool:
        """Whether the program takes or returns generators (JAX's keys), and otherwise only arrays."""
        types = [v.type for v in (*self.inputs, *self.outputs)]
        has_keys = any(isinstance(t, RandomType) for t in types)
        return has_keys and all(isinstance(t, RandomType | DenseTensorType) for t in types)

    def _with_native_loops(self, args: Sequence[Array]) -> list[Any] | None:
        """Call a program with keys in JAX's operations, whose loops are native.

        So draws are JAX's own, from the same random bits, in either form.
        """
        obstacle = self._obstacle_of_platform if self._has_loop else "there is no loop"
        if obstacle is None and not all(map(_is_plain, args)):
            obstacle = "an argument is no plain array, or part of a mesh"
        if obstacle is not None:
            self.remarks[f"JAX's operations: {obstacle}"] = None
            return None
        outputs: list[Any] = with_native_loops(self._in_jax, args, self._plan)
        return outputs

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self.loops, remarks=self.remarks)

    @cached_property
    def _obstacle(self) -> str | None:
        """The reason why the program cannot be native code for any arguments; None where it can."""
        if not all(isinstance(v.type, DenseTensorType) for v in (*self.inputs, *self.outputs)):
            return "an input or output is no array"
        if self.loops == "native":
            # Estimating the cost takes a trace, wasted if there is no native code: where costs do not
            # count, check that first.
            return self._no_code
        if any(isinstance(op, InnerGraphOp) and op.asks_for_all_steps_at_once for op in self._ops):
            return "a loop is to take all its steps at once"
        return None

    @property
    def _obstacle_of_platform(self) -> str | None:
        """The reason why the program is not native code on this platform; None where it may be.

        With ``loops="native"`` it is native wherever JAX compiles it for a CPU.
        """
        if self.loops == "native" or default_platform() == "cpu":
            return None
        return "there is an accelerator"

    def _obstacle_in(self, arrays: Sequence[Array]) -> str | None:
        """The reason why these arguments rule out native code; None where they do not."""
        if not all(map(_is_plain, arrays)):
            return "an argument is no plain array, or part of a mesh"
        if any(x.dtype != v.type.dtype for x, v in zip(arrays, self.inputs, strict=True)):
            return "JAX is in 32-bit mode"
        shapes = _shapes(arrays)
        if any(is_symbolic_dim(n) for shape in shapes for n in shape):
            return "a length is a symbol, which is exported"
        try:
            prefers_native = self._prefers_native(shapes, 1)
        except NotPlain:
            return "an output is no plain array"
        return self._no_code if prefers_native else self._cost_in_words(shapes)

    @property
    def _no_code(self) -> str | None:
        return self._kernel.no_code if self.is_direct else self._kernel.no_code_yet

    def _cost_in_words(self, shapes: Shapes) -> str:
        _, cost = self._trace(shapes)
        return f"for shapes {', '.join(map(str, shapes))}, about {cost.in_words()}"

    @cached_property
    def _kernel(self) -> Kernel:
        return Kernel(
            self.inputs,
            self.outputs,
            self._in_jax,
            lambda shapes: self._trace(shapes)[0],
            self.name,
            Policy(
                checks=self.checks,
                prefers_native=self._prefers_native,
                is_close=self._is_close,
                uses_threads=self._uses_threads,
                most_lines=math.inf if self.loops == "native" else _MOST_LINES,
                optimize=self.optimize,
                remark=self._remark,
            ),
            transpiled=lambda graph: self._at_static(self.transpiled(graph)),
            canonical_form=self.canonical,
        )

    def _remark(self, sentence: str) -> None:
        self.remarks[sentence] = None

    @cached_property
    def _in_jax(self) -> Callable[..., list[Any]]:
        return self._at_static(self.in_jax)

    def _at_static(self, in_jax: InJax) -> Callable[..., list[Any]]:
        return lambda *args: in_jax([self.static.get(k, x) for k, x in enumerate(args)])

    def _prefers_native(self, shapes: Shapes, rows: int, is_backward: bool = False) -> bool:
        """Whether native code is faster for inputs of these shapes, in a batch of ``rows`` rows."""
        _, cost = self._trace(shapes[: len(self.inputs)])
        least = 0 if self._has_loop else _LEAST_SAVED
        return self.loops == "native" or cost.saved(rows, is_backward) > least

    def _is_close(
        self, shapes: Shapes, rows: int, is_backward: bool = False, is_second: bool = False
    ) -> bool:
        """Whether a measurement decides which form runs.

        Without a loop, a measurement pays only for a batch that takes long. Nor does it decide whether such
        a program becomes a kernel: JAX's own derivatives of its operations may be faster than the
        derivatives of a kernel, run as JAX's operations.
        """
        if self.loops != "auto" or not measurement.is_possible():
            return False
        _, cost = self._trace(shapes[: len(self.inputs)])
        if not self._has_loop:
            shortest, longest = _MEASURED_WITHOUT_LOOP
            if rows == 1 or not shortest < cost.least(rows, is_backward) < longest:
                return False
        return cost.is_close(rows, is_backward, is_second)

    def _uses_threads(self, shapes: Shapes, rows: int) -> bool:
        _, cost = self._trace(shapes[: len(self.inputs)])
        return cost.is_divided(rows)

    @cached_property
    def _ops(self) -> list[Any]:
        return [node.op for node in nodes_within(self.inputs, self.outputs)]

    @cached_property
    def _has_loop(self) -> bool:
        return any(isinstance(op, Scan | Loop) for op in self._ops)

    def _trace(self, shapes: Shapes) -> tuple[list[Shape], Cost]:
        """The shapes of the outputs, and the cost of the program."""
        if shapes not in self._traced:
            args = [
                jax.ShapeDtypeStruct(s, v.type.dtype)
                for s, v in zip(shapes, self.inputs, strict=True)
            ]
            jaxpr, outs = jax.make_jaxpr(self._in_jax, return_shape=True)(*args)
            if not all(isinstance(x, jax.ShapeDtypeStruct) for x in outs):
                raise NotPlain
            self._traced[shapes] = [x.shape for x in outs], cost_of(jaxpr.jaxpr)
        return self._traced[shapes]


def _shapes(arrays: Sequence[Array]) -> Shapes:
    return tuple(x.shape for x in arrays)


def _is_plain(x: object) -> bool:
    """Whether ``x`` is an array outside of any mesh whose shardings JAX must see.

    Inside ``shard_map`` an array is the part of one device.
    """
    if not isinstance(x, np.ndarray | np.generic | jax.Array):
        return False
    mesh = jax.typeof(x).sharding.mesh
    return mesh.empty or {*mesh.axis_types} == {AxisType.Manual}


register_native_form(Candidate)
