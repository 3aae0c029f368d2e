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
from loopax.diagnosis.numbers import Entry, bad_entries, entry_in_words, first_true, value_in_words
from loopax.diagnosis.origin import op_name
from loopax.diagnosis.ranges import first_outside
from loopax.diagnosis.report import Diagnosis, Finding
from loopax.diagnosis.runner import Runner
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.program import Program

_OUTPUTS, _FINDINGS = 5, 5  # the most in a report
_LOGARITHMS = {"Log", "Log2", "Log10", "Log1p", "Log1mexp", "Xlogy"}


@dataclass(frozen=True)
class GraphRun:
    """A call of a program."""

    name: str  # the name of the program
    # The graph before all passes; its inputs are the program's inputs, then the shared variables.
    graph: FunctionGraph
    values: Sequence[Any]  # NumPy values of the inputs of ``graph``
    n_inputs: int  # the number of inputs that are arguments
    names: Mapping[Variable, str]  # the user's names of the inputs
    build: Callable[[Program], Any]  # Compiles a `Program` in the form in which the call ran
    flushes: bool  # whether that form takes subnormal numbers for 0
    # Computes the gradient of the sum of the float outputs by each of `floats`, in the user's form.
    gradient: Callable[[], Sequence[Any]]
    # The results of the call, a leaf for each output; None where it raised ``error``.
    results: Sequence[Any] | None = None
    error: Exception | None = None
    remarks: Sequence[str] = ()  # Remarks of the backend on the calls so far

    @property
    def floats(self) -> list[Variable]:
        """The float inputs, by which gradients are taken."""
        return [v for v in self.graph.inputs[: self.n_inputs] if is_float(v)]

    @cached_property
    def runner(self) -> Runner:
        return Runner(self.build, self.flushes, raises=self.error is not None)


def diagnose_graph(
    call: GraphRun, *, grad: bool = False, within: Mapping[str, tuple[float, float]] | None = None
) -> Diagnosis:
    """Diagnose one call of a program."""
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
            return _diagnose_values(call, frame, bad)
        if within:
            outside = first_outside(call.runner, frame, within, call.names)
            if outside is not None:
                return Diagnosis(call.name, "a value leaves its range.", (outside,))
        if grad:
            gradient = dict(zip(call.floats, call.gradient(), strict=True))
            return diagnose_gradient(call.name, call.runner, frame, call.names, gradient)
    return Diagnosis(call.name, "every value is finite.")


def _bad_outputs(call: GraphRun) -> dict[int, Any]:
    """Flags of the bad entries, by position of the output."""
    bad_by_output = {}
    for k, x in enumerate(call.results or ()):
        flags = bad_entries(x)
        if flags is not None and flags.any():
            bad_by_output[k] = flags
    return bad_by_output


def _diagnose_values(call: GraphRun, frame: Frame, bad: Mapping[int, Any]) -> Diagnosis:
    bad_outputs: dict[Variable, Any] = {}
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
        bad_outputs[variable] = flags
        outputs.setdefault(variable, _output(call, k, first_true(flags) if flags.ndim else None))
    findings: dict[Any, Finding] = {}
    for cause, became in _first_causes(call, frame, bad_outputs):
        reached = way_on(cause)[-1].variable
        output = outputs[reached] if reached in outputs else next(iter(outputs.values()))
        finding = finding_of(cause, call.names, output, became)
        findings.setdefault(cause.place.variable, finding)  # the first of several steps
        if len(findings) == _FINDINGS:
            break
    if not findings and not notes:
        notes.append("it is so of constants of the program alone.")
    return Diagnosis(call.name, _summary(call, bad), tuple(findings.values()), tuple(notes))


def _first_causes(
    call: GraphRun, frame: Frame, bad_outputs: Mapping[Variable, Any]
) -> Iterator[tuple[Cause, Cause | None]]:
    """Causes in order of computation, each with the place, if any, at which an infinity became nan.

    The cause of such a nan is the infinity, unless programs compute with it on purpose: the logarithm
    of 0, or an infinity among the inputs.
    """
    direct = causes(call.runner, frame, bad_outputs, through=False)
    followed = causes(call.runner, frame, bad_outputs, through=True)
    infinite = [c for c in followed if c.place.kind != "nan" and not _is_meant(c)]
    became_nan = [c for c in direct if c.place.kind == "nan" and _has_infinite_operand(c)]
    # Infinities that programs compute with come last.
    for cause in sorted(direct, key=lambda c: (c.place.kind != "nan" and _is_meant(c), c.key)):
        earlier = next((c for c in infinite if c.key < cause.key), None)
        if cause in became_nan and earlier is not None:
            yield earlier, cause
        elif cause.place.kind == "nan":
            yield cause, None
        else:
            yield cause, next((c for c in became_nan if c.key > cause.key), None)


def _is_meant(cause: Cause) -> bool:
    """Whether a program computes with an infinity on purpose.

    Such an infinity is a constant or an input, as the logarithm of a probability of 0; or some entries
    of the logarithm of an array whose other entries are finite.
    """
    place = cause.place
    node = place.node
    if node is None:
        return place.kind == "-inf"
    frame = place.frame
    is_written = any(
        frame.is_constant(v) and bad_flags(frame.value(v)) is not None for v in node.inputs
    )
    is_part = np.size(place.value) > 1 and bool(np.isfinite(place.value).any())
    return is_written or (is_part and op_name(node.op) in _LOGARITHMS and place.kind == "-inf")


def _has_infinite_operand(cause: Cause) -> bool:
    node = cause.place.node
    frame = cause.place.frame
    return node is not None and any(bad_flags(frame.value(v)) is not None for v in node.inputs)


def _output(call: GraphRun, k: int, entry: Entry | None = None) -> str:
    name = call.graph.outputs[k].name
    title = "the output" if len(call.graph.outputs) == 1 else f"output {k}"
    return f"{title}{f' {name}' if name else ''}{entry_in_words(entry)}"


def _summary(call: GraphRun, bad: Mapping[int, Any]) -> str:
    if call.error is not None:
        return f"the call raises {type(call.error).__name__}."
    sentences, results = [], call.results or ()
    for k, flags in bad.items():
        if np.size(flags) == 1:
            sentences.append(
                f"{_output(call, k)} is {value_in_words(np.asarray(results[k]).ravel()[0])}"
            )
        else:
            sentences.append(
                f"{int(flags.sum())} of {flags.size} entries of {_output(call, k)} are not finite"
            )
    return "; ".join(sentences[:_OUTPUTS]) + "."


def _unexplained(call: GraphRun) -> Diagnosis:
    """Report an error that the program, evaluated op by op, does not raise."""
    error = call.error
    finding = Finding(
        kind="error",
        op=type(error).__name__,
        expression=str(error).partition("\n")[0],
        why="no op raises where the program is evaluated op by op: the error is one of the compiled form.",
    )
    return Diagnosis(call.name, _summary(call, {}), (finding,))
