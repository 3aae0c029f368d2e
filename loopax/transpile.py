"""`jaxify`: front end, passes and backend, joined. The only file that knows all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytensor.compile.executor import Function
from pytensor.graph.basic import clone
from pytensor.graph.fg import FunctionGraph

from loopax import frontend
from loopax.ir.errors import UnsupportedOpError
from loopax.ir.lock import TRACING
from loopax.ir.program import Program
from loopax.jax_backend import (
    JaxFunction,
    SharedContext,
    Stages,
    StatefulFunction,
    refusal,
    unsupported_ops,
)
from loopax.lowering import lower

_BACKENDS = ("jax",)


def jaxify(
    fn: Any,
    outputs: Any = None,
    *,
    updates: Any = None,
    givens: Any = None,
    backend: str = "jax",
    jit: bool = True,
    on_missing: str = "callback",
    name: str | None = None,
) -> Any:
    """Turn a PyTensor program into a pure JAX callable.

    Parameters
    ----------
    fn
        One of: a list of input variables (or ``In``), followed by ``outputs``; a plain Python
        function of PyTensor variables, traced on its first call for each structure, dtype and rank; a
        compiled ``pytensor.function``, read as its mode's rewrites left it; a ``FunctionGraph``.
    outputs
        With a list of inputs: one variable, or a list, tuple or dict of them, nested as you like. The
        callable returns arrays in the same structure.
    updates, givens
        As ``pytensor.function`` takes them, with a list of inputs.
    backend
        ``"jax"``.
    jit
        Whether a direct call is compiled. Inside a ``jax.jit`` of yours it makes no difference.
    on_missing
        ``"callback"`` runs an Op without a JAX conversion on the host through its ``perform``, with
        one warning; ``"raise"`` refuses it.
    name
        The ``__name__`` of the callable.

    Raises
    ------
    UnsupportedOpError
        The program has ops that cannot run in JAX; all of them are listed.
    MissingInputError
        The outputs need variables that are not inputs.
    TypeError
        ``fn`` is none of the above.

    Examples
    --------
    >>> import jax, pytensor.tensor as pt
    >>> from loopax import jaxify
    >>> x = pt.dvector("x")
    >>> f = jaxify([x], (x**2).sum())
    >>> f([1.0, 2.0]), jax.grad(f)(jax.numpy.array([1.0, 2.0]))
    (Array(5., dtype=float64), Array([2., 4.], dtype=float64))
    """
    if backend not in _BACKENDS:
        raise ValueError(f"backend must be one of {_BACKENDS}, got {backend!r}")

    build = Builder(jit=jit, on_missing=on_missing)
    is_graph = isinstance(fn, Function | FunctionGraph)
    if callable(fn) and not is_graph and outputs is updates is givens is None:
        return TracedFunction(fn, build, name)
    return build(read(fn, outputs, updates, givens, name))


def read(
    fn: Any, outputs: Any = None, updates: Any = None, givens: Any = None, name: str | None = None
) -> Program:
    """The `Program` of what `jaxify` takes, but for a Python function, which needs arguments."""
    if isinstance(fn, Function | FunctionGraph) or (callable(fn) and outputs is None):
        if outputs is not None or updates is not None or givens is not None:
            raise TypeError(
                "outputs, updates and givens go with a list of input variables: jaxify([x], y). "
                f"A {type(fn).__name__} has its own."
            )
        program = (
            frontend.read_function(fn) if isinstance(fn, Function) else frontend.read_graph(fn)
        )
        program.name = name or program.name
        return program
    if outputs is None and updates is None:
        raise TypeError(
            f"jaxify takes a list of inputs followed by outputs, a function, a compiled "
            f"pytensor.function or a FunctionGraph; got {fn!r} of type {type(fn).__name__} without outputs."
        )
    # A function of updates alone returns [], as PyTensor's does.
    outputs = [] if outputs is None else outputs
    return frontend.read_variables(fn, outputs, updates, givens, name)


@dataclass(frozen=True)
class Builder:
    """From a `Program` as the front end read it to a callable, with the options of `jaxify`."""

    jit: bool
    on_missing: str

    def __call__(self, program: Program) -> JaxFunction:
        with TRACING:
            try:
                frontend.import_graph(program.graph)
            except UnsupportedOpError as error:  # all that is unsupported, in one message
                lines = [*error.ops, *unsupported_ops(program.graph, self.on_missing)]
                raise refusal(lines) from None
            # For `explain`. It takes about a percent of the time that lowering takes.
            program.as_read = clone(program.graph.inputs, program.graph.outputs)
            lower(program.graph)
            return JaxFunction(program, jit=self.jit, on_missing=self.on_missing)


class TracedFunction(Stages):
    """A plain Python function of PyTensor variables, as a JAX callable.

    It is traced once for each signature (see `loopax.frontend.tracing`) and then behaves as the
    `JaxFunction` of that trace.
    """

    def __init__(self, fn: Callable[..., Any], build: Builder, name: str | None) -> None:
        self.__wrapped__ = fn  # inspect.signature follows it
        self.__name__ = self.__qualname__ = name or getattr(fn, "__name__", "program")
        self.__doc__ = getattr(fn, "__doc__", None)
        self._build = build
        self._traced: dict[frontend.Signature, JaxFunction] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_traced": {}}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function, leaves, _ = self.specialized(args, kwargs)
        return function(*leaves)

    def init_context(self, *args: Any, **kwargs: Any) -> SharedContext:
        """The values of the shared variables that a call with these arguments needs, as they are now."""
        return self.specialized(args, kwargs)[0].init_context()

    def apply(self, context: SharedContext, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The pure form of a call, as `JaxFunction.apply`."""
        function, leaves, _ = self.specialized(args, kwargs)
        return function.apply(context, *leaves)

    def stateful(self, *, live: bool = False) -> StatefulFunction:
        """A callable that keeps its own context, as `JaxFunction.stateful`.

        A shared variable's value is copied at the first call that needs it.
        """
        return StatefulFunction(self, SharedContext.of(), live)

    def specialized(self, args: Any, kwargs: Any) -> tuple[JaxFunction, Any, Any]:
        """The function for a call's arguments, and these as its arguments."""
        at, leaves = frontend.signature(args, kwargs)
        return self.specialize(at), leaves, {}

    def specialize(self, at: frontend.Signature) -> JaxFunction:
        """The callable for one signature, of the leaves of its arguments."""
        with TRACING:
            if at not in self._traced:
                program = frontend.trace(self.__wrapped__, at)
                program.name = self.__name__
                self._traced[at] = self._build(program)
            return self._traced[at]

    def __repr__(self) -> str:
        return f"<TracedFunction {self.__name__}>"
