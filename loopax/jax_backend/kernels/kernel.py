"""``Kernel``: a graph with its native code, its form in JAX's operations, and its derivatives.

The derivatives are kernels again, to any order: of the native code by the IR's pullback and pushforward, of
JAX's form by JAX's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import jax
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise

from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.errors import UnsupportedOpError
from loopax.ir.inner_graph_op import nodes_within
from loopax.ir.lock import TRACING
from loopax.ir.places import function_at
from loopax.jax_backend.kernels.derivatives import (
    pulled_back,
    pushed_forward,
    with_gradient,
)
from loopax.jax_backend.staging.frame import CHECKS
from loopax.lowering.rewritten import fact_of_rewritten

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
InJax = Callable[..., list[Any]]
T = TypeVar("T")


class NotPlain(Exception):
    """An output is no array: a trace as long as its loop has taken steps, say."""


@dataclass(frozen=True, eq=False)
class Policy:
    """When a kernel, and each of its derivatives, is native code.

    Parameters
    ----------
    checks
        One of `CHECKS`. With ``"raise"`` a check raises in native code, otherwise it is left out there;
        with ``"checkify"``, checkify sees it in the form in JAX's operations.
    worth
        Whether native code is faster, for arguments of these shapes, so many rows of a batch, and a
        derivative or the program itself. A derivative asks it with the shapes of its own inputs, of which
        those of its kernel are the first.
    divided
        Whether so many rows take long enough for threads to share them; asked as ``worth`` is.
    most_lines
        Of the native source: what is longer takes too long to compile.
    optimize
        One of `loopax.lowering.OPTIMIZERS`: for its passes, and those of each derivative.
    is_derivative
        Whether it is that of a derivative.
    """

    checks: str = CHECKS[0]
    worth: Callable[[Shapes, int, bool], bool] = lambda shapes, rows, is_derivative: True
    divided: Callable[[Shapes, int], bool] = lambda shapes, rows: False
    most_lines: float = math.inf
    optimize: str = "none"
    is_derivative: bool = False

    @property
    def of_derivatives(self) -> Policy:
        return replace(self, is_derivative=True)

    def chooses_native(self, shapes: Shapes, rows: int) -> bool:
        return self.worth(shapes, rows, self.is_derivative)


class Kernel:
    """A function of arrays, of one element of a batch.

    Parameters
    ----------
    inputs, outputs
        A graph in the IR, from before the passes.
    in_jax
        The same function in JAX's operations: of arrays, to a list of arrays.
    shapes
        Of the outputs, from those of the inputs.
    policy
        When it is native code.
    linear
        How many of the inputs, the last ones, the outputs are linear in.
    transpose
        The transpose in these inputs: a kernel of the others and of a cotangent for each output.
    transpiled
        Makes of another graph of the same inputs what ``in_jax`` is. Without it nothing is kept for a
        pullback: a derivative's own would seldom be asked for.
    canonical
        Whether the graph is a part of one that has been through `loopax.lowering.CANONICAL_PASSES`.
    """

    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        in_jax: InJax,
        shapes: Callable[[Shapes], Sequence[Shape]],
        name: str,
        policy: Policy,
        linear: int = 0,
        transpose: Callable[[], Kernel] | None = None,
        transpiled: Callable[[FunctionGraph], InJax] | None = None,
        canonical: bool = False,
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.in_jax = in_jax
        self.name = name
        self.policy = policy
        self.linear = linear
        self.transpose = transpose
        self.transpiled = transpiled
        self.canonical = canonical
        self._shapes = shapes
        self._derivatives: dict[tuple[str, tuple[int, ...]], Any] = {}

    def __repr__(self) -> str:
        return self.name

    def shapes(self, inputs: Shapes) -> tuple[Shape, ...]:
        """Of the outputs, for inputs of these shapes."""
        return tuple(map(tuple, self._shapes(inputs)))

    @property
    def dtypes(self) -> list[str]:
        """Of the outputs."""
        return [v.type.dtype for v in self.outputs]

    @cached_property
    def floats(self) -> list[int]:
        """The outputs that have derivatives."""
        return [k for k, v in enumerate(self.outputs) if is_float(v)]

    @property
    def is_scalar(self) -> bool:
        """Whether the one output with a derivative is a number, so that a gradient is all of it."""
        return len(self.floats) == 1 and self.outputs[self.floats[0]].type.ndim == 0

    @cached_property
    def is_differentiated_by_jax(self) -> bool:
        """Whether PyTensor means another derivative: of a complex number, its conjugate."""
        return any(v.type.dtype.startswith("complex") for v in (*self.inputs, *self.outputs))

    @cached_property
    def is_checkable(self) -> bool:
        """Whether there is something in it that checkify is to see."""
        return self.policy.checks == "checkify" and any(
            isinstance(node.op, CheckAndRaise) for node in nodes_within(self.inputs, self.outputs)
        )

    @property
    def no_code(self) -> str | None:
        """Why there is no native code; None where there is."""
        return self.code if isinstance(self.code, str) else None

    @cached_property
    def code(self) -> Any:
        """Its native code, or a sentence that says why there is none."""
        raises, optimize = self.policy.checks == "raise", self.policy.optimize
        with TRACING:
            # To write what is then refused takes a third of the time that XLA takes for it.
            parts = "lines", raises, optimize, self.canonical
            length = fact_of_rewritten(self.inputs, self.outputs, *parts)
            lines = length.known()
            if lines is not None and lines > self.policy.most_lines:
                return _too_long(lines)
            from loopax.numba_backend.ffi.kernel_code import KernelCode  # it imports Numba

            try:
                code = KernelCode(self.inputs, self.outputs, raises, optimize, self.canonical)
            except UnsupportedOpError as error:
                return str(error)
            if code.lines > self.policy.most_lines:
                length.keep(code.lines)
                return _too_long(code.lines)
        return code

    # -- derivatives -------------------------------------------------------------------------------

    def with_gradient(self, wrt: tuple[int, ...]) -> Kernel:
        """The outputs, and behind them the gradient of the scalar one with respect to ``wrt``."""
        return self.derivative("gradient", wrt, self._with_gradient)

    def pushforward(self, wrt: tuple[int, ...]) -> Kernel:
        """Of the inputs and tangents of those at ``wrt``: the tangents of the outputs that have some."""
        return self.derivative("pushforward", wrt, self._pushforward)

    def pullback(self, wrt: tuple[int, ...]) -> Kernel:
        """Of the inputs and cotangents of the outputs that have some: those of the inputs at ``wrt``."""
        return self.derivative("pullback", wrt, self._pullback)

    def derivative(
        self, kind: str, wrt: tuple[int, ...], make: Callable[[tuple[int, ...]], T]
    ) -> T:
        """What ``make`` makes of the positions ``wrt``: made once.

        Raises
        ------
        NotImplementedError
            It fails.
        """
        with TRACING:
            if (kind, wrt) not in self._derivatives:
                try:
                    self._derivatives[kind, wrt] = make(wrt)
                except Exception as error:
                    # PyTensor has none, or fails: of several values of an `IfElse`, of which one is an
                    # integer, and of QR (3.3.7).
                    raise NotImplementedError(str(error)) from error
            return self._derivatives[kind, wrt]

    def _with_gradient(self, wrt: tuple[int, ...]) -> Kernel:
        (scalar,) = self.floats
        graph = with_gradient(self.inputs, self.outputs, scalar, wrt)

        def in_jax(*args: Any) -> list[Any]:
            outputs = function_at(self.in_jax, args, wrt)

            def value(*moving: Any) -> Any:
                outs = outputs(*moving)
                return outs[scalar], outs

            pull = jax.grad(value, argnums=tuple(range(len(wrt))), has_aux=True)
            slopes, outs = pull(*(args[k] for k in wrt))
            return [*outs, *slopes]

        def shapes(inputs: Shapes) -> list[Shape]:
            return [*self.shapes(inputs), *(inputs[k] for k in wrt)]

        return Kernel(
            graph.inputs,
            graph.outputs,
            in_jax,
            shapes,
            f"{self.name}_with_gradient",
            self.policy.of_derivatives,
        )

    def _pushforward(self, wrt: tuple[int, ...]) -> Kernel:
        graph = pushed_forward(self.inputs, self.outputs, self.floats, wrt)
        n = len(self.inputs)

        def in_jax(*args: Any) -> list[Any]:
            floats = function_at(self._floats_in_jax, args[:n], wrt)
            return jax.jvp(floats, tuple(args[k] for k in wrt), tuple(args[n:]))[1]

        def shapes(inputs: Shapes) -> list[Shape]:
            outs = self.shapes(inputs[:n])
            return [outs[k] for k in self.floats]

        return Kernel(
            graph.inputs,
            graph.outputs,
            in_jax,
            shapes,
            f"{self.name}_pushforward",
            self.policy.of_derivatives,
            linear=len(wrt),
            transpose=lambda: self.pullback(wrt),
        )

    def _pullback(self, wrt: tuple[int, ...]) -> Kernel:
        graph = pulled_back(self.inputs, self.outputs, self.floats, wrt)
        return Kernel(
            graph.inputs,
            graph.outputs,
            lambda *args: self.pulled_back_in_jax(wrt, args),
            lambda inputs: [inputs[k] for k in wrt],
            f"{self.name}_pullback",
            self.policy.of_derivatives,
            linear=len(self.floats),
            transpose=lambda: self.pushforward(wrt),
        )

    def pulled_back_in_jax(self, wrt: tuple[int, ...], args: Sequence[Any]) -> list[Any]:
        """What the `pullback` gives, in JAX's operations."""
        n = len(self.inputs)
        floats = function_at(self._floats_in_jax, args[:n], wrt)
        return list(jax.vjp(floats, *(args[k] for k in wrt))[1](list(args[n:])))

    def _floats_in_jax(self, *args: Any) -> list[Any]:
        outs = self.in_jax(*args)
        return [outs[k] for k in self.floats]


def _too_long(lines: int) -> str:
    return f"its native code has {lines} lines, and would take long to compile"
