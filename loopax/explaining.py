"""The function `explain`: a report on the changes that the passes make to a program."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, overload

from pytensor.compile.executor import Function
from pytensor.graph.fg import FunctionGraph

from loopax import frontend
from loopax.base.lock import TRACING
from loopax.builders import builder_of
from loopax.calling import (
    DEFAULT,
    BackendFunction,
    ProgramFunction,
    StatefulFunction,
    TracedFunction,
    backend_named,
)
from loopax.calling.function import refuse_arguments
from loopax.chunks import InChunks
from loopax.explanation import Explanation, NativeLoops
from loopax.frontend.programs.pytree_inputs import PytreeInputs
from loopax.importer.import_graph import import_graph
from loopax.ir.program import Program
from loopax.kernels.native_call.function import NativeFunction
from loopax.lowering.early_part import early_part
from loopax.options import is_pymc_model
from loopax.transpile import jaxify


@overload
def explain(fn: NativeFunction, /, *args: object, **kwargs: object) -> NativeLoops: ...
@overload
def explain(fn: Any, /, *args: object, **kwargs: object) -> Explanation: ...
def explain(fn: Any, /, *args: object, **kwargs: object) -> Explanation | NativeLoops:
    """Show the program of ``fn`` before the first pass and after each pass that changed it.

    ``print`` the result, or write it as a page with the loops drawn: ``explain(f).to_html("f.html")``.
    A notebook shows that page. A program of more than 150 ops opens with a summary and folds the rest:
    ``explain(f).full`` is the full text.

    Parameters
    ----------
    fn
        An argument of `loopax.jaxify`, a PyMC model too, or a function that it returned. loopax runs
        the passes of its backend; without a backend it runs JAX's. For a function from `loopax.native`
        the result is a `NativeLoops`: the forms of its loops in the calls so far, and in a call with
        ``args`` and ``kwargs``.
    args, kwargs
        With a list of inputs: ``outputs``, and ``updates``, ``givens`` and ``name``, as for `jaxify`.
        With a Python function, decorated by `jaxify` or not: the arguments of a call, of which only
        structure, dtype and rank matter. With anything else: nothing.

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
    >>> result = explain([x], pytensor.grad(y, x))
    >>> result.counts_read.loops, result.counts_lowered.loops
    (3, 2)
    """
    if isinstance(fn, partial) and isinstance(fn.func, NativeFunction):  # a method of an instance
        bound = fn.args if args or kwargs else ()
        fn, args = fn.func, (*bound, *args)
    if isinstance(fn, NativeFunction):
        if args or kwargs:
            fn.compile(*args, **kwargs)
        return NativeLoops(fn.name, tuple(fn.remarks))
    with TRACING:
        if isinstance(fn, StatefulFunction):
            fn = fn.__wrapped__
        fn = fn.whole if isinstance(fn, InChunks) else fn
        fn = jaxify(fn) if is_pymc_model(fn) else fn
        if hasattr(fn, "of_point"):  # the log-density of a model
            fn, args = fn.of_point, args or (fn.initial_point(),)
        by_variables = getattr(fn, "__wrapped__", None)
        if isinstance(by_variables, PytreeInputs) and not args and not kwargs:
            declared = by_variables.program()
            import_graph(declared.graph)
            explanation = Explanation.of(declared.graph, declared.name, builder_of(fn).passes)
            explanation = replace(explanation, remarks=tuple(fn.remarks))
            return _in_parts(explanation, declared, by_variables)
        _refuse_missing_arguments(fn, args, kwargs)
        if isinstance(fn, BackendFunction):
            graph, name, passes = fn.as_read(*args, **kwargs), fn.__name__, builder_of(fn).passes
            program = getattr(fn, "program", None)  # a Python function has none
        else:
            program = _program(fn, args, kwargs)
            graph, name, passes = program.graph, program.name, backend_named(DEFAULT).passes
        import_graph(graph)
        explanation = Explanation.of(graph, name, passes)
        if isinstance(fn, BackendFunction):
            explanation = replace(explanation, remarks=tuple(fn.remarks))
        return explanation if program is None else _in_parts(explanation, program, fn)


def _refuse_missing_arguments(fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if a Python function that needs arguments is explained without any."""
    is_function = isinstance(fn, TracedFunction) or not isinstance(
        fn, BackendFunction | Function | FunctionGraph
    )
    if args or kwargs or not callable(fn) or not is_function:
        return
    needed = [
        p.name
        for p in signature(fn).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise TypeError(
            "The program of a Python function depends on the types of its arguments. Pass the "
            f"arguments of a call to explain, for {', '.join(needed)}: explain(f, np.ones(3)). Only "
            "their structure, dtype and rank matter."
        )


def _in_parts(explanation: Explanation, program: Program, fn: object) -> Explanation:
    """Add the part that is computed once for each value of the shared variables."""
    if isinstance(fn, ProgramFunction):
        part = fn.early_part
    else:
        part = early_part(replace(program, graph=explanation.lowered))
    if part is None:
        return explanation
    shared = program.shared_names
    part = replace(part, early=part.early.clone(), residual=part.residual.clone())
    names = [*(i.name for i in program.inputs), *(shared[k] for k in part.left)]
    for v, name in zip(part.early.inputs, [shared[k] for k in part.reads], strict=True):
        v.name = name
    for v, label in zip(part.residual.inputs, names, strict=False):  # the kept values come after
        v.name = label
    return replace(explanation, part=part)


def _program(fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
    if isinstance(fn, Function | FunctionGraph):
        refuse_arguments(fn, args, kwargs)
        return frontend.read_program(fn)
    if not callable(fn):
        return frontend.read_program(fn, *args, **kwargs)
    at, _ = frontend.signature(args, kwargs)
    program = frontend.trace(fn, at)
    program.name = getattr(fn, "__name__", program.name)
    return program
