"""``Kernel``: a graph with its native code, and its form in JAX's operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any, TypeVar

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise

from loopax.base.errors import UnsupportedOpError
from loopax.base.lock import TRACING
from loopax.base.uninterrupted import import_uninterrupted
from loopax.facts import Errors
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.effects import errors
from loopax.ir.ops.inner_graph_op import InnerGraphOp, core_of, nodes_within
from loopax.ir.program import GraphParts
from loopax.lowering.rewritten import fact_of_rewritten

# Nodes of a program for each line that its code may have: a gradient's code is hardly ever longer.
_NODES_A_LINE = 0.4

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
Inputs = tuple[int, ...]  # positions of inputs
InJax = Callable[..., list[Any]]
T = TypeVar("T")


class NotPlain(Exception):
    """Raised where an output is not an array of known shape, for example the trace of a stopping loop."""


@dataclass(frozen=True, eq=False)
class Policy:
    """When a kernel, and each of its derivatives, is native code.

    Parameters
    ----------
    checks
        One of `CHECKS`. With ``"raise"`` a check raises in native code, otherwise it is left out there;
        with ``"checkify"``, checkify sees it in the form in JAX's operations.
    prefers_native
        Whether native code is faster, from the shapes of the arguments, the rows of a batch, and
        whether the program runs backward. A derivative passes the shapes of its own inputs, the
        kernel's first.
    is_close
        Whether the costs behind ``prefers_native`` are too close to be relied on, so that a
        measurement decides if one can be made; called as ``prefers_native`` is, and with ``is_second``.
    uses_threads
        Whether the rows take long enough for threads to share them; called as ``prefers_native`` is.
    most_lines
        The most lines of native source: longer programs take too long to compile.
    longest
        How many lines the native source may have for small arrays to be held in locals; None for the
        default.
    optimize
        One of `loopax.lowering.OPTIMIZERS`: for the passes of the kernel and of each derivative.
    remark
        Called with a sentence about the form of a kernel, and why.
    is_backward
        Whether the kernel is a gradient, a pullback, or a derivative of one: it reads residuals of
        the forward run.
    is_second
        Whether the kernel is a derivative of one that runs backward.
    """

    checks: str = "checkify"
    prefers_native: Callable[[Shapes, int, bool], bool] = lambda shapes, rows, is_backward: True
    is_close: Callable[[Shapes, int, bool, bool], bool] = lambda *args: False
    uses_threads: Callable[[Shapes, int], bool] = lambda shapes, rows: False
    most_lines: float = math.inf
    longest: int | None = None
    optimize: str = "none"
    remark: Callable[[str], None] = lambda sentence: None
    is_backward: bool = False
    is_second: bool = False

    @property
    def forward(self) -> Policy:
        """The policy of a derivative that runs in the same direction as the kernel."""
        return replace(self, is_second=self.is_backward)

    @property
    def backward(self) -> Policy:
        """The policy of a derivative that runs backward."""
        return replace(self, is_backward=True, is_second=self.is_backward)

    def chooses_native(self, shapes: Shapes, rows: int) -> bool:
        return self.prefers_native(shapes, rows, self.is_backward)

    def is_to_be_measured(self, shapes: Shapes, rows: int) -> bool:
        return self.is_close(shapes, rows, self.is_backward, self.is_second)


class Kernel:
    """A function of arrays, for one element of a batch.

    Parameters
    ----------
    inputs, outputs
        A graph in the IR, from before the passes.
    in_jax
        The same function in JAX's operations, from arrays to a list of arrays.
    shapes
        The shapes of the outputs as a function of the inputs' shapes.
    policy
        When the kernel is native code.
    linear
        The number of trailing inputs in which the outputs are linear.
    transpose
        The transpose in these inputs: a kernel of the other inputs and of a cotangent for each output.
    transpiled
        Turns another graph of the same inputs into a function like ``in_jax``. Without it no residuals are
        kept for a pullback: derivatives lack it, as their own derivatives are seldom needed.
    canonical
        Whether the graph is part of one that has been through `loopax.lowering.CANONICAL_PASSES`.
    canonical_form
        The inputs and outputs of the graph after these passes, if they have run on a copy of it.
    jvp_of
        The kernel and the input positions whose outputs and pushforward this one computes together.
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
        jvp_of: tuple[Kernel, Inputs] | None = None,
        canonical_form: GraphParts | None = None,
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
        self.jvp_of = jvp_of
        self.canonical_form = canonical_form
        self._shapes = shapes
        self.derivatives: dict[Any, Any] = {}  # by their function and the positions of the inputs
        self.n_lines = 0  # of the native code, once it is written or known

    def __repr__(self) -> str:
        return self.name

    def shapes(self, inputs: Shapes) -> tuple[Shape, ...]:
        """The shapes of the outputs, for inputs of these shapes."""
        return tuple(map(tuple, self._shapes(inputs)))

    @property
    def dtypes(self) -> list[str]:
        return [v.type.dtype for v in self.outputs]

    @cached_property
    def floats(self) -> list[int]:
        """The outputs that have derivatives."""
        return [k for k, v in enumerate(self.outputs) if is_float(v)]

    @property
    def is_scalar(self) -> bool:
        """Whether the one output with a derivative is a scalar, whose derivative is a gradient."""
        return len(self.floats) == 1 and self.outputs[self.floats[0]].type.ndim == 0

    @cached_property
    def is_differentiated_by_jax(self) -> bool:
        """Whether there are complex numbers, for whose derivatives PyTensor conjugates and JAX does not."""
        return any(v.type.dtype.startswith("complex") for v in (*self.inputs, *self.outputs))

    @cached_property
    def is_checkable(self) -> bool:
        """Whether the graph has checks that checkify must see."""
        return self.policy.checks == "checkify" and any(
            isinstance(node.op, CheckAndRaise) for node in self._nodes
        )

    @cached_property
    def checks_indices(self) -> bool:
        """Whether native code may raise an error for an index that is computed."""
        # The nodes in the body of a loop or a branch are nodes of their own here.
        return any(
            errors(node) & Errors.INDEX
            and not isinstance(core_of(node.op), InnerGraphOp)
            and not all(isinstance(v, Constant) for v in node.inputs[1:])
            for node in self._nodes
        )

    @cached_property
    def _nodes(self) -> list[Apply]:
        return list(nodes_within(self.inputs, self.outputs))

    @property
    def n_nodes(self) -> int:
        """The number of nodes of the graph and of all bodies in it."""
        return len(self._nodes)

    @property
    def no_code(self) -> str | None:
        """The reason why there is no native code; None where there is."""
        return self.code if isinstance(self.code, str) else None

    @cached_property
    def no_code_yet(self) -> str | None:
        """The reason `no_code`, but only if it is known without running the passes.

        To write the native code of a program takes as long as XLA takes to compile a small one, which is
        wasted if only a derivative is run.
        """
        few = _NODES_A_LINE * self.policy.most_lines
        if "code" not in self.__dict__ and self.n_nodes <= few:
            kernel_code = import_uninterrupted("loopax.kernels.ffi.kernel_code")  # imports Numba
            with TRACING:
                if kernel_code.has_rules(self.inputs, self.outputs):
                    return None
        return self.no_code

    @cached_property
    def code(self) -> Any:
        """The native code, or a sentence saying why there is none."""
        raises, optimize = self.policy.checks == "raise", self.policy.optimize
        with TRACING:
            # Writing a source only to refuse it takes a third of XLA's time to compile the program.
            key_parts = "lines", raises, optimize, self.canonical, self.policy.longest or 0
            length = fact_of_rewritten(self.inputs, self.outputs, *key_parts)
            lines = length.known()
            if lines is not None and lines[0] > self.policy.most_lines:
                self.n_lines = int(lines[0])
                return too_long(self.n_lines)
            kernel_code = import_uninterrupted("loopax.kernels.ffi.kernel_code")  # imports Numba
            try:
                code = kernel_code.KernelCode(
                    self.inputs,
                    self.outputs,
                    raises,
                    optimize,
                    self.canonical,
                    self.policy.longest,
                    self.canonical_form,
                )
            except UnsupportedOpError as error:
                return str(error)
            self.n_lines = code.lines
            if code.lines > self.policy.most_lines:
                length.keep(code.lines)
                return too_long(code.lines)
        return code


def once_for_each_input(build: Callable[[Kernel, Inputs], T]) -> Callable[[Kernel, Inputs], T]:
    """Cache ``build(kernel, wrt)`` per kernel and positions ``wrt`` of its inputs.

    Raises `NotImplementedError` if it fails.
    """

    @wraps(build)
    def derivative(kernel: Kernel, wrt: Inputs) -> T:
        # The lines on a node are the user's. Recording our own for each node of a derivative would cost 3
        # %.
        with TRACING, config.change_flags(traceback__limit=0):
            key = build, wrt
            if key not in kernel.derivatives:
                try:
                    kernel.derivatives[key] = build(kernel, wrt)
                except Exception as error:
                    # PyTensor has no derivative, or fails: an `IfElse` with an integer among its values, QR
                    # (3.3.7).
                    raise NotImplementedError(str(error)) from error
            return kernel.derivatives[key]

    return derivative


def too_long(lines: int | str) -> str:
    return f"its native code has {lines} lines, and would take long to compile"
