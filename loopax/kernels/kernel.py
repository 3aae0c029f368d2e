"""``Kernel``: a graph with its native code, and its form in JAX's operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise

from loopax.base.errors import UnsupportedOpError
from loopax.base.lock import TRACING
from loopax.base.uninterrupted import import_uninterrupted
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.lowering.rewritten import fact_of_rewritten

# Nodes of a program for each line that its code may have: that of its gradient is hardly ever longer then.
_NODES_A_LINE = 0.4

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
        Whether native code is faster, for arguments of these shapes, so many rows of a batch, and a way
        back through the program or not. A derivative asks it with the shapes of its own inputs, of which
        those of its kernel are the first.
    divided
        Whether so many rows take long enough for threads to share them; asked as ``worth`` is.
    most_lines
        Of the native source: what is longer takes too long to compile.
    longest
        How many lines the native source may have for small arrays to be in locals; None for the usual
        number.
    optimize
        One of `loopax.lowering.OPTIMIZERS`: for its passes, and those of each derivative.
    refused
        Told that a kernel runs as JAX's operations, by its name, and why.
    is_backward
        Whether it is that of a gradient or a pullback, or of a derivative of these, which read what the
        way forward has left.
    """

    checks: str = "checkify"
    worth: Callable[[Shapes, int, bool], bool] = lambda shapes, rows, is_backward: True
    divided: Callable[[Shapes, int], bool] = lambda shapes, rows: False
    most_lines: float = math.inf
    longest: int | None = None
    optimize: str = "none"
    refused: Callable[[str, str], None] = lambda name, why: None
    is_backward: bool = False

    @property
    def backward(self) -> Policy:
        return replace(self, is_backward=True)

    def chooses_native(self, shapes: Shapes, rows: int) -> bool:
        return self.worth(shapes, rows, self.is_backward)


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
    pushes
        The kernel, and the positions of its inputs, whose outputs and pushforward it computes at once.
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
        pushes: tuple[Kernel, tuple[int, ...]] | None = None,
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
        self.pushes = pushes
        self._shapes = shapes
        self._derivatives: dict[tuple[str, tuple[int, ...]], Any] = {}

    def __repr__(self) -> str:
        return self.name

    def shapes(self, inputs: Shapes) -> tuple[Shape, ...]:
        """The shapes of the outputs, for inputs of these shapes."""
        return tuple(map(tuple, self._shapes(inputs)))

    @property
    def dtypes(self) -> list[str]:
        """The dtypes of the outputs."""
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
            isinstance(node.op, CheckAndRaise) for node in self._nodes
        )

    @cached_property
    def _nodes(self) -> list[Apply]:
        return list(nodes_within(self.inputs, self.outputs))

    @property
    def no_code(self) -> str | None:
        """Why there is no native code; None where there is."""
        return self.code if isinstance(self.code, str) else None

    @cached_property
    def no_code_yet(self) -> str | None:
        """`no_code`, unless that takes the passes and it is all but sure that there is native code.

        The native code of a program takes as long to write as XLA takes to compile a small one, in vain
        where a derivative alone is run.
        """
        few = _NODES_A_LINE * self.policy.most_lines
        if "code" not in self.__dict__ and len(self._nodes) <= few:
            kernel_code = import_uninterrupted("loopax.kernels.ffi.kernel_code")  # and Numba
            with TRACING:
                if kernel_code.has_rules(self.inputs, self.outputs):
                    return None
        return self.no_code

    @cached_property
    def code(self) -> Any:
        """Its native code, or a sentence that says why there is none."""
        raises, optimize = self.policy.checks == "raise", self.policy.optimize
        with TRACING:
            # To write what is then refused takes a third of the time that XLA takes for it.
            parts = "lines", raises, optimize, self.canonical, self.policy.longest or 0
            length = fact_of_rewritten(self.inputs, self.outputs, *parts)
            lines = length.known()
            if lines is not None and lines > self.policy.most_lines:
                return _too_long(lines)
            kernel_code = import_uninterrupted("loopax.kernels.ffi.kernel_code")  # and Numba
            try:
                code = kernel_code.KernelCode(
                    self.inputs,
                    self.outputs,
                    raises,
                    optimize,
                    self.canonical,
                    self.policy.longest,
                )
            except UnsupportedOpError as error:
                return str(error)
            if code.lines > self.policy.most_lines:
                length.keep(code.lines)
                return _too_long(code.lines)
        return code

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


def _too_long(lines: int) -> str:
    return f"its native code has {lines} lines, and would take long to compile"
