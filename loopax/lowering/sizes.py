"""Lengths and numbers of steps as affine expressions, so that a pass can prove what it needs of them.

    x[1:].shape[0] + 1  ->  length of x        where x has a row
    alloc(0, n + 1)     ->  n + 1 rows

A `Size` is ``c + sum of k * atom``; an atom is a variable, or the length of one along an axis, that
nothing more is known of. Two Sizes that are equal are equal in every run. What cannot be followed is an
atom, so that nothing is ever claimed that does not hold.

Known of atoms: a length is 0 or more, and so is a number of steps of a loop in the graph, since a loop
that is asked for fewer raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    ARange,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor
from pytensor.typed_list import length as list_length

from loopax.ir import Scan
from loopax.ir.compat import joined_rows
from loopax.ir.rows import FitRows, KeepRows
from loopax.lowering.loop_sizes import LoopSizes

_DEPTH = 100  # how far a question is followed: passes ask in topological order, so that few go far
_WIDE = (
    "int64",
    "int32",
)  # shorter integers, and those below zero, wrap around where a length does not


class Length(NamedTuple):
    """The length of a variable along an axis, as an atom."""

    of: Variable
    axis: int


class Clipped(NamedTuple):
    """The larger (``largest``) or smaller of two sizes, as an atom."""

    largest: bool
    a: Size
    b: Size


@dataclass(frozen=True)
class Size:
    """``offset`` and the atoms, with how often each counts."""

    terms: frozenset[tuple[Any, int]] = frozenset()
    offset: int = 0

    @property
    def constant(self) -> int | None:
        """The number that it is, None where it is not the same in every run."""
        return None if self.terms else self.offset

    def __add__(self, other: Size | int) -> Size:
        if isinstance(other, int):
            return Size(self.terms, self.offset + other)
        counts = dict(self.terms)
        for atom, k in other.terms:
            counts[atom] = counts.get(atom, 0) + k
        left = frozenset((atom, k) for atom, k in counts.items() if k)
        return Size(left, self.offset + other.offset)

    def __mul__(self, k: int) -> Size:
        if not k:
            return Size()
        return Size(frozenset((atom, k * n) for atom, n in self.terms), k * self.offset)

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size | int) -> Size:
        return self + -other


class Sizes:
    """What is known of the sizes in one graph. Answers are kept: make a new one for a changed graph.

    Parameters
    ----------
    graph
        The numbers of steps of the loops in it are known to be 0 or more. Without it only what holds
        whichever of the loops are there.
    """

    def __init__(self, graph: AbstractFunctionGraph | None = None) -> None:
        self._known: dict[Any, Size] = {}
        self._least: dict[Any, int] = {}
        self._loops: dict[Any, LoopSizes] = {}
        self._variables: dict[Size, Any] = {}
        self._depth = 0
        self._learns = graph is not None
        loops = [] if graph is None else [n for n in graph.toposort() if isinstance(n.op, Scan)]
        for node in loops:
            self._steps(node)
        self._known.clear()  # what was asked before all of them were known

    # -- questions -------------------------------------------------------------------------------

    def of(self, v: Any) -> Size:
        """The value of ``v``, an integer scalar: a number, a tensor or PyTensor's scalar."""
        if not isinstance(v, Variable):
            return Size(offset=int(v))
        return self._asked(v, partial(self._value, v), v)

    def length(self, x: Any, axis: int = 0) -> Size:
        """The length of ``x``, a tensor or a typed list, along ``axis``."""
        static = getattr(x.type, "shape", None)
        if static is not None and static[axis] is not None:
            return Size(offset=static[axis])
        atom = Length(x, axis)
        return self._asked(atom, partial(self._length, x, axis), atom)

    def at_least(self, size: Size, k: int = 0) -> bool:
        """Whether ``size >= k`` in every run, as far as can be told."""
        return self._at_least(size - k, 4)

    def learn(self, size: Size, least: int) -> None:
        """From here on ``size >= least`` is known: an atom and a number, nothing else is kept."""
        if len(size.terms) == 1:
            ((atom, k),) = size.terms
            if k == 1:
                bound = least - size.offset
                self._least[atom] = max(self._least.get(atom, bound), bound)

    def variable(self, size: Size) -> Any:
        """``size`` as an int64 scalar, one for each."""
        if size not in self._variables:
            self._variables[size] = self._written(size)
        return self._variables[size]

    def first(self, size: Size, v: Any) -> Any:
        """The first variable that was made or asked for that is ``size``; it may be ``v``."""
        return self._variables.setdefault(size, v)

    def _written(self, size: Size) -> Any:
        """One term at a time, so that what is left of each is kept as well."""
        if not size.terms:
            return pt.constant(size.offset, dtype="int64")
        if size.offset:
            rest, offset = self.variable(Size(size.terms)), size.offset
            return rest + offset if offset > 0 else rest - -offset
        *others, (atom, k) = sorted(size.terms, key=lambda term: (-term[1], str(term[0])))
        if not others:
            if abs(k) == 1:
                v = self._atom(atom).astype("int64")
            else:
                v = self.variable(Size(frozenset([(atom, 1)]))) * abs(k)
            return v if k > 0 else -v
        rest, last = self.variable(Size(frozenset(others))), Size(frozenset([(atom, abs(k))]))
        return rest + self.variable(last) if k > 0 else rest - self.variable(last)

    # -- answers ---------------------------------------------------------------------------------

    def _asked(self, key: Any, answer: Callable[[], Size | None], atom: Any) -> Size:
        found = self._known.get(key)
        if found is not None:
            return found
        if self._depth >= _DEPTH:  # not kept: asked from nearer by it may be known
            return Size(frozenset([(atom, 1)]))
        self._depth += 1
        try:
            answered = answer()
        finally:
            self._depth -= 1
        found = Size(frozenset([(atom, 1)])) if answered is None else answered
        self._known[key] = found
        return found

    def _value(self, v: Any) -> Size | None:
        if isinstance(v, Constant):
            return Size(offset=int(v.data)) if _is_discrete(v) else None
        if v.owner is None:
            return None
        op: Any = v.owner.op
        inputs = v.owner.inputs
        if isinstance(op, ScalarFromTensor | TensorFromScalar | CheckAndRaise):
            return self.of(inputs[0])
        if isinstance(op, Shape_i):
            return self.length(inputs[0], op.i)
        if op == list_length:
            return self.length(inputs[0])
        if isinstance(op, DimShuffle) and inputs[0].type.ndim == 1:
            return self._element(inputs[0], 0)
        if isinstance(op, Subtensor):
            index = indices_from_subtensor(inputs[1:], op.idx_list)
            if len(index) == 1 and inputs[0].type.ndim == 1 and not isinstance(index[0], slice):
                k = self.of(index[0]).constant
                return None if k is None else self._element(inputs[0], k)
            return None
        scalar_op = op.scalar_op if isinstance(op, Elemwise) else op
        if not isinstance(scalar_op, ps.ScalarOp) or not _is_integer(v):
            return None
        found = self._arithmetic(scalar_op, inputs)
        if found is None or (found.constant is None and v.type.dtype not in _WIDE):
            return None
        return found if found.constant is None or _takes(v.type.dtype, found.constant) else None

    def _element(self, vector: Any, k: int) -> Size | None:
        """Element ``k`` of a vector of sizes."""
        if isinstance(vector, Constant):
            return (
                Size(offset=int(vector.data[k]))
                if -len(vector.data) <= k < len(vector.data)
                else None
            )
        op: Any = None if vector.owner is None else vector.owner.op
        if isinstance(op, Shape):
            x = vector.owner.inputs[0]
            return self.length(x, k) if 0 <= k < x.type.ndim else None
        if isinstance(op, MakeVector) and -len(vector.owner.inputs) <= k < len(vector.owner.inputs):
            return self.of(vector.owner.inputs[k])
        return None

    def _arithmetic(self, op: Any, inputs: Any) -> Size | None:
        """What comes out of ``op`` where it does not wrap around."""
        if not all(map(_is_integer, inputs)) and not isinstance(op, ps.Switch):
            return None
        if isinstance(op, ps.Cast | ps.Identity):
            return self.of(inputs[0])
        if isinstance(op, ps.Add):
            return _sum(self.of(x) for x in inputs)
        if isinstance(op, ps.Sub):
            return self.of(inputs[0]) - self.of(inputs[1])
        if isinstance(op, ps.Neg):
            return -self.of(inputs[0])
        if isinstance(op, ps.Mul):
            return self._product([self.of(x) for x in inputs])
        if isinstance(op, ps.ScalarMaximum | ps.ScalarMinimum):
            return self._clipped(isinstance(op, ps.ScalarMaximum), *map(self.of, inputs))
        if isinstance(op, ps.Second):
            return self.of(inputs[1])
        if isinstance(op, ps.Switch) and not inputs[0].type.ndim:
            holds = self._holds(inputs[0])
            return None if holds is None else self.of(inputs[1 if holds else 2])
        return None

    def _product(self, factors: list[Size]) -> Size | None:
        total = Size(offset=1)
        for f in factors:
            if f.constant is not None:
                total = total * f.constant
            elif total.constant is not None:
                total = f * total.constant
            else:
                return None
        return total

    def _clipped(self, largest: bool, a: Size, b: Size) -> Size:
        if self.at_least(a - b):
            return a if largest else b
        if self.at_least(b - a):
            return b if largest else a
        return Size(frozenset([(Clipped(largest, a, b), 1)]))

    def _holds(self, condition: Any) -> bool | None:
        """Whether a comparison holds in every run (True), in none (False), or nobody knows."""
        if isinstance(condition, Constant):
            return bool(condition.data)
        if condition.owner is None:
            return None
        op: Any = condition.owner.op
        op = op.scalar_op if isinstance(op, Elemwise) else op
        inputs = condition.owner.inputs
        if isinstance(op, ps.Invert) and inputs[0].type.dtype == "bool":
            inner = self._holds(inputs[0])
            return None if inner is None else not inner
        if not isinstance(op, ps.LT | ps.LE | ps.GT | ps.GE) or not all(map(_is_integer, inputs)):
            return None
        a, b = map(self.of, inputs)
        if isinstance(op, ps.GT | ps.GE):
            a, b = b, a
        strict = isinstance(op, ps.LT | ps.GT)
        if self.at_least(b - a, int(strict)):
            return True
        return False if self.at_least(a - b, 1 - int(strict)) else None

    def _length(self, x: Any, axis: int) -> Size | None:
        if isinstance(x, Constant):
            return Size(offset=len(x.data) if axis == 0 else x.data.shape[axis])
        node = x.owner
        if node is None:
            return None
        op: Any = node.op
        given = node.inputs
        if isinstance(op, Scan):
            return self._of_loop(node, node.outputs.index(x), axis)
        if isinstance(op, Elemwise):
            return self._of_elemwise(given, axis)
        if isinstance(op, Alloc):
            dim = given[1 + axis]
            return self.of(dim)
        if isinstance(op.core_op if isinstance(op, Blockwise) else op, Dot):
            return self._of_product(given[0], given[1], axis, x.type.ndim)
        if isinstance(op, IncSubtensor | CheckAndRaise | SpecifyShape):
            return self.length(given[0], axis)
        if isinstance(op, DimShuffle):
            place = op.new_order[axis]
            return Size(offset=1) if place == "x" else self.length(given[0], place)
        if isinstance(op, CAReduce) and op.axis is not None:
            kept = [k for k in range(given[0].type.ndim) if k not in op.axis]
            return self.length(given[0], kept[axis])
        if isinstance(op, FitRows | KeepRows):
            if axis:
                return self.length(given[0], axis)
            return self._clipped(
                True, self.of(given[-1]), Size()
            )  # FitRows takes a negative one for 0
        if isinstance(op, Subtensor):
            return self._of_slice(node, axis)
        if isinstance(op, Join) and axis == 0:
            pieces = joined_rows(node)
            return None if pieces is None else _sum(self.length(p) for p in pieces)
        if isinstance(op, Split) and axis == 0:
            return self._of_split(node, x)
        if isinstance(op, ARange) and all(map(_is_integer, given)):
            start, stop, step = map(self.of, given)
            if step.constant == 1:
                return self._clipped(True, stop - start, Size())
        return None

    def _of_loop(self, node: Any, at: int, axis: int) -> Size | None:
        if axis == 0 and at >= node.op.n_states:
            return self._rows_made(node)
        if not hasattr(node.outputs[at].type, "ndim"):
            return None
        if node not in self._loops:
            self._loops[node] = LoopSizes(node, self, Sizes())
        return self._loops[node].of(at, axis)

    def _rows_made(self, node: Any) -> Size:
        """The length of the traces of a loop: the steps that it takes."""
        if not node.op.stops:
            return self._steps(node)
        n_done = node.outputs[-2]
        self._least.setdefault(n_done, 0)
        return self.of(n_done)

    def _of_product(self, a: Any, b: Any, axis: int, ndim: int) -> Size | None:
        if max(a.type.ndim, b.type.ndim) > 2:
            return None
        rows = axis == 0 and a.type.ndim == 2
        return self.length(a, 0) if rows else self.length(b, b.type.ndim - 1) if ndim else None

    def _of_elemwise(self, given: Any, axis: int) -> Size | None:
        # A length that is not known to be 1 is not broadcast: all such inputs agree, or the op raises.
        lengths = [self.length(v, axis) for v in given if v.type.shape[axis] != 1]
        constant = [n for n in lengths if n.constant is not None]
        return next(iter([*constant, *lengths]), None)

    def _of_slice(self, node: Any, axis: int) -> Size | None:
        op: Any = node.op
        index = indices_from_subtensor(node.inputs[1:], op.idx_list)
        x, at = node.inputs[0], axis
        for k, entry in enumerate(index):
            if not isinstance(entry, slice):
                at += 1
            elif k == at:
                window = self.window(x, entry, k)
                return None if window is None else window[1]
        return self.length(x, at)

    def _of_split(self, node: Any, x: Any) -> Size | None:
        op: Any = node.op
        axis = getattr(op, "axis", None)
        given = node.inputs
        if axis is None and isinstance(given[1], Constant):
            axis = int(given[1].data)
        return self._element(given[-1], node.outputs.index(x)) if axis == 0 else None

    def window(self, x: Any, rows: slice, axis: int = 0) -> tuple[Size, Size, int] | None:
        """``(start, count, step)``: what ``rows`` takes of ``x`` along ``axis``; None if nobody can tell.

        ``start`` is the first of ``count`` positions, ``step`` apart; where ``count`` is 0 any position.
        """
        step = 1 if rows.step is None else self.of(rows.step).constant
        if step not in (1, -1):
            return None
        n = self.length(x, axis)
        last = n - 1
        if step == 1:
            start = self._position(rows.start, n, Size(), n, Size())
            stop = self._position(rows.stop, n, Size(), n, n)
        else:
            start = self._position(rows.start, n, Size(offset=-1), last, last)
            stop = self._position(rows.stop, n, Size(offset=-1), last, Size(offset=-1))
        if start is None or stop is None:
            return None
        count = (stop - start) * step
        if self.at_least(count):
            return start, count, step
        return (start, Size(), step) if self.at_least(-count) else None

    def _position(self, bound: Any, n: Size, low: Size, high: Size, absent: Size) -> Size | None:
        """Where a bound of a slice lies, as Python has it: from the end if negative, and clipped."""
        if bound is None:
            return absent
        at = self.of(bound)
        if not self.at_least(at):
            if not self.at_least(-at, 1):
                return None
            at = at + n
        if self.at_least(at - high):
            return high
        if self.at_least(low - at):
            return low
        if not (self.at_least(high - at) and self.at_least(at - low)):
            return None
        return at

    def _steps(self, node: Any) -> Size:
        """The number of steps of a loop, which is known from here on not to be negative."""
        n = self.of(node.inputs[0])
        if self._learns:
            self.learn(n, 0)
        return n

    def _at_least(self, size: Size, rounds: int) -> bool:
        """``size >= 0``, by the least value of each atom; a clipped one stands for either of its two."""
        least = size.offset
        for atom, k in size.terms:
            if isinstance(atom, Clipped) and rounds:
                # max(a, b) >= a, -min(a, b) >= -a: each of the two bounds it from below.
                if atom.largest == (k > 0):
                    without = size - Size(frozenset([(atom, k)]))
                    return any(
                        self._at_least(without + side * k, rounds - 1) for side in (atom.a, atom.b)
                    )
                # min(a, b) is one of the two.
                without = size - Size(frozenset([(atom, k)]))
                return all(
                    self._at_least(without + side * k, rounds - 1) for side in (atom.a, atom.b)
                )
            bound = self._least_of(atom)
            if bound is None or k < 0:
                return False
            least += k * bound
        return least >= 0

    def _least_of(self, atom: Any) -> int | None:
        if isinstance(atom, Length):
            return max(0, self._least.get(atom, 0))
        if atom in self._least:
            return self._least[atom]
        if isinstance(atom, Variable) and getattr(atom.type, "dtype", "").startswith("uint"):
            return 0
        return None

    def _atom(self, atom: Any) -> Any:
        if isinstance(atom, Length):
            x: Any = atom.of
            return x.shape[atom.axis] if hasattr(x.type, "ndim") else list_length(x)
        if isinstance(atom, Clipped):
            choose = pt.maximum if atom.largest else pt.minimum
            return choose(self.variable(atom.a), self.variable(atom.b))
        return pt.as_tensor(atom).astype(
            "int64"
        )  # a shorter integer may wrap around in what follows


def counts_steps(atom: Any) -> bool:
    """Whether ``atom`` is the number of steps that a loop has taken before it stopped."""
    node = atom.owner if isinstance(atom, Variable) else None
    return (
        node is not None
        and isinstance(node.op, Scan)
        and node.op.stops
        and atom is node.outputs[-2]
    )


def _sum(sizes: Any) -> Size:
    total = Size()
    for size in sizes:
        total = total + size
    return total


def _is_integer(v: Any) -> bool:
    return str(getattr(v.type, "dtype", "")).startswith(("int", "uint"))


def _is_discrete(v: Any) -> bool:
    return _is_integer(v) or v.type.dtype == "bool"


def _takes(dtype: str, k: int) -> bool:
    return bool(np.iinfo(dtype).min <= k <= np.iinfo(dtype).max)
