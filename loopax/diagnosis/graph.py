"""The diagnosis of one call of a program: its values, and then its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from loopax.diagnosis.causes import Cause, causes, way_on
from loopax.diagnosis.contributions import bad_flags
from loopax.diagnosis.findings import finding_of, finding_of_failure
from loopax.diagnosis.frames import Failed, Frame
from loopax.diagnosis.gradients import diagnose_gradient
from loopax.diagnosis.numbers import (
    Entry,
    bad_entries,
    entry_in_words,
    first_true,
    value_in_words,
)
from loopax.diagnosis.origin import op_name
from loopax.diagnosis.ranges import first_outside
from loopax.diagnosis.report import Diagnosis, Finding
from loopax.diagnosis.runner import Runner
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.program import Program

_OUTPUTS, _FINDINGS = 5, 5  # that are told
_LOGARITHMS = {"Log", "Log2", "Log10", "Log1p", "Log1mexp", "Xlogy"}


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
    wanted: dict[Variable, Any] = {}
    outputs: dict[Variable, str] = {}
    notes: list[str] = []
    for k in bad:
        variable = call.graph.outputs[k]
        flags = bad_flags(frame.value(variable))
        if flags is None:
            notes.append(
                f"{_output(call, k)} is finite where the program is evaluated op by op, and is not as it "
                "runs: a rewriting or the compiler computes it in another order. loopax.compare(f, ...) "
                "shows which forms agree."
            )
            continue
        wanted[variable] = flags
        outputs.setdefault(variable, _output(call, k, first_true(flags) if flags.ndim else None))
    findings: dict[Any, Finding] = {}
    for cause, became in _first_causes(call, frame, wanted):
        reached = way_on(cause)[-1].variable
        output = outputs[reached] if reached in outputs else next(iter(outputs.values()))
        finding = finding_of(cause, call.names, output, became)
        findings.setdefault(cause.place.variable, finding)  # of several steps the first
        if len(findings) == _FINDINGS:
            break
    if not findings and not notes:
        notes.append("it is so of constants of the program alone.")
    return Diagnosis(call.name, _summary(call, bad), tuple(findings.values()), tuple(notes))


def _first_causes(
    call: GraphRun, frame: Frame, wanted: Mapping[Variable, Any]
) -> Iterator[tuple[Cause, Cause | None]]:
    """Causes, the first one first, each with where it became nan, if it was an infinity before.

    Of infinities that became nan the infinity is the cause, unless it is one that programs compute with:
    the logarithm of 0, or an infinity that they are given.
    """
    found = causes(call.runner, frame, wanted, through=False)
    behind = causes(call.runner, frame, wanted, through=True)
    infinite = [c for c in behind if c.place.kind != "nan" and not _is_meant(c)]
    turned = [c for c in found if c.place.kind == "nan" and _has_infinite_operand(c)]
    # What programs compute with comes last.
    for cause in sorted(found, key=lambda c: (c.place.kind != "nan" and _is_meant(c), c.key)):
        earlier = next((c for c in infinite if c.key < cause.key), None)
        if cause in turned and earlier is not None:
            yield earlier, cause
        elif cause.place.kind == "nan":
            yield cause, None
        else:
            yield cause, next((c for c in turned if c.key > cause.key), None)


def _is_meant(cause: Cause) -> bool:
    """Whether an infinity is one that programs compute with.

    It is written in the program, or given to it, as the logarithm of a probability of 0; or the logarithm
    of some entries of an array, of which others are finite.
    """
    place = cause.place
    node = place.node
    if node is None:
        return place.kind == "-inf"
    frame = place.frame
    given = any(frame.is_constant(v) and bad_flags(frame.value(v)) is not None for v in node.inputs)
    is_part = np.size(place.value) > 1 and bool(np.isfinite(place.value).any())
    return given or (is_part and op_name(node.op) in _LOGARITHMS and place.kind == "-inf")


def _has_infinite_operand(cause: Cause) -> bool:
    node = cause.place.node
    frame = cause.place.frame
    return node is not None and any(bad_flags(frame.value(v)) is not None for v in node.inputs)


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
