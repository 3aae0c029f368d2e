"""`explain`: what the passes do to a program, for whoever wants to see it."""

from __future__ import annotations

from typing import Any

from pytensor.compile.executor import Function
from pytensor.graph.fg import FunctionGraph

from loopax import frontend
from loopax.calling import ProgramFunction, StatefulFunction
from loopax.explanation import Explanation
from loopax.ir.lock import TRACING
from loopax.ir.program import Program
from loopax.jax_backend import Stages
from loopax.lowering import PASSES
from loopax.traced import TracedFunction
from loopax.transpile import read


def explain(fn: Any, /, *args: Any, **kwargs: Any) -> Explanation:
    """The program that ``fn`` is, before the first pass and after each that changed something.

    ``print`` the result, or write it as a page with the loops drawn: ``explain(f).to_html("f.html")``.
    A notebook shows that page.

    Parameters
    ----------
    fn
        What `loopax.jaxify` takes, or what it returned. The passes are those of its backend, JAX where
        there is none yet.
    args, kwargs
        With a list of inputs: ``outputs``, and ``updates``, ``givens`` and ``name``, as for `jaxify`.
        With a Python function, jaxified or not: the arguments of a call, of which only structure,
        dtype and rank matter. With anything else: nothing.

    Raises
    ------
    TypeError
        ``fn`` or the arguments are none of the above.
    UnsupportedOpError
        The program has loops that the IR cannot express; all of them are listed.
    MissingInputError
        The outputs need variables that are not inputs.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> from loopax import explain, fori_loop
    >>> x = pt.dscalar("x")
    >>> y = fori_loop(0, 3, lambda i, c: pt.sin(c), x)
    >>> found = explain([x], pytensor.grad(y, x))
    >>> found.counts_read.loops, found.counts_lowered.loops
    (3, 2)
    """
    with TRACING:
        if isinstance(fn, StatefulFunction):
            fn = fn.__wrapped__
        if isinstance(fn, ProgramFunction):
            _refuse(fn, args, kwargs)
            return Explanation.of(_as_read(fn), fn.program.name, fn.passes)
        program = _program(fn, args, kwargs)
        frontend.import_graph(program.graph)
        passes = fn.build.kind.passes if isinstance(fn, TracedFunction) else PASSES
        return Explanation.of(program.graph, program.name, passes)


def _program(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
    if isinstance(fn, Function | FunctionGraph):
        _refuse(fn, args, kwargs)
        return read(fn)
    if isinstance(fn, Stages) and not isinstance(fn, TracedFunction):
        raise TypeError(
            f"{fn!r} was made by a transformation of JAX and has no PyTensor program. Explain what it "
            "was made from, explain(f), or transform variables: explain([x], pytensor.grad(y, x))."
        )
    if not callable(fn):
        return read(fn, *args, **kwargs)
    at, _ = frontend.signature(args, kwargs)
    program = frontend.trace(fn.__wrapped__ if isinstance(fn, TracedFunction) else fn, at)
    program.name = getattr(fn, "__name__", program.name)
    return program


def _refuse(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if args or kwargs:
        raise TypeError(
            f"A {type(fn).__name__} has its own inputs and outputs, and what the passes do depends on no "
            "arguments: explain(f)."
        )


def _as_read(fn: ProgramFunction) -> FunctionGraph:
    """A copy of the program that ``fn`` was made from."""
    program = fn.program
    if program.as_read is None:
        raise TypeError(
            f"{fn!r} was unpickled, or not made by jaxify, and has its program as the passes left it "
            "only. Explain what it was made from: explain([x], y)."
        )
    return FunctionGraph(*program.as_read, clone=True)
