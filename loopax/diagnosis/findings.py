"""Places of a run as findings, in the user's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable

from loopax.diagnosis.causes import Cause, way_on
from loopax.diagnosis.frames import Failed, Frame
from loopax.diagnosis.numbers import Entry, at_entry, entry_in_words, value_in_words
from loopax.diagnosis.operands import operands_of
from loopax.diagnosis.origin import Origin, expression, op_name
from loopax.diagnosis.places import Place, entries_read
from loopax.diagnosis.report import Finding
from loopax.diagnosis.traps import Trap, explain_value
from loopax.diagnosis.zeros import first_zero
from loopax.ir import Scan

Names = Mapping[Variable, str]
_LONGEST = 40  # characters of a name that is an expression
_SPREAD = 6  # lines on the path to the output


def finding_of(cause: Cause, names: Names, output: str, became: Cause | None = None) -> Finding:
    """Describe a cause; ``names`` are the names of the program's inputs.

    ``became`` is the place at which an infinity became nan.
    """
    place = cause.place
    spread = _spread(way_on(cause)[1:], names, output)
    if became is not None:
        spread = [f"it became nan {_placed(became.place, names)}", *spread]
    node = place.node
    if node is None:
        text = _input_in_words(place, names)
        return Finding(
            kind=place.kind, op="input", expression=text, entry=place.entry,
            why=f"the program was given it: {text} = {value_in_words(place.value, place.entry)}.",
            spread=tuple(spread),
        )  # fmt: skip
    error = place.frame.errors.get(node)
    trap = _trap(place, node)
    if error is not None and not trap.instead:
        trap = Trap(f"{type(error).__name__}: {_first_line(error)}")
    return at_node(
        place.frame, node, names,
        kind=place.kind, entry=place.entry, trap=trap, variable=place.variable, spread=tuple(spread),
    )  # fmt: skip


def finding_of_failure(failure: Failed, names: Names) -> Finding:
    """Describe an error that a node raised."""
    message = f"{type(failure.cause).__name__}: {_first_line(failure.cause)}"
    node = failure.node
    return at_node(
        failure.frame, node, names, kind="error", trap=Trap(message), variable=node.outputs[0]
    )


def at_node(
    frame: Frame,
    node: Apply,
    names: Names,
    *,
    kind: str,
    trap: Trap,
    variable: Variable,
    entry: Entry | None = None,
    spread: tuple[str, ...] = (),
    in_gradient: bool = False,
) -> Finding:
    """Describe a failure at a node of a frame, with the operands of the node."""
    origin = Origin(node.outputs[0])
    place = Place(frame, variable, entry)
    zero = "" if in_gradient else _origin_of_zero(place, node, names)
    names = names_in(frame, names)
    operands = operands_of(place, node, names, origin.code)
    steps = [f for f in frame.path if f.label]
    return Finding(
        kind=kind,
        op=op_name(node.op),
        expression=_named(variable, names, entry, "" if in_gradient else kind),
        line=origin.place,
        code=origin.code,
        steps=tuple(n for f in steps for n in (f.row or (f.number,))),
        where=where(frame),
        entry=entry,
        operands=tuple(operands),
        why=trap.why,
        instead=trap.instead,
        in_gradient=in_gradient,
        loop=_loops(frame),
        spread=spread,
        zero=zero,
    )


# Positions of operands that must not be 0.
_POLES = {"Log": 0, "Log2": 0, "Log10": 0, "Reciprocal": 0, "True_div": 1}


def _origin_of_zero(place: Place, node: Apply, names: Names) -> str:
    """The origin of the 0 that ``node`` takes the logarithm of or divides by; or an empty string."""
    k = _POLES.get(op_name(node.op))
    if k is None or place.entry is None:
        return ""
    v = node.inputs[k]
    entry = entries_read(place, node, k) if np.ndim(place.frame.value(v)) else ()
    if entry is None or at_entry(place.frame.value(v), entry) != 0:
        return ""
    first = first_zero(Place(place.frame, v, entry))
    if first.node is not None:
        return _placed(first, names)
    is_read_here = first.variable is v and first.frame is place.frame
    return "" if is_read_here else f"in {_input_in_words(first, names_in(first.frame, names))}"


def names_in(frame: Frame, names: Names) -> Names:
    """Names for the inputs of ``frame``: their outer expressions, or labels of loop states."""
    if frame.node is None or frame.parent is None:
        return names
    node, around = frame.node, names_in(frame.parent, names)
    inputs, op = frame.graph.inputs, node.op
    inner_names = {}
    if not isinstance(op, Scan):
        outer = node.inputs[len(node.inputs) - len(inputs) :]
        return {
            v: name for v, x in zip(inputs, outer, strict=True) if (name := _short_name(x, around))
        }
    args, outs = op.split_body_inputs(inputs), op.split_body_outputs(frame.graph.outputs)
    loop_inputs = op.split_inputs(node.inputs)
    loop = frame.parent.inside[node]
    inner_names[args.i] = "i"
    for v, x in zip(args.rows, loop_inputs.sequences, strict=True):
        if name := _short_name(x, around):
            inner_names[v] = f"{name}[{loop.row_of(frame.number)}]"
    labels = op.options.origin.labels or ("",) * op.n_states
    for v, new, label in zip(args.states, outs.states, labels, strict=False):
        if label:
            inner_names[v] = label
        elif new.name:
            inner_names[v] = f"{new.name} before"
    for v, x in zip(args.consts, loop_inputs.consts, strict=True):
        if name := _short_name(x, around):
            inner_names[v] = name
    return inner_names


def _short_name(v: Variable, names: Names) -> str:
    """``v`` as an expression, or its own name where that is long or says little."""
    text = expression(v, names, 2)
    if "…" in text or len(text) > _LONGEST or "an input" in text:
        return str(v.name or "")
    return f"({text})" if " " in text and v not in names else text


def where(frame: Frame) -> str:
    """``outer step 3, step 17``: the frames with a number, outermost first."""
    labels = [f.label for f in frame.path if f.label]
    last = max((k for k, label in enumerate(labels) if label.startswith("step")), default=-1)
    return ", ".join(
        f"outer {label}" if label.startswith("step") and k < last else label
        for k, label in enumerate(labels)
    )


def _loops(frame: Frame) -> str:
    """Titles of the loops around a frame, innermost first."""
    loops = []
    for f in reversed(frame.path):
        if f.node is None or not isinstance(f.node.op, Scan):
            continue
        options = f.node.op.options
        place = str(Origin(f.node.outputs[0])) or str(Origin.parsed(options.origin.line))
        title = f"the loop {options.name!r}" if options.name else "the loop"
        loops.append(f"{title} of {place}" if place else title)
    return ", in ".join(loops)


def _named(v: Variable, names: Names, entry: Entry | None, kind: str) -> str:
    """``h = w + a * x, [3], is nan``."""
    text = expression(v, names)
    if v.name and v.owner is not None and text != v.name:
        text = f"{v.name} = {text}"
    at = f", entry {entry_in_words(entry)}" if entry else ""
    if kind in ("nan", "inf", "-inf"):
        return f"{text}{at}{',' if at else ''} is {kind}"
    return f"{text}{at}"


def _trap(cause: Place, node: Apply) -> Trap:
    numbers = []
    for k, v in enumerate(node.inputs):
        value = cause.frame.value(v)
        numbers.append(at_entry(value, entries_read(cause, node, k)))
    return explain_value(op_name(node.op), numbers, cause.number)


def _input_in_words(place: Place, names: Names) -> str:
    name = names.get(place.variable) or place.variable.name or ""
    kind = "input" if place.frame.node is None else "value"
    return f"{kind} {name or 'without a name'}{entry_in_words(place.entry)}"


def _placed(place: Place, names: Names) -> str:
    node = place.node
    origin = Origin(place.variable)
    at = [f"at {where(place.frame)}" if where(place.frame) else "", origin.place]
    text = (
        "in an input"
        if node is None
        else f"in {op_name(node.op)}, {expression(place.variable, names_in(place.frame, names), 2)}"
    )
    return ", ".join([text, *filter(None, at)])


def _spread(way: Sequence[Place], names: Names, output: str) -> list[str]:
    """Lines on the path from a cause to the output, one at each change of line or frame."""
    lines: list[str] = []
    last: Any = None
    for place in way:
        if place.node is None:
            continue
        origin = Origin(place.variable)
        at = (origin.place, tuple(f.label for f in place.frame.path))
        if at == last:
            continue
        last = at
        text = _spread_name(place, names)
        statement = f"{text}{entry_in_words(place.entry)} is {place.kind or 'not finite'}"
        location = [where(place.frame), origin.place]
        lines.append(", ".join([statement, *filter(None, location)]))
    if len(lines) > _SPREAD:
        lines = [*lines[: _SPREAD - 1], f"… {len(lines) - _SPREAD + 1} more …"]
    return [*lines, output]


def _spread_name(place: Place, names: Names) -> str:
    node = place.node
    if node is not None and isinstance(node.op, Scan):
        name = node.op.options.name
        return f"the loop {name!r}" if name else "the loop"
    return expression(place.variable, names_in(place.frame, names), 2)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip() or type(error).__name__
