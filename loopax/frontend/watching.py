"""`watch` and `breakpoint_if`: marks on values of a program to observe, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import Any, TypeVar

from pytensor.graph.basic import Variable
from pytensor.tensor.type import DenseTensorType

from loopax.base.errors import LoopTypeError
from loopax.frontend.loops.leaves import as_flag, as_variable
from loopax.frontend.loops.trees import flatten, leaf_names
from loopax.ir.ops.watch import Breakpoint, Watch
from loopax.ir.sequences import with_items

T = TypeVar("T")


def watch(value: T, name: str) -> T:
    """Mark ``value``, so that `loopax.watched` records it under ``name`` with a row for each step;
    return it.

    ::

        watch :: (a, str) -> a

    The program must continue with the result: ``s = watch(s, "s")``. It works in loops, branches,
    functions, and in the steps of ``pytensor.scan``. Without `watched`, the program does no work for it.

    Parameters
    ----------
    value
        A tensor, or a pytree of tensors, whose leaves are named ``name['mean']``, ``name[0]``.
    name
        The name in the record. Several values may share a name if they are inside the same number of
        loops.

    Raises
    ------
    LoopTypeError
        A leaf is not a tensor, or ``name`` is not a string.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> import loopax
    >>> x = pt.dvector("x")
    >>> total, _ = loopax.scan(lambda s, x: (loopax.watch(s + x, "sum"), None), 0.0, x)
    >>> f = loopax.jaxify([x], total, backend="numba")
    >>> f([1.0, 2.0, 3.0])
    array(6.)
    >>> total, record = loopax.watched(f)([1.0, 2.0, 3.0])
    >>> record["sum"].values, record["sum"].steps
    (array([1., 3., 6.]), array([0, 1, 2]))
    """
    if not isinstance(name, str):
        raise LoopTypeError(
            f"watch takes the name as its second argument, watch(x, 'x'), got {name!r}."
        )
    leaves, tree = flatten(value)
    named = [f"{name}{path}" for path in leaf_names(value)]
    return tree.build([_watched(x, n) for x, n in zip(leaves, named, strict=True)])


def _watched(x: object, name: str) -> Any:
    v = as_variable(x, name)
    if not isinstance(v.type, DenseTensorType):
        raise LoopTypeError(
            f"'{name}' is {v.type}: only tensors can be watched, for example watch(x.sum(), 'total')."
        )
    return Watch(name)(v)


def breakpoint_if(condition: object, value: object = None) -> Any:
    """End the record of `loopax.watched` at the first step in which ``condition`` holds.

    The last rows of the record then lead to that step. The program itself goes on. Without `watched`,
    it does no work for the condition.

    Parameters
    ----------
    condition
        A bool scalar.
    value
        A value with which the program continues, ``s = breakpoint_if(s > 100, s)``: required in the
        step of ``pytensor.scan``, optional in steps and branches of loopax.

    Returns
    -------
    ``value``.

    Raises
    ------
    LoopTypeError
        The condition is not a bool scalar, or a required value is missing.

    Examples
    --------
    >>> import loopax, pytensor.tensor as pt
    >>> x = pt.dscalar("x")
    >>> def step(s, _):
    ...     s = loopax.watch(s * x, "s")
    ...     loopax.breakpoint_if(s > 10.0)
    ...     return s, None
    >>> f = loopax.jaxify([x], loopax.scan(step, 1.0, length=100)[0], backend="numba")
    >>> _, record = loopax.watched(f, last=2)(2.0)
    >>> record["s"].values, record["s"].steps
    (array([ 8., 16.]), array([2, 3]))
    """
    flag = as_flag(condition, "The condition of breakpoint_if")
    if value is not None:
        return Breakpoint()(as_variable(value, "value"), flag)
    if not _open.stack:
        raise LoopTypeError(
            "breakpoint_if was called outside the steps and branches of loopax, so no program "
            "contains it. Pass it a value with which the program continues, s = breakpoint_if(s > "
            "100, s)."
        )
    _open.stack[-1].append(flag)
    return None


class _Open(local):
    """The conditions of the steps and branches being traced, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[list[Any]] = []


_open = _Open()


@contextmanager
def breakpoints() -> Iterator[list[Any]]:
    """A block that collects the conditions of breakpoints while a step or a branch is traced."""
    conditions: list[Any] = []
    _open.stack.append(conditions)
    try:
        yield conditions
    finally:
        _open.stack.pop()


def with_breakpoints(outs: Sequence[Variable], conditions: Sequence[Variable]) -> list[Variable]:
    """``outs`` of a step or branch, one of which carries the ``conditions``.

    Raises `LoopTypeError` if none of them is a tensor.
    """
    results = list(outs)
    if not conditions:
        return results
    tensor_positions = [k for k, v in enumerate(results) if isinstance(v.type, DenseTensorType)]
    if not tensor_positions:
        raise LoopTypeError(
            "breakpoint_if was called in a step or branch that returns no tensor. Return one with it, "
            "such as a counter."
        )
    v: Any = results[tensor_positions[0]]
    for condition in conditions:
        v = Breakpoint()(v, condition)
    return with_items(results, tensor_positions[:1], [v])
