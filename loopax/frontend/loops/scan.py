"""`scan`: a loop from a Python function of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.type import DenseTensorType

from loopax.base.errors import LoopTypeError, describe, source_line
from loopax.base.extensions import required
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
from loopax.frontend.loops.leaves import as_flag, variables_of
from loopax.frontend.loops.rows import Rows
from loopax.frontend.loops.trees import flatten, leaf_names
from loopax.frontend.mistakes import explained, refuse_no_function, refusing_arguments
from loopax.frontend.watching import breakpoints, with_breakpoints
from loopax.frontend.wrong_gradients import warn_of_wrong_gradients
from loopax.ir.ops.records import (
    INDEX_TYPE,
    UNBOUNDED,
    BodyArgs,
    BodyOuts,
    Checkpoint,
    Newton,
    Origin,
    ScanArgs,
    ScanOptions,
)
from loopax.ir.ops.scan import Scan

# What people give that have used `pytensor.scan`, which jaxify takes as it is.
_IN_PLACE_OF = {
    "fn": "the step comes first, and takes (carry, x): scan(step, init, xs)",
    "sequences": "they are called xs: scan(step, init, xs)",
    "outputs_info": "the carry before the first step is called init: scan(step, init, xs)",
    "non_sequences": "a step captures by itself what it reads: scan(step, init, xs)",
    "n_steps": "it is called length: scan(step, init, length=n)",
    "go_backwards": "it is called reverse: scan(step, init, xs, reverse=True)",
    "return_updates": "a step carries its generators, and there are no updates",
}


# What the step returns, and in the same structure what the loop does. What it takes is not said to be the
# same: mypy would take the c of `lambda c, x: (2 * c, x)` for an int.
R = TypeVar("R", bound=tuple[Any, Any] | tuple[Any, Any, Any])


@refusing_arguments(_IN_PLACE_OF)
def scan(
    step: Callable[[Any, Any], R],
    init: Any,
    xs: Any = None,
    length: Any = None,
    *,
    reverse: bool = False,
    unroll: int = 1,
    checkpoint: Checkpoint = None,
    truncate_gradient: int = -1,
    all_carries: bool = False,
    strict: bool = False,
    name: str | None = None,
    parallel: Literal["newton"] | None = None,
    tol: float | None = None,
    max_iters: int | None = None,
    otherwise: Literal["raise", "sequential"] | None = None,
) -> R:
    """A loop that carries a state through the rows of ``xs`` and collects what each step emits.

    ::

        scan :: ((c, a) -> (c, b), c, [a]) -> (c, [b])
        scan :: ((c, a) -> (c, b, stop), c, [a]) -> (c, [b], stopped)

        def scan(step, carry, xs):
            ys, stop = [], False
            for x in xs:  # backwards where reverse: ys line up with xs all the same
                carry, y, stop = step(carry, x)
                ys.append(y)
                if stop:
                    break
            return carry, stack(ys), stop

    Parameters
    ----------
    step
        Called with symbols, two or three times while the types of the carry are found out, not once per
        step. What it uses of the graph around it, shared variables and the variables of an outer step
        included, is captured by itself, and gradients flow through it. A row is seen as an index into its
        sequence: ``pytensor.grad(row, x)`` goes on to what that was made from. A carry is not: the step
        cannot see what ``init`` was made from.
    init
        The carry before the first step. Like ``xs``, the carry and ``y`` it is a pytree (nested
        tuples, lists, dicts, named tuples, dataclasses, None) whose leaves are variables of any type,
        shared variables, arrays or numbers; see also `lag`.

        The carry has one type throughout. A constant takes the type that the step returns, where
        that holds it exactly; a float variable takes a wider one, with a warning; a static shape that
        changes becomes unknown. A Python int is an int64, a Python float has ``pytensor.config.floatX``.
    xs
        Sequences: tensors with a leading axis, or typed lists; see also `lead`.
    length
        The number of steps, an integer or an integer scalar variable. Without it ``xs`` says it; a step
        with a stop flag needs neither: it goes on until that is raised. (In JAX ``ys`` must then not be
        read: there is no bound for how many there are.) Every sequence has exactly that many rows.
    reverse
        Whether to go from the last row to the first.
    unroll
        How many steps a backend may write out in one iteration of its loop.
    checkpoint
        What reverse mode keeps: None leaves it to the backend; ``k`` keeps the states before every
        ``k`` th step and computes the rest again; ``"sqrt"`` takes the root of the number of steps. A
        tuple has several levels: ``(10_000, 100)`` keeps every 10,000th state, and while it goes back
        through those steps every 100th of them; each level costs one more run forward.
    truncate_gradient
        How many steps, from the last one back, a gradient goes through; -1 for all.
    all_carries
        Whether to return, in the place of the final carry, the carry before each step and behind them the
        final one: each leaf has an axis of one row more than there are steps, the first of them ``init``.
        With ``reverse`` the rows line up with those of ``xs``: ``init`` is the last one. A `lag` has all
        of its values there, those of ``x0`` before those of the steps.
    strict
        Whether to refuse a step that captures variables.
    name
        For printing and for messages.
    parallel
        ``"newton"``: in JAX, find the carries of all steps at once by Newton's method, each iteration of
        which is one affine recurrence in parallel (Lim et al., 2024; Gonzalez et al., 2024). That is for
        long loops that forget where they began, on an accelerator; gradients are by the implicit
        function theorem. Native code takes the steps one by one. None leaves it to
        ``jaxify(..., parallel=)``.
    tol, max_iters, otherwise
        With ``parallel="newton"``: how little the last iteration may move the carries, relative to 1 plus
        the largest number among them (1e-10; 1e-4 where they are float32); how many iterations there are
        at most (100); and what happens where they do not do: ``"raise"``, the default, or
        ``"sequential"``, which takes the steps one by one.

    Returns
    -------
    final, ys
        The carry after the last step, and what the steps emitted: each leaf that is a tensor stacked
        along a new leading axis, any other leaf as a typed list. With no steps ``final`` is ``init``,
        and ``ys`` has no rows, of the right trailing shape.
    stopped
        Only where the step returns a stop flag: whether one was raised. The step that raises it is
        counted, and its ``y`` is kept.

    Raises
    ------
    LoopTypeError
        The step returns something else than ``(carry, y)`` or ``(carry, y, stop)``, or a carry of
        another structure or type than it got; there is neither ``xs`` nor ``length`` nor a stop flag,
        or they differ (where that is only known when the program runs, a ValueError then).
    StatefulFunctionError
        The step draws from a generator that it would have to carry.
    ConvergenceError
        When a program of JAX runs: Newton's method did not converge.
    LoopaxError
        ``strict`` is set, and the step captures variables.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import scan
    >>> final, ys = scan(lambda c, x: (c + x, c * x), 0.0, np.array([1.0, 2.0, 3.0]))
    >>> final.eval(), ys.eval()
    (array(6.), array([0., 2., 9.]))

    A loop that stops:

    >>> final, ys, stopped = scan(lambda c, _: (2 * c, c, c > 3), 1, length=10)
    >>> final.eval(), ys.eval(), stopped.eval()
    (array(8), array([1, 2, 4]), array(True))
    """
    options = make_options(name, reverse, unroll, checkpoint, truncate_gradient)
    method = _method(parallel, tol, max_iters, otherwise, options)
    options = options._replace(parallel=method)
    what = f"scan '{name}'" if name else "scan"
    fix = "It is called as step(carry, x)."
    refuse_no_function(step, f"{what}(step, init, xs)", "step", fix)

    def one_step(i: Any, carry: Any, x: Any) -> Emitted:
        return _unpacked(step(carry, x), what)

    rows = Rows(xs, what)
    is_open = length is None and not rows.leaves and not reverse
    n_steps = pt.constant(UNBOUNDED, dtype="int64") if is_open else rows.steps(length)
    found = run(
        one_step,
        init,
        rows,
        n_steps,
        options,
        what=what,
        strict=strict,
        carried=parameter(step, 0),
        all_carries=all_carries,
    )
    if method is not None:
        _refuse_in_parallel(found, what)
    if found.stopped is None:
        if is_open:
            rows.steps(None)  # says what is missing
        return found.final, found.ys  # type: ignore[return-value]
    return found  # type: ignore[return-value]


def _method(
    parallel: Any, tol: Any, max_iters: Any, otherwise: Any, options: ScanOptions
) -> Newton | None:
    """How all steps are run at once, checked."""
    given = {"tol": tol, "max_iters": max_iters, "otherwise": otherwise}
    given = {k: v for k, v in given.items() if v is not None}
    if parallel is None:
        if given:
            raise ValueError(
                f"{' and '.join(given)} go with Newton's method: scan(..., parallel='newton')."
            )
        return None
    if parallel != "newton":
        raise ValueError(
            f"parallel is {parallel!r}: of a loop it is 'newton', or None. Whether affine recurrences run "
            "in parallel is an option of the program, jaxify(..., parallel=True)."
        )
    required("parallel", "parallel='newton'", "steps one by one, parallel=None")
    method = Newton(**given)
    if tol is not None and not (isinstance(tol, float | int) and tol > 0):
        raise ValueError(f"tol is {tol!r}: it is a number above 0.")
    if not (isinstance(method.max_iters, int) and method.max_iters >= 1):
        raise ValueError(f"max_iters is {max_iters!r}: it is a number of iterations from 1 on.")
    if method.otherwise not in ("raise", "sequential"):
        raise ValueError(f"otherwise is {otherwise!r}: it is 'raise' or 'sequential'.")
    if options.checkpoint is not None:
        raise ValueError(
            "parallel='newton' takes all steps at once, and checkpoint is about the states of a loop that "
            "takes them one by one. Leave one of them out."
        )
    return method


def _refuse_in_parallel(found: Result, what: str) -> None:
    """Raise where a loop cannot take all steps at once."""
    if found.stopped is not None:
        raise LoopTypeError(
            f"{what} has parallel='newton' and a step that returns a stop flag: how many steps there are "
            "is not known before they are taken. Leave the flag out, and give the number of steps, or "
            "leave out parallel."
        )
    leaves, _ = flatten(found.final)
    for leaf, name in zip(leaves, leaf_names(found.final), strict=True):
        if not isinstance(leaf.type, DenseTensorType):
            raise LoopTypeError(
                f"{what} has parallel='newton', and carry{name} is no array but {describe(leaf)}: it "
                "cannot be known before the steps are taken. Give a loop of its own to what is no array, "
                "random draws for instance, and its rows to this one as xs."
            )


class Emitted(NamedTuple):
    """What a step returns."""

    carry: Any
    y: Any = None
    stop: Any = None


class Result(NamedTuple):
    """What a loop returns. ``stopped`` is None where it cannot stop.

    ``final`` has a row for each step, and one more, where the carries of all steps were asked for.
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

    def whole(x: Any) -> bool:
        return isinstance(x, int) and not isinstance(x, bool)

    if not (whole(unroll) and unroll >= 1):
        raise ValueError(f"unroll is {unroll!r}: it is a number of steps from 1 on.")
    if isinstance(checkpoint, list | tuple):
        levels = checkpoint = tuple(checkpoint)
    else:
        levels = () if checkpoint in (None, "sqrt") else (checkpoint,)
    whole_levels = all(whole(k) and k >= 1 for k in levels)
    if checkpoint == () or not whole_levels or [*levels] != sorted({*levels}, reverse=True):
        raise ValueError(
            f'checkpoint is {checkpoint!r}: it is None, "sqrt", or a number of steps from 1 on; for '
            "several levels a tuple of numbers, the largest first, as in (10_000, 100)."
        )
    if not (whole(truncate_gradient) and (truncate_gradient >= 1 or truncate_gradient == -1)):
        raise ValueError(
            f"truncate_gradient is {truncate_gradient!r}: it is a number of steps from 1 on, or -1 "
            "for all of them. pytensor.gradient.disconnected_grad cuts a gradient everywhere."
        )
    return ScanOptions(name, bool(reverse), unroll, checkpoint, truncate_gradient)


def run(
    step: Callable[[Any, Any, Any], Emitted],
    init: Any,
    rows: Rows,
    n_steps: Any,
    options: ScanOptions,
    *,
    what: str,
    strict: bool = False,
    go_on: Callable[[Any], Any] | None = None,
    own: Sequence[Variable] = (),
    carried: str = "carry",
    all_carries: bool = False,
) -> Result:
    """The loop of ``step(i, carry, row)``, as one `Scan`.

    Parameters
    ----------
    go_on
        Called with a carry, it says whether another step follows. It is asked before the first step
        too: where it says no there, the loop takes none.
    own
        Variables that ``step`` captures on our account, so that ``strict`` has nothing to say.
    carried
        What the function of the user's calls the carry.
    all_carries
        Whether the result has the carries of all steps, and not only the final one.
    """
    leaves, tree = flatten(init)
    names = ["carry" + name for name in leaf_names(init)]
    slots = [_slot(n, x, options) for n, x in zip(names, leaves, strict=True)]
    n_steps = pt.constant(n_steps, dtype="int64") if isinstance(n_steps, int) else n_steps
    n_steps = rows.checked(n_steps)
    last = n_steps - 1 if options.reverse else None

    def trace(enter: Callable[[Any], None]) -> Traced:
        i = INDEX_TYPE(name="i")
        enter(i if last is None else last - i)
        row_dummies = rows.dummies()
        seen = rows.as_indices(row_dummies, i)
        with explained(what), breakpoints() as conditions:
            result = step(i, tree.build([s.seen for s in slots]), rows.build(seen, i))
        carry = carry_leaves(result.carry, names, tree, what)
        ys, y_names, y_tree = variables_of(result.y, "y")
        all_of_them = with_breakpoints([*carry, *ys], conditions)
        carry, ys = all_of_them[: len(carry)], all_of_them[len(carry) :]
        closing = [] if result.stop is None else [result.stop]
        refuse_hidden_draws([*carry, *ys, *closing], age(i), what)
        return Traced(i, row_dummies, seen, carry, ys, y_names, y_tree, result.stop)

    traced = settle(slots, trace, what)
    i, stop, since = traced.i, traced.stop, age(traced.i)
    warn_of_wrong_gradients(young_nodes([*traced.carry, *traced.ys], since))
    states = [v for s in slots for v in s.states]
    inits = [v for s in slots for v in s.inits()]
    nexts = [v for s, result in zip(slots, traced.carry, strict=True) for v in s.nexts(result)]
    if go_on is not None:
        with explained(what):
            condition = go_on(tree.build([s.seen for s in slots]))
        flag = as_flag(condition, f"The condition of {what}")
        refuse_hidden_draws([flag], since, what)
        # It is traced on the dummies, so that it sees neither the initial values nor the step.
        (before,) = substitute(
            [flag], {i: pt.constant(0, dtype="int64"), **_pairs(states, inits)}, since
        )
        (after,) = substitute([flag], {i: i + 1, **_pairs(states, nexts)}, since)
        stop = pt.invert(after)
        n_steps = pt.switch(before, n_steps, pt.constant(0, dtype="int64"))

    closing = [] if stop is None else [stop]
    dummies = [i, *traced.rows, *states]
    seen_as = {v: d for v, d in zip(traced.seen, traced.rows, strict=True) if v is not d}
    known = get_underlying_scalar_constant_value(n_steps, raise_not_constant=False)
    runs = not isinstance(known, Variable) and known > 0
    carries = zip(slots, traced.carry, strict=True) if all_carries else ()
    ys = [*traced.ys, *(s.emitted(result) for s, result in carries)]
    closure = close([*nexts, *ys, *closing], dummies, since, seen_as, runs=runs)
    if strict:
        anchors = [s.anchor for s in slots if isinstance(s, Lagged)]
        ours = {n_steps, last, *own, *(leaf.x for leaf in rows.leaves), *anchors}
        refuse_captures([v for v in closure.outer if v not in ours], what)
    read = {*ancestors(closure.outs)}
    n_steps = rows.with_unread_checked(n_steps, [v not in read for v in traced.rows])
    k, y = len(nexts), len(nexts) + len(ys)
    outs = BodyOuts(closure.outs[:k], closure.outs[k:y], *closure.outs[y:])
    options = options._replace(origin=Origin(_labels(slots, traced, carried), source_line(i)))
    op = Scan.from_body(BodyArgs(i, traced.rows, states, closure.inner), outs, options)
    made = op.split_outputs(op.bind(ScanArgs(n_steps, rows.sequences(), inits, closure.outer)))
    n_done = n_steps if stop is None else made.n_done
    rest = iter(made.finals)
    finals = [s.final([next(rest) for _ in s.states], n_done) for s in slots]
    emitted, axis = len(traced.ys), rows.tree.axis_name
    final = tree.build(finals)
    if all_carries:
        after = zip(slots, made.traces[emitted:], strict=True)
        final = tree.build([s.all_rows(x, options.reverse) for s, x in after], axis)
    return Result(final, traced.ys_tree.build(made.traces[:emitted], axis), made.stopped)


def _labels(slots: Sequence[Any], traced: Traced, carried: str) -> tuple[str, ...]:
    """What the states, and the rows of the traces, are called: by their names, or by where they are."""
    paths = [carried + s.path.removeprefix("carry") for s in slots]
    named = [
        v.name if v.name and v.owner is not None and v not in traced.seen else path
        for v, path in zip([*traced.carry, *traced.ys], [*paths, *traced.y_names], strict=True)
    ]
    of_states = [name for s, name in zip(slots, named, strict=False) for _ in s.states]
    return (*of_states, *named[len(slots) :])


def parameter(f: Any, k: int) -> str:
    """The name of parameter ``k`` of the user's function ``f``, a carry; "carry" if it has none."""
    code = getattr(f, "__code__", None)
    names = () if code is None else code.co_varnames[: code.co_argcount]
    names = names[1:] if hasattr(f, "__self__") else names
    return names[k] if k < len(names) else "carry"


def _slot(name: str, x: Any, options: ScanOptions) -> Any:
    return Lagged(name, x, options.truncate_gradient) if isinstance(x, Lag) else Slot(name, x)


def _pairs(old: Sequence[Any], new: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(old, new, strict=True))


def _unpacked(result: Any, what: str) -> Emitted:
    if isinstance(result, tuple) and len(result) in (2, 3):
        flags = [as_flag(flag, f"The stop flag of {what}") for flag in result[2:]]
        return Emitted(*result[:2], *flags)
    if isinstance(result, tuple):
        found = f"a tuple of {len(result)}"
    elif isinstance(result, Variable):
        found = f"one variable, {describe(result)}"
    else:
        found = f"{result!r} of type {type(result).__name__}"
    raise LoopTypeError(
        f"The step of {what} returns {found}. A step returns a tuple, (carry, y) or (carry, y, stop):\n\n"
        "    def step(carry, x):\n"
        "        new = carry + x\n"
        "        return new, new  # or new, None, where nothing is collected"
    )
