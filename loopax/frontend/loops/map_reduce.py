"""Special cases of `scan` that loop over rows.

- `map` has no carry, `reduce` collects nothing;
- `filter` is a map to flags, and the rows where they are true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.typed_list import append
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import LoopTypeError
from loopax.frontend.loops import keywords
from loopax.frontend.loops.branches import cond
from loopax.frontend.loops.leaves import as_flag
from loopax.frontend.loops.loop import Emitted, build_loop, make_options, parameter
from loopax.frontend.loops.rows import Rows
from loopax.frontend.mistakes import label_of, refuse_no_step, refusing_arguments
from loopax.ir.ops.calling_convention import Checkpoint

# The type of the results of a step and of the loop. Arguments are not typed: mypy would infer int for
# the c of `lambda c: 2 * c`.
C = TypeVar("C")
Y = TypeVar("Y")


@refusing_arguments(keywords.MAP)
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
    label = label_of("map", name)
    refuse_no_step(f, f"{label}(f, xs)", "f", ["x"])
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


@refusing_arguments(keywords.REDUCE)
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
    label = label_of("reduce", name)
    refuse_no_step(f, f"{label}(f, init, xs)", "f", ["carry", "x"])
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


@refusing_arguments(keywords.FILTER)
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
    label = label_of("filter", name)
    refuse_no_step(pred, f"{label}(pred, xs)", "pred", ["x"])
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
        lambda kept, row: cond(row[1], lambda: append(kept, row[0]), lambda: kept),
        empty,
        (x, is_kept),
    )
