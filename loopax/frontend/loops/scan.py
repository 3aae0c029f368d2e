"""`scan`: a loop from a Python function of one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.type import DenseTensorType

from loopax.base.errors import LoopTypeError, describe
from loopax.base.extensions import required
from loopax.frontend.loops import keywords
from loopax.frontend.loops.leaves import as_flag
from loopax.frontend.loops.loop import Emitted, Result, build_loop, make_options, parameter
from loopax.frontend.loops.rows import Rows
from loopax.frontend.loops.trees import flatten, leaf_names
from loopax.frontend.mistakes import label_of, refuse_no_step, refusing_arguments
from loopax.ir.ops.calling_convention import UNBOUNDED, Checkpoint, Newton, ScanOptions

# The type of the results of the step and of the loop, which have one structure. The step's arguments
# are not typed: mypy would infer int for the c of `lambda c, x: (2 * c, x)`.
R = TypeVar("R", bound=tuple[Any, Any] | tuple[Any, Any, Any])


@refusing_arguments(keywords.SCAN)
def scan(
    step: Callable[[Any, Any], R],
    init: object,
    xs: object = None,
    length: TensorLike | None = None,
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
    """Carry a state through the rows of ``xs``, and stack the values that the steps emit.

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
        A function of a carry and a row, called with symbols two or three times until the types of the
        carry settle, not once per step. Variables that it uses from outside, shared variables and
        variables of an outer step included, are captured automatically, and gradients flow through
        them. A row is an index into its sequence: ``pytensor.grad(row, x)`` continues to the
        sequence's ancestors. A carry is not: the step cannot see the ancestors of ``init``.
    init
        The carry before the first step. Like ``xs``, the carry and ``y`` it is a pytree (nested
        tuples, lists, dicts, named tuples, dataclasses, None) whose leaves are variables of any type,
        shared variables, arrays or numbers; see also `lag`.

        The carry has one type throughout. A constant takes the type that the step returns, if that
        holds it exactly; a float variable takes a wider one, with a warning; a static shape that
        changes becomes unknown. A Python int is an int64, a Python float has
        ``pytensor.config.floatX``.
    xs
        Sequences: tensors with a leading axis, or typed lists; see also `lead`.
    length
        The number of steps, an integer or an integer scalar variable. Without it ``xs`` determines the
        number; a step with a stop flag needs neither: the loop goes on until the flag is raised. (In
        JAX ``ys`` must then not be read: their number has no bound.) Every sequence has exactly that
        many rows.
    reverse
        Whether to go from the last row to the first.
    unroll
        The number of steps that a backend may unroll in one iteration of its loop.
    checkpoint
        The states that reverse mode keeps: None leaves it to the backend; ``k`` keeps one state for
        each ``k`` steps and computes the others again; ``"sqrt"`` uses the square root of the number of
        steps. A tuple has several levels: ``(10_000, 100)`` keeps every 10,000th state, and every 100th
        state while it goes back through those steps. Each level costs one more forward run.
    truncate_gradient
        The number of last steps through which a gradient goes; -1 for all.
    all_carries
        Whether to return, in place of the final carry, the carry before each step followed by the final
        one: each leaf has a leading axis with one row more than the number of steps, and ``init``
        first. With ``reverse`` the rows line up with ``xs``, and ``init`` is last. A `lag` has all of
        its values there, ``x0`` before the values of the steps.
    strict
        Whether to refuse a step that captures variables.
    name
        A name for printing and for messages.
    parallel
        ``"newton"``: in JAX, find the carries of all steps at once by Newton's method, each iteration
        of which is one affine recurrence in parallel (Lim et al., 2024; Gonzalez et al., 2024). It
        suits long loops that forget their start, on an accelerator; gradients use the implicit function
        theorem. Native code takes the steps one by one. None leaves it to ``jaxify(..., parallel=)``.
    tol, max_iters, otherwise
        With ``parallel="newton"``: the largest allowed change of the carries in the last iteration,
        relative to 1 plus the largest number among them (1e-10; 1e-4 for float32); the maximum number
        of iterations (100); and the action without convergence. The action is ``"raise"``, the default,
        or ``"sequential"``, which takes the steps one by one.

    Returns
    -------
    final, ys
        The carry after the last step, and the emitted values: each leaf that is a tensor stacked along
        a new leading axis, any other leaf as a typed list. With no steps ``final`` is ``init``, and
        ``ys`` has no rows, of the right trailing shape.
    stopped
        Only if the step returns a stop flag: whether one was raised. The step that raises it counts,
        and its ``y`` is kept.

    Raises
    ------
    LoopTypeError
        The step does not return ``(carry, y)`` or ``(carry, y, stop)``, or its carry has another
        structure or type than ``init``. Or ``xs``, ``length`` and a stop flag are all missing, or the
        lengths differ (a ValueError, if that is known only when the program runs).
    StatefulFunctionError
        The step draws from a generator that it would have to carry.
    ConvergenceError
        Raised when a JAX program runs: Newton's method did not converge.
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
    label = label_of("scan", name)
    refuse_no_step(step, f"{label}(step, init, xs)", "step", ["carry", "x"])

    def one_step(i: Variable, carry: object, x: object) -> Emitted:
        return _unpacked(step(carry, x), label)

    rows = Rows(xs, label)
    is_open = length is None and not rows.leaves and not reverse
    n_steps = pt.constant(UNBOUNDED, dtype="int64") if is_open else rows.steps(length)
    result = build_loop(
        one_step,
        init,
        rows,
        n_steps,
        options,
        label=label,
        strict=strict,
        carried=parameter(step, 0),
        all_carries=all_carries,
    )
    if method is not None:
        _refuse_in_parallel(result, label)
    if result.stopped is None:
        if is_open:
            rows.steps(None)  # raises
        return result.final, result.ys  # type: ignore[return-value]
    return result  # type: ignore[return-value]


def _method(
    parallel: str | None, tol: Any, max_iters: Any, otherwise: Any, options: ScanOptions
) -> Newton | None:
    """The options of Newton's method, checked; None without it."""
    settings = {"tol": tol, "max_iters": max_iters, "otherwise": otherwise}
    settings = {k: v for k, v in settings.items() if v is not None}
    if parallel is None:
        if settings:
            raise ValueError(
                f"{' and '.join(settings)} apply only to Newton's method: scan(..., "
                "parallel='newton')."
            )
        return None
    if parallel != "newton":
        raise ValueError(
            f"parallel must be 'newton' or None for a loop, got {parallel!r}. Whether affine "
            "recurrences run in parallel is an option of the program, jaxify(..., parallel=True)."
        )
    required("parallel", "parallel='newton'", "steps one by one, parallel=None")
    method = Newton(**settings)
    if tol is not None and not (isinstance(tol, float | int) and tol > 0):
        raise ValueError(f"tol must be a number above 0, got {tol!r}.")
    if not (isinstance(method.max_iters, int) and method.max_iters >= 1):
        raise ValueError(f"max_iters must be a number of iterations from 1 on, got {max_iters!r}.")
    if method.otherwise not in ("raise", "sequential"):
        raise ValueError(f"otherwise must be 'raise' or 'sequential', got {otherwise!r}.")
    if options.checkpoint is not None:
        raise ValueError(
            "parallel='newton' takes all steps at once, but checkpoint stores the states of a loop "
            "that takes them one by one. Leave one of them out."
        )
    return method


def _refuse_in_parallel(result: Result, label: str) -> None:
    """Raise if a loop cannot take all steps at once."""
    if result.stopped is not None:
        raise LoopTypeError(
            f"{label} has parallel='newton', but its step returns a stop flag, so the number of steps "
            "is not known in advance. Leave out the flag and pass the number of steps, or leave out "
            "parallel."
        )
    leaves, _ = flatten(result.final)
    for leaf, name in zip(leaves, leaf_names(result.final), strict=True):
        if not isinstance(leaf.type, DenseTensorType):
            raise LoopTypeError(
                f"{label} has parallel='newton', but carry{name} is {describe(leaf)}, not an array: it "
                "cannot be known before the steps are taken. Compute values that are not arrays, for "
                "example random draws, in a separate loop, and pass its rows to this one as xs."
            )


def _unpacked(result: object, label: str) -> Emitted:
    if isinstance(result, tuple) and len(result) in (2, 3):
        flags = [as_flag(flag, f"The stop flag of {label}") for flag in result[2:]]
        return Emitted(*result[:2], *flags)
    if isinstance(result, tuple):
        description = f"a tuple of {len(result)}"
    elif isinstance(result, Variable):
        description = f"one variable, {describe(result)}"
    else:
        description = f"{result!r} of type {type(result).__name__}"
    raise LoopTypeError(
        f"The step of {label} returns {description}. A step returns a tuple, (carry, y) or (carry, y, "
        "stop):\n"
        "\n"
        "    def step(carry, x):\n"
        "        new = carry + x\n"
        "        return new, new  # or new, None, if nothing is collected"
    )
