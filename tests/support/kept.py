"""What a pass must keep of a program, and what to say where it does not.

`rewritten` runs passes over a graph that a test has written: values, dtypes, shapes and errors are those of
before, with `check` around each pass, and no pass has anything to do when it runs again.

`assert_kept` asks the same of one of `tests.random_programs.in_ir`. A fault names the pass, and the fewest
outputs that show it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pytensor.graph.fg import FunctionGraph

from loopax.ir import check, evaluate, pformat
from loopax.ir.evaluation.evaluate import own
from loopax.lowering.canonical.stabilize import stabilize
from loopax.lowering.redundancy.merge_loops import merge_loops
from loopax.lowering.redundancy.remove_unused import remove_unused

if TYPE_CHECKING:
    from tests.random_programs.in_ir import Program

# -- a graph that a test has written ----------------------------------------------------------------


def rewritten(
    graph: FunctionGraph,
    passes: Callable | Sequence[Callable],
    *cases: Sequence[Any],
    rtol: float = 0.0,
    atol: float = 0.0,
    errors: tuple[type[Exception], ...] = (),
    idempotent: bool = True,
) -> FunctionGraph:
    """``graph`` after ``passes``, which keep what it does at each of ``cases``: values for its inputs.

    Values are equal, or floats within ``rtol`` and ``atol``; dtypes and shapes are equal. An output's type
    stays, or says more. Of ``errors``, the same is raised. With ``idempotent``, a pass that runs twice in a
    row leaves the graph as its first run did.
    """
    types = [v.type for v in graph.outputs]
    check(graph)
    before = [values_or_error(graph, case, errors) for case in cases]
    for run in passes if isinstance(passes, Sequence) else [passes]:
        run(graph)
        check(graph)
        assert not idempotent or _idle(run, graph), f"{_name(run)} has more to do, run once more"
    for v, t in zip(graph.outputs, types, strict=True):
        assert t.is_super(v.type), f"{v.type}, not {t}"
    for case, wanted in zip(cases, before, strict=True):
        assert_same(values_or_error(graph, case, errors), wanted, rtol, atol)
    return graph


def values_or_error(
    graph: FunctionGraph, values: Sequence[Any], errors: type | tuple[type, ...] = Exception
) -> Any:
    """What ``graph`` gives at ``values``, or the type of the error, if it is one of ``errors``."""
    arrays = [x if hasattr(x, "bit_generator") else np.asarray(x) for x in map(own, values)]
    try:
        return evaluate(graph, *arrays)
    except errors as error:
        return type(error)


def assert_same(actual: Any, wanted: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    """The same values, dtypes and shapes (in lists too), generators in one state, or one type of error."""
    if isinstance(actual, type) or isinstance(wanted, type):
        assert actual is wanted
    elif isinstance(wanted, list | tuple):
        assert len(actual) == len(wanted)
        for x, y in zip(actual, wanted, strict=True):
            assert_same(x, y, rtol, atol)
    elif isinstance(wanted, np.random.Generator):
        assert actual.bit_generator.state == wanted.bit_generator.state
    else:
        actual, wanted = np.asarray(actual), np.asarray(wanted)
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind not in "fc":
            rtol = atol = 0.0
        np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=atol)


# -- a random program, before and after --------------------------------------------------------------


class Fault(AssertionError):
    """A pass that changed what a program does, with the program."""


def outcome(program: Program, graph: Any) -> tuple[type | None, list[Any]]:
    """The error that running ``graph`` raises, or its values."""
    try:
        return None, program.run(graph)
    except Exception as error:
        return type(error), []


def expected(program: Program, which: Sequence[int] | None = None) -> tuple[Any, list[Any], Any]:
    """What the program does: (error, values, the error that it may raise as well).

    A computation that nobody needs takes its error with it, whichever pass leaves it out.
    """
    error, values = outcome(program, program.graph(which))
    if error is None:
        return None, values, None
    # PyTensor's own rewrites leave out more: of ``second(x, 1.0)`` all that x would have raised.
    for leave_out in ((merge_loops, remove_unused), (merge_loops, remove_unused, stabilize)):
        needed = program.graph(which)
        for run in leave_out:
            run(needed)
        least, values = outcome(program, needed)
        if least is None:
            break
    return least, values, error


def difference(actual: Any, wanted: Any, tolerance: float = 1e-10) -> str | None:
    """What tells two outcomes apart, in words."""
    error, values = actual
    least, wanted_values, most = wanted
    if error is not None and error in (least, most):
        return None
    if error is not least:
        return f"raises {error and error.__name__}, not {least and least.__name__}"
    for k, (x, y) in enumerate(zip(values, wanted_values, strict=True)):
        if fault := _differs(x, y, tolerance):
            return f"output {k}: {fault}"
    return None


def _differs(x: Any, y: Any, tolerance: float) -> str | None:
    if isinstance(y, list):
        if len(x) != len(y):
            return f"{len(x)} rows, not {len(y)}"
        faults = [_differs(a, b, tolerance) for a, b in zip(x, y, strict=True)]
        return next((f for f in faults if f), None)
    if isinstance(y, np.random.Generator):
        same = x.bit_generator.state == y.bit_generator.state
        return None if same else "another state of the generator"
    x, y = np.asarray(x), np.asarray(y)
    if (x.dtype, x.shape) != (y.dtype, y.shape):
        return f"{x.dtype}{x.shape}, not {y.dtype}{y.shape}"
    if not np.issubdtype(y.dtype, np.floating):
        return None if np.array_equal(x, y) else f"{x}, not {y}"
    scale = 1 + np.max(np.abs(y[np.isfinite(y)]), initial=0.0)
    same = np.allclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    return None if same else f"{x}, not {y}"


def fault_of(
    program: Program, passes: Sequence[Callable], which: Any = None, *, steady: bool = False
) -> str | None:
    """What is wrong after the first of ``passes`` that does something wrong, with its name.

    The values are compared after the last, and only where they differ after each. With ``steady``, a
    pass run twice in a row must find nothing to do the second time.
    """
    wanted = expected(program, which)
    tolerance = 1e-4 if program.single else 1e-10
    for careful in (False, True):
        graph = program.graph(which)
        check(graph)
        for k, run in enumerate(passes, 1):
            try:
                run(graph)
                check(graph)
                if steady and not _idle(run, graph):
                    return f"{_name(run)} changes the program again, run once more"
            except Exception:
                return f"{_name(run)}:\n{traceback.format_exc(limit=-6)}"
            last = k == len(passes)
            if careful or last:
                fault = difference(outcome(program, graph), wanted, tolerance)
                if fault and careful:
                    return f"{_name(run)}: {fault}\n\nafter it\n\n{pformat(graph)}"
                if fault is None and last:
                    return None
    raise AssertionError("a run that differs from itself")


def _idle(run: Callable, graph: FunctionGraph) -> bool:
    before = graph.toposort()
    run(graph)
    return graph.toposort() == before


def assert_kept(program: Program, passes: Sequence[Callable], *, steady: bool = False) -> None:
    """Raise `Fault` where a pass changes what the program does; of its outputs, one that shows it."""
    if not (fault := fault_of(program, passes, steady=steady)):
        return
    which = list(range(len(program.outputs)))
    for k in [*which]:  # fewer outputs show it as well
        if len(which) > 1:
            fewer = [j for j in which if j != k]
            if actual := fault_of(program, passes, fewer, steady=steady):
                which, fault = fewer, actual
    text = pformat(program.graph(which))
    given = "\n".join(
        f"{v.name} = {x!r}" for v, x in zip(program.inputs, program.values, strict=True)
    )
    raise Fault(
        f"seed {program.seed}, outputs {which}: {fault}\n\nof\n\n{text}\n\nat\n\n{given}\n\n"
        f"(tests.random_programs.in_ir.program({program.seed}).graph({which}))"
    )


def _name(run: Any) -> str:
    return getattr(run, "__name__", str(run))
