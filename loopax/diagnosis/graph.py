"""The diagnosis of one call of a program: its values, and then its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from loopax.diagnosis.causes import way_from_cause
from loopax.diagnosis.findings import finding_of, finding_of_failure
from loopax.diagnosis.frames import Failed, Frame
from loopax.diagnosis.gradients import diagnose_gradient
from loopax.diagnosis.numbers import Entry, bad_entries, entry_in_words, value_in_words
from loopax.diagnosis.places import Place
from loopax.diagnosis.ranges import first_outside
from loopax.diagnosis.report import Diagnosis, Finding
from loopax.diagnosis.runner import Runner
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.program import Program

_OUTPUTS, _ENTRIES = 5, 8  # that are followed back to a cause


@dataclass(frozen=True)
class GraphRun:
    """A call of a program.

    Parameters
    ----------
    name
        Of the program.
    graph
        As it was read: of the inputs, and then the shared variables.
    values
        Those of the inputs of ``graph``, of NumPy.
    n_inputs
        How many of them are arguments.
    names
        What a user calls the inputs.
    build
        Makes of a `Program` a function in the form in which the call ran.
    flushes
        Whether that form takes subnormal numbers for 0.
    gradient
        Gives the gradient of the sum of the float outputs by each of `floats`, as the user computes it.
    results
        What the call gave, a leaf for each output; None where it raised ``error``.
    remarks
        What its backend has said of the calls so far.
    """

    name: str
    graph: FunctionGraph
    values: Sequence[Any]
    n_inputs: int
    names: Mapping[Variable, str]
    build: Callable[[Program], Any]
    flushes: bool
    gradient: Callable[[], Sequence[Any]]
    results: Sequence[Any] | None = None
    error: Exception | None = None
    remarks: Sequence[str] = ()

    @property
    def floats(self) -> list[Variable]:
        """The inputs that a gradient is taken by."""
        return [v for v in self.graph.inputs[: self.n_inputs] if is_float(v)]

    @cached_property
    def runner(self) -> Runner:
        return Runner(self.build, self.flushes, raises=self.error is not None)


def diagnose_graph(
    call: GraphRun, *, grad: bool = False, within: Mapping[str, tuple[float, float]] | None = None
) -> Diagnosis:
    """What is wrong in one call of a program."""
    frame = Frame(call.graph, call.values)
    bad = _bad_outputs(call)
    if not bad and call.error is None and not grad and not within:
        return Diagnosis(call.name, "every value is finite.")
    with np.errstate(all="ignore"):
        try:
            call.runner.run(frame)
        except Failed as failure:
            return Diagnosis(
                call.name, _summary(call, bad), (finding_of_failure(failure, call.names),)
            )
        if call.error is not None:
            return _unexplained(call)
        if bad:
            return _of_values(call, frame, bad)
        if within:
            outside = first_outside(call.runner, frame, within, call.names)
            if outside is not None:
                return Diagnosis(call.name, "a value leaves its range.", (outside,))
        if grad:
            gradient = dict(zip(call.floats, call.gradient(), strict=True))
            return diagnose_gradient(call.name, call.runner, frame, call.names, gradient)
    return Diagnosis(call.name, "every value is finite.")


def _bad_outputs(call: GraphRun) -> dict[int, Any]:
    """By output, where it is not finite."""
    found = {}
    for k, x in enumerate(call.results or ()):
        flags = bad_entries(x)
        if flags is not None and flags.any():
            found[k] = flags
    return found


def _of_values(call: GraphRun, frame: Frame, bad: Mapping[int, Any]) -> Diagnosis:
    found: dict[Any, tuple[Any, Finding]] = {}
    notes = []
    for k in list(bad)[:_OUTPUTS]:
        variable = call.graph.outputs[k]
        value = frame.value(variable)
        own = bad_entries(value)
        if own is None or not own.any():
            notes.append(
                f"{_output(call, k)} is finite where the program is evaluated op by op, and is not as it "
                "runs: a rewriting or the compiler computes it in another order. loopax.compare(f, ...) "
                "shows which forms agree."
            )
            continue
        for entry in _some_entries(value):
            way = way_from_cause(call.runner, Place(frame, variable, entry))
            cause = way[0]
            finding = finding_of(way, call.names, _output(call, k, entry))
            key = (cause.variable, finding.where)
            order = cause.frame.order_key(cause.node)
            if key not in found or found[key][0] > order:
                found[key] = order, finding
    findings = [f for _, f in sorted(found.values(), key=lambda pair: pair[0])]
    return Diagnosis(call.name, _summary(call, bad), tuple(findings), tuple(notes))


def _some_entries(value: Any) -> Iterable[Entry | None]:
    """A few of the entries that are not finite, the first and the last among them, a nan first."""
    flags = bad_entries(value)
    if np.shape(flags) != np.shape(value):  # of a sparse matrix
        return [None]
    found = []
    for some in np.isnan(value), flags & ~np.isnan(value):
        where = np.argwhere(some)
        chosen = np.unique(np.linspace(0, len(where) - 1, min(_ENTRIES, len(where))).astype(int))
        found += [tuple(int(j) for j in where[k]) for k in chosen]
    return found


def _output(call: GraphRun, k: int, entry: Entry | None = None) -> str:
    name = call.graph.outputs[k].name
    what = "the output" if len(call.graph.outputs) == 1 else f"output {k}"
    return f"{what}{f' {name}' if name else ''}{entry_in_words(entry)}"


def _summary(call: GraphRun, bad: Mapping[int, Any]) -> str:
    if call.error is not None:
        return f"the call raises {type(call.error).__name__}."
    said, results = [], call.results or ()
    for k, flags in bad.items():
        if np.size(flags) == 1:
            said.append(
                f"{_output(call, k)} is {value_in_words(np.asarray(results[k]).ravel()[0])}"
            )
        else:
            said.append(
                f"{int(flags.sum())} of {flags.size} entries of {_output(call, k)} are not finite"
            )
    return "; ".join(said[:_OUTPUTS]) + "."


def _unexplained(call: GraphRun) -> Diagnosis:
    """An error that the program, evaluated op by op, does not raise."""
    error = call.error
    finding = Finding(
        kind="error",
        op=type(error).__name__,
        expression=str(error).partition("\n")[0],
        why="no op raises where the program is evaluated op by op: the error is one of the compiled form.",
    )
    return Diagnosis(call.name, _summary(call, {}), (finding,))
