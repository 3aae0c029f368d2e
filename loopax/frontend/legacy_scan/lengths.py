"""How many rows an array has, as far as its graph shows: a number plus a sum of variables.

``Shape(x)[0] - 1 + 1`` and ``set_subtensor(zeros(x.shape[0])[1:], y)[::-1].shape[0]`` are both the
length of ``x``. The number of steps of a gradient, and the buffers it writes to, are such expressions
of the length of a forward trace; where they are equal a buffer is known to have no further rows.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Add, Cast, Second, Sub
from pytensor.tensor.basic import Alloc, AllocEmpty, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor

from loopax.ir import Scan
from loopax.ir.compat import joined_rows

# The length of an array that nothing more is known about, or a number: how often it is in the sum.
_Term = Variable | tuple[str, Variable]


class Count:
    """``number + sum(k * term)``, two of which can be compared."""

    def __init__(self, number: int, terms: dict[_Term, int] | None = None) -> None:
        self.number = number
        self.terms = {t: k for t, k in (terms or {}).items() if k}

    def plus(self, other: Count, times: int = 1) -> Count:
        terms = dict(self.terms)
        for t, k in other.terms.items():
            terms[t] = terms.get(t, 0) + times * k
        return Count(self.number + times * other.number, terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Count) and (self.number, self.terms) == (other.number, other.terms)

    __hash__ = None  # type: ignore[assignment]


def count(v: Any) -> Count:
    """What an integer, or an integer scalar of a graph, is."""
    if isinstance(v, int):
        return Count(v)
    v = uncast(v)
    if isinstance(v, Constant) and v.type.ndim == 0:
        return Count(int(v.data))
    node = v.owner
    if node is None:
        return Count(0, {v: 1})
    scalar_op = getattr(node.op, "scalar_op", None)
    if isinstance(scalar_op, Add) and v.type.ndim == 0:
        total = Count(0)
        for term in node.inputs:
            total = total.plus(count(term))
        return total
    if isinstance(scalar_op, Sub) and v.type.ndim == 0:
        return count(node.inputs[0]).plus(count(node.inputs[1]), -1)
    if isinstance(node.op, Shape_i) and node.op.i == 0:
        return rows_of(node.inputs[0])
    if isinstance(node.op, Subtensor) and _is_shape(node.inputs[0]):
        (index,) = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        if not isinstance(index, slice) and constant(index) == 0:
            return rows_of(node.inputs[0].owner.inputs[0])
    return Count(0, {v: 1})


def rows_of(x: Any) -> Count:
    """The length of the first axis of ``x``."""
    if x.type.shape[0] is not None:
        return Count(x.type.shape[0])
    node = x.owner
    op: Any = None if node is None else node.op
    if isinstance(op, Alloc):
        return count(node.inputs[1])
    if isinstance(op, AllocEmpty):
        return count(node.inputs[0])
    if isinstance(op, IncSubtensor):
        return rows_of(node.inputs[0])
    if isinstance(op, Subtensor) and (found := _sliced(node)) is not None:
        return found
    if isinstance(op, Scan) and x in (outs := op.split_outputs(node.outputs)).traces:
        return count(node.inputs[0] if outs.n_done is None else outs.n_done)
    if isinstance(getattr(op, "scalar_op", None), Second):
        return rows_of(node.inputs[0])
    if (pieces := joined_rows(node)) is not None:
        total = Count(0)
        for piece in pieces:
            total = total.plus(rows_of(piece))
        return total
    return Count(0, {("rows", x): 1})


def constant(v: Any) -> int | None:
    """The integer that ``v``, a number, a scalar or None, is known to be."""
    if v is None:
        return None
    found = count(v)
    return None if found.terms else found.number


def uncast(v: Any) -> Any:
    """``v`` without conversions between a number and a tensor, or from one dtype to another."""
    while getattr(v, "owner", None) is not None:
        op = v.owner.op
        is_cast = isinstance(op, Elemwise) and isinstance(op.scalar_op, Cast)
        if not is_cast and not isinstance(op, ScalarFromTensor | TensorFromScalar):
            break
        v = v.owner.inputs[0]
    return v


def plain(n: Any) -> Any:
    """``n``, or the variable that it comes to: ``Shape(trace)[0]`` is a loop's ``n_done``."""
    found = count(n)
    if found.number or list(found.terms.values()) != [1]:
        return n
    (term,) = found.terms
    return term if isinstance(term, Variable) and term.type.dtype == "int64" else n


def rows_exactly(x: Any, n: Any) -> Any:
    """``x[:n]``, sliced no further where the graph shows that it is ``x`` already."""
    wanted = count(n)
    x = _behind(x, None)
    while (y := _behind(x, wanted)) is not x and (
        rows_of(y) == wanted or _behind(y, wanted) is not y
    ):
        x = _behind(y, None)
    is_cut = rows_of(x) == wanted or _behind(x, wanted) is not x
    return x if is_cut else x[:n]


def _behind(x: Any, n: Count | None) -> Any:
    """``y`` where ``x`` is ``y[:n]`` (``y[0:]``, if ``n`` is None), else ``x``."""
    if x.owner is None or not isinstance(x.owner.op, Subtensor):
        return x
    first, *rest = indices_from_subtensor(x.owner.inputs[1:], x.owner.op.idx_list)
    if rest or not isinstance(first, slice) or first.step is not None:
        return x
    if first.start is not None and constant(first.start) != 0:
        return x
    is_it = first.stop is None if n is None else first.stop is not None and count(first.stop) == n
    return x.owner.inputs[0] if is_it else x


def _sliced(node: Any) -> Count | None:
    """The number of rows of ``x[::-1]``, or of ``x[a:]``, ``x[:-b]``, ``x[a:-b]``."""
    rows = rows_of(node.inputs[0])
    first, *_ = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
    if not isinstance(first, slice):
        return None
    start = 0 if first.start is None else constant(first.start)
    stop = 0 if first.stop is None else constant(first.stop)
    step = 1 if first.step is None else constant(first.step)
    if step == -1 and first.start is None and first.stop is None:
        return rows
    if step != 1 or start is None or start < 0 or (stop is None and start):
        return None
    if first.stop is not None and (stop is None or stop > 0):
        return rows if stop is None and count(first.stop) == rows else None
    if first.stop is not None and stop == 0:
        return Count(0)
    # A number of rows is not negative, so that a sum of some and of a number is that number or more.
    removed = start - (stop or 0)
    is_enough = rows.number >= removed and all(k > 0 for k in rows.terms.values())
    return rows.plus(Count(-removed)) if is_enough else None


def _is_shape(v: Any) -> bool:
    return v.owner is not None and isinstance(v.owner.op, Shape)
