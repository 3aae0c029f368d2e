"""Special cases of `scan`.

- `map` has no carry, `reduce` collects nothing;
- `filter` is a map to flags, and the rows where they are true;
- `fori_loop` has the index for a sequence, and collects nothing;
- `while_loop` has no sequence, and a condition that stops it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.type import TensorType
from pytensor.typed_list import append
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import LoopTypeError, describe
from loopax.frontend.loops.branches import cond
from loopax.frontend.loops.leaves import as_flag, as_variable
from loopax.frontend.loops.loop import Emitted, build_loop, make_options, parameter
from loopax.frontend.loops.rows import Rows
from loopax.frontend.mistakes import refuse_no_function
from loopax.ir.ops.calling_convention import INDEX_TYPE, UNBOUNDED, Checkpoint

# The type of the results of a step and of the loop. Arguments are not typed: mypy would infer int for
# the c of `lambda c: 2 * c`.
C = TypeVar("C")
Y = TypeVar("Y")


def map(
    f: Callable[[Any], Y],
    xs: object,
    length: TensorLike | None = None,
    *,
    unroll: int = 1,
    strict: bool = False,
    name: str | None = None,
) -> Y:
    """Apply ``f`` to each row.

    ::

        map :: (a -> b, [a]) -> [b]

        def map(f, xs):
            return stack([f(x) for x in xs])

    Parameters
    ----------
    f
        From a row to a pytree.
    xs, length, unroll, strict, name
        As in `scan`.

    Raises
    ------
    LoopTypeError, StatefulFunctionError, LoopaxError
        As in `scan`.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from loopax import map
    >>> map(lambda x: {"sum": x.sum(), "last": x[-1]}, np.arange(6.0).reshape(3, 2))["sum"].eval()
    array([1., 5., 9.])
    """
    label = f"map '{name}'" if name else "map"
    rows = Rows(xs, label)
    options = make_options(name, unroll=unroll)
    return build_loop(
        lambda i, carry, x: Emitted(None, f(x)),
        None,
        rows,
        rows.steps(length),
        options,
        label=label,
        strict=strict,
    ).ys


def reduce(
    f: Callable[[Any, Any], C],
    init: object,
    xs: object,
    length: TensorLike | None = None,
    *,
    reverse: bool = False,
    unroll: int = 1,
    checkpoint: Checkpoint = None,
    truncate_gradient: int = -1,
    strict: bool = False,
    name: str | None = None,
) -> C:
    """Fold the rows into a carry; return the carry after the last row.

    ::

        reduce :: ((c, a) -> c, c, [a]) -> c

        def reduce(f, carry, xs):
            for x in xs:
                carry = f(carry, x)
            return carry

    Parameters
    ----------
    f
        From a carry and a row to a carry.
    init, xs, length, reverse, unroll, checkpoint, truncate_gradient, strict, name
        As in `scan`.

    Raises
    ------
    LoopTypeError, StatefulFunctionError, LoopaxError
        As in `scan`.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from loopax import reduce
    >>> reduce(pt.maximum, 0.0, np.array([1.0, 3.0, 2.0])).eval()
    array(3.)
    """
    label = f"reduce '{name}'" if name else "reduce"
    rows = Rows(xs, label)
    options = make_options(name, reverse, unroll, checkpoint, truncate_gradient)
    return build_loop(
        lambda i, carry, x: Emitted(f(carry, x)),
        init,
        rows,
        rows.steps(length),
        options,
        label=label,
        strict=strict,
        carried=parameter(f, 0),
    ).final


def filter(
    pred: Callable[[Any], Any], xs: object, *, strict: bool = False, name: str | None = None
) -> Any:
    """Select the rows for which ``pred`` is true.

    ::

        filter :: (a -> bool, [a]) -> [a]

        def filter(pred, xs):
            return stack([x for x in xs if pred(x)])

    Their number is known only when the program runs. PyTensor, native code and a direct call of a JAX
    function return an array of that length; under ``jax.jit`` the result is a `PaddedArray`.

    Parameters
    ----------
    pred
        From a row to a bool scalar.
    xs
        A pytree of tensors or typed lists, all with the same number of rows.
    strict, name
        As in `scan`.

    Raises
    ------
    LoopTypeError
        ``pred`` does not return a bool scalar, or ``xs`` contains a `lead`; and as in `scan`.
    StatefulFunctionError, LoopaxError
        As in `scan`.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import filter
    >>> filter(lambda x: x > 1, np.array([1.0, 3.0, 2.0])).eval()
    array([3., 2.])
    """
    label = f"filter '{name}'" if name else "filter"
    rows = Rows(xs, label)
    for leaf in rows.leaves:
        if leaf.marked:
            raise LoopTypeError(
                f"{leaf.name} is a lead, but {label} returns rows of xs. Take the rows first, "
                "map(lambda x: x, lead(xs, [0, 1])), and filter the result."
            )

    def flag(i: Variable, carry: object, x: object) -> Emitted:
        return Emitted(None, as_flag(pred(x), f"What the predicate of {label} returns"))

    is_kept = build_loop(
        flag, None, rows, rows.steps(None), make_options(name), label=label, strict=strict
    ).ys
    return rows.tree.build([_chosen(leaf.x, is_kept) for leaf in rows.leaves])


def _chosen(x: Any, is_kept: Variable) -> Any:
    if not isinstance(x.type, TypedListType):
        return x[pt.nonzero(is_kept)[0]]
    empty = x[:0]
    return reduce(
        lambda found, row: cond(row[1], lambda: append(found, row[0]), lambda: found),
        empty,
        (x, is_kept),
    )


def fori_loop(
    lo: TensorLike,
    hi: TensorLike,
    body: Callable[[Any, Any], C],
    init: object,
    max_steps: TensorLike | None = None,
    *,
    unroll: int = 1,
    checkpoint: Checkpoint = None,
    truncate_gradient: int = -1,
    strict: bool = False,
    name: str | None = None,
) -> C:
    """Loop over the integers from ``lo`` to ``hi - 1``.

    ::

        fori_loop :: (int, int, (int, c) -> c, c) -> c

        def fori_loop(lo, hi, body, carry, max_steps=infinity):
            for i in range(lo, min(hi, lo + max_steps)):
                carry = body(i, carry)
            return carry

    Parameters
    ----------
    lo, hi
        Integers or integer scalar variables; there is no step if ``hi <= lo``.
    body
        From the index, an int64 scalar, and a carry to a carry.
    max_steps
        A bound on the number of steps, an integer or an integer scalar variable. Reverse mode in JAX's
        operations (``jaxify(..., loops="xla")``, a GPU) needs it if ``hi - lo`` is known only when the
        program runs, and nothing in the program limits it. Reverse mode stores about the square root of
        ``max_steps`` states, and takes time in proportion to the steps taken. The index of an enclosing
        loop has its own bound, and so has ``pt.minimum(n, 100)``.
    init, unroll, checkpoint, truncate_gradient, strict, name
        As in `scan`.

    Raises
    ------
    LoopTypeError
        A bound is not an integer scalar; and as in `scan`.
    StatefulFunctionError, LoopaxError
        As in `scan`.

    Examples
    --------
    >>> from loopax import fori_loop
    >>> fori_loop(1, 6, lambda i, c: c * i, 1).eval()
    array(120)
    """
    label = f"fori_loop '{name}'" if name else "fori_loop"
    refuse_no_function(
        body, f"{label}(lo, hi, body, init)", "body", "It is called as body(i, carry)."
    )
    first, end = _bound(lo, "lo", label), _bound(hi, "hi", label)
    limit = None if max_steps is None else _max_steps(max_steps, label)
    if isinstance(first, int) and isinstance(end, int) and isinstance(limit, int | None):
        n_steps: Any = max(end - first, 0)
        n_steps = n_steps if limit is None else min(n_steps, limit)
    else:
        n_steps = pt.maximum(pt.as_tensor(end) - first, 0)
        n_steps = n_steps if limit is None else pt.minimum(n_steps, limit)
        n_steps = INDEX_TYPE.filter_variable(pt.cast(n_steps, "int64"))
    return build_loop(
        lambda i, carry, x: Emitted(body(i if first == 0 else i + first, carry)),
        init,
        Rows(None, label),
        n_steps,
        make_options(name, False, unroll, checkpoint, truncate_gradient),
        label=label,
        strict=strict,
        carried=parameter(body, 1),
        own_captures=[] if isinstance(first, int) else [first],
    ).final


def _bound(x: Any, path: str, label: str) -> Any:
    """An int, or an int64 scalar."""
    v = as_variable(x, path)
    if (
        not isinstance(v.type, TensorType)
        or v.type.ndim
        or v.type.dtype not in pt.type.integer_dtypes
    ):
        raise LoopTypeError(
            f"{path} of {label} must be an integer or an integer scalar variable, got {describe(v)}."
        )
    return pt.cast(v, "int64") if isinstance(x, Variable) else int(x)


def _max_steps(x: object, label: str) -> Any:
    """A bound on the number of steps, from 0 on where it is known."""
    limit = _bound(x, "max_steps", label)
    if isinstance(limit, int) and limit < 0:
        raise LoopTypeError(
            f"max_steps of {label} must be a number of steps from 0 on, got {limit}."
        )
    return limit


def while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], C],
    init: object,
    max_steps: TensorLike | None = None,
    *,
    checkpoint: Checkpoint = None,
    strict: bool = False,
    name: str | None = None,
) -> C:
    """Loop while ``cond`` of the carry holds.

    ::

        while_loop :: (c -> bool, c -> c, c) -> c

        def while_loop(cond, body, carry, max_steps=infinity):
            n = 0
            while n < max_steps and cond(carry):
                carry, n = body(carry), n + 1
            return carry

    Parameters
    ----------
    cond
        From a carry to a bool scalar.
    body
        From a carry to a carry.
    max_steps
        A bound on the number of steps, an integer or an integer scalar variable. A gradient
        (``pytensor.grad``, `loopax.grad`) needs it, and costs time and memory in proportion to it, not
        to the steps taken.
    init, checkpoint, strict, name
        As in `scan`.

    Raises
    ------
    LoopTypeError
        ``cond`` does not return a bool scalar; and as in `scan`.
    StatefulFunctionError, LoopaxError
        As in `scan`.

    Examples
    --------
    >>> from loopax import while_loop
    >>> while_loop(lambda c: c < 100, lambda c: 2 * c, 3).eval()
    array(192)
    """
    label = f"while_loop '{name}'" if name else "while_loop"
    for function, role in ((cond, "cond"), (body, "body")):
        fix = f"It is called as {role}(carry)."
        refuse_no_function(function, f"{label}(cond, body, init)", role, fix)
    if max_steps is None:
        n_steps: Any = pt.constant(UNBOUNDED, name="UNBOUNDED", dtype="int64")
    else:
        n_steps = _max_steps(max_steps, label)
    return build_loop(
        lambda i, carry, x: Emitted(body(carry)),
        init,
        Rows(None, label),
        n_steps,
        make_options(name, checkpoint=checkpoint),
        label=label,
        strict=strict,
        carried=parameter(body, 0),
        go_on=cond,
    ).final
