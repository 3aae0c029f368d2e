"""`build_loop`: the loop of a step function as one `Scan`, for `scan` and similar functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from loopax.base.errors import source_line
from loopax.facts.constants import constant_value
from loopax.frontend.loops.capture import (
    age,
    close,
    refuse_captures,
    refuse_hidden_draws,
    substitute,
    young_nodes,
)
from loopax.frontend.loops.carry import Slot, Traced, carry_leaves, settle
from loopax.frontend.loops.lags import Lag, Lagged
from loopax.frontend.loops.leaves import CarryLeaf, as_flag, variables_of
from loopax.frontend.loops.rows import Rows
from loopax.frontend.loops.trees import flatten, leaf_names
from loopax.frontend.mistakes import explained
from loopax.frontend.watching import breakpoints, with_breakpoints
from loopax.frontend.wrong_gradients import warn_of_wrong_gradients
from loopax.ir.ops.calling_convention import (
    INDEX_TYPE,
    BodyArgs,
    BodyOuts,
    Origin,
    ScanArgs,
    ScanOptions,
)
from loopax.ir.ops.random_ops import RandomScan, has_generators
from loopax.ir.ops.scan import Scan


class Emitted(NamedTuple):
    """The result of a step."""

    carry: Any
    y: Any = None
    stop: Any = None


class Result(NamedTuple):
    """The result of a loop.

    ``stopped`` is None if it cannot stop. With the carries of all steps, ``final`` has one more row than
    there are steps.
    """

    final: Any
    ys: Any
    stopped: Any


def make_options(
    name: str | None = None,
    reverse: bool = False,
    unroll: int = 1,
    checkpoint: Any = None,
    truncate_gradient: int = -1,
) -> ScanOptions:
    """The options of a loop, checked."""

    def whole(x: object) -> bool:
        return isinstance(x, int) and not isinstance(x, bool)

    if not (whole(unroll) and unroll >= 1):
        raise ValueError(f"unroll must be a number of steps from 1 on, got {unroll!r}.")
    if isinstance(checkpoint, list | tuple):
        levels = checkpoint = tuple(checkpoint)
    else:
        levels = () if checkpoint in (None, "sqrt") else (checkpoint,)
    whole_levels = all(whole(k) and k >= 1 for k in levels)
    if checkpoint == () or not whole_levels or [*levels] != sorted({*levels}, reverse=True):
        raise ValueError(
            f'checkpoint must be None, "sqrt", or a number of steps from 1 on, got {checkpoint!r}. For '
            "several levels pass a tuple of numbers, the largest first, as in (10_000, 100)."
        )
    if not (whole(truncate_gradient) and (truncate_gradient >= 1 or truncate_gradient == -1)):
        raise ValueError(
            "truncate_gradient must be a number of steps from 1 on, or -1 for all of them, got "
            f"{truncate_gradient!r}. pytensor.gradient.disconnected_grad cuts a gradient everywhere."
        )
    return ScanOptions(name, bool(reverse), unroll, checkpoint, truncate_gradient)


def build_loop(
    step: Callable[[Any, Any, Any], Emitted],
    init: object,
    rows: Rows,
    n_steps: TensorVariable | int,
    options: ScanOptions,
    *,
    label: str,
    strict: bool = False,
    go_on: Callable[[Any], Any] | None = None,
    own_captures: Sequence[Variable] = (),
    carried: str = "carry",
    all_carries: bool = False,
) -> Result:
    """Build the loop of ``step(i, carry, row)``, as one `Scan`.

    Parameters
    ----------
    go_on
        The condition, from a carry, for another step. It is tested before the first step too.
    own
        Variables that loopax's own ``step`` captures, which ``strict`` allows.
    carried
        The name of the carry in the user's function.
    all_carries
        Whether the result has the carries of all steps instead of the final one.
    """
    leaves, tree = flatten(init)
    names = ["carry" + name for name in leaf_names(init)]
    slots = [_slot(n, x, options) for n, x in zip(names, leaves, strict=True)]
    n_steps = pt.constant(n_steps, dtype="int64") if isinstance(n_steps, int) else n_steps
    n_steps = rows.checked(n_steps)
    last_index = n_steps - 1 if options.reverse else None

    def trace(enter: Callable[[Any], None]) -> Traced:
        i = INDEX_TYPE(name="i")
        enter(i if last_index is None else last_index - i)
        row_dummies = rows.dummies()
        row_views = rows.as_indices(row_dummies, i)
        with explained(label), breakpoints() as conditions:
            result = step(i, tree.build([s.view for s in slots]), rows.build(row_views, i))
        carry = carry_leaves(result.carry, names, tree, label)
        ys, y_names, y_tree = variables_of(result.y, "y")
        all_of_them = with_breakpoints([*carry, *ys], conditions)
        carry, ys = all_of_them[: len(carry)], all_of_them[len(carry) :]
        closing = [] if result.stop is None else [result.stop]
        refuse_hidden_draws([*carry, *ys, *closing], age(i), label)
        return Traced(i, row_dummies, row_views, carry, ys, y_names, y_tree, result.stop)

    traced = settle(slots, trace, label)
    i: Any = traced.i
    stop, since = traced.stop, age(i)
    warn_of_wrong_gradients(young_nodes([*traced.carry, *traced.ys], since))
    states = [v for s in slots for v in s.states]
    inits = [v for s in slots for v in s.inits()]
    nexts = [v for s, result in zip(slots, traced.carry, strict=True) for v in s.nexts(result)]
    if go_on is not None:
        with explained(label):
            condition = go_on(tree.build([s.view for s in slots]))
        flag = as_flag(condition, f"The condition of {label}")
        refuse_hidden_draws([flag], since, label)
        # It is traced on the dummies, so that it depends on neither the initial values nor the step.
        (flag_before,) = substitute(
            [flag], {i: pt.constant(0, dtype="int64"), **_pairs(states, inits)}, since
        )
        (flag_after,) = substitute([flag], {i: i + 1, **_pairs(states, nexts)}, since)
        stop = pt.invert(flag_after)
        n_steps = pt.switch(flag_before, n_steps, pt.constant(0, dtype="int64"))

    closing = [] if stop is None else [stop]
    dummies = [i, *traced.rows, *states]
    dummy_of = {v: d for v, d in zip(traced.row_views, traced.rows, strict=True) if v is not d}
    static_length = constant_value(n_steps)
    runs = static_length is not None and bool(static_length > 0)
    carries = zip(slots, traced.carry, strict=True) if all_carries else ()
    ys = [*traced.ys, *(s.emitted(result) for s, result in carries)]
    closure = close([*nexts, *ys, *closing], dummies, since, dummy_of, runs=runs)
    if strict:
        anchors = [s.anchor for s in slots if isinstance(s, Lagged)]
        allowed = {n_steps, last_index, *own_captures, *(leaf.x for leaf in rows.leaves), *anchors}
        refuse_captures([v for v in closure.outer if v not in allowed], label)
    read_variables = {*ancestors(closure.outs)}
    n_steps = rows.with_unread_checked(n_steps, [v not in read_variables for v in traced.rows])
    k, y = len(nexts), len(nexts) + len(ys)
    outs = BodyOuts(closure.outs[:k], closure.outs[k:y], *closure.outs[y:])
    options = options._replace(origin=Origin(_labels(slots, traced, carried), source_line(i)))
    kind = RandomScan if has_generators([*states, *closure.inner]) else Scan
    op = kind.from_body(BodyArgs(i, traced.rows, states, closure.inner), outs, options)
    outputs = op.split_outputs(op.bind(ScanArgs(n_steps, rows.sequences(), inits, closure.outer)))
    n_done = n_steps if stop is None else outputs.n_done
    remaining_finals = iter(outputs.finals)
    finals = [s.final([next(remaining_finals) for _ in s.states], n_done) for s in slots]
    emitted, axis = len(traced.ys), rows.tree.axis_name
    final = tree.build(finals)
    if all_carries:
        flag_after = zip(slots, outputs.traces[emitted:], strict=True)
        final = tree.build([s.all_rows(x, options.reverse) for s, x in flag_after], axis)
    return Result(final, traced.ys_tree.build(outputs.traces[:emitted], axis), outputs.stopped)


def _labels(slots: Sequence[CarryLeaf], traced: Traced, carried: str) -> tuple[str, ...]:
    """Labels of the states and of the traces' rows: their names, or else their paths."""
    paths = [carried + s.path.removeprefix("carry") for s in slots]
    named = [
        v.name if v.name and v.owner is not None and v not in traced.row_views else path
        for v, path in zip([*traced.carry, *traced.ys], [*paths, *traced.y_names], strict=True)
    ]
    of_states = [name for s, name in zip(slots, named, strict=False) for _ in s.states]
    return (*of_states, *named[len(slots) :])


def parameter(f: Callable[..., Any], k: int) -> str:
    """The name of parameter ``k`` of the user's function ``f``, a carry; "carry" if it has none."""
    code = getattr(f, "__code__", None)
    names = () if code is None else code.co_varnames[: code.co_argcount]
    names = names[1:] if hasattr(f, "__self__") else names
    return names[k] if k < len(names) else "carry"


def _slot(name: str, x: object, options: ScanOptions) -> Any:
    return Lagged(name, x, options.truncate_gradient) if isinstance(x, Lag) else Slot(name, x)


def _pairs(keys: Sequence[Variable], values: Sequence[Variable]) -> dict[Any, Any]:
    return dict(zip(keys, values, strict=True))
