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
from functools import partial
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.typed_list import length as list_length

from loopax.ir import Scan
from loopax.ir.sizes.loop_sizes import LoopSizes
from loopax.ir.sizes.size import Clipped, Length, Size
from loopax.ir.sizes.size_of_length import length_of
from loopax.ir.sizes.size_of_value import value_of
from loopax.ir.sizes.size_questions import SizeQuestions

_DEPTH = 100  # how far a question is followed: passes ask in topological order, so that few go far


class Sizes(SizeQuestions):
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
        self._unknown: set[Any] = (
            set()
        )  # variables of which, or of whose length, nothing more was known
        self._depth = 0
        self._learns = graph is not None
        loops = [] if graph is None else [n for n in graph.toposort() if isinstance(n.op, Scan)]
        for node in loops:
            self.steps(node)
        self._known.clear()  # what was asked before all of them were known

    # -- questions -------------------------------------------------------------------------------

    def of(self, v: Any) -> Size:
        """The value of ``v``, an integer scalar: a number, a tensor or PyTensor's scalar."""
        if not isinstance(v, Variable):
            return Size(offset=int(v))
        return self._asked(v, partial(value_of, self, v), v)

    def length(self, x: Any, axis: int = 0) -> Size:
        """The length of ``x``, a tensor or a typed list, along ``axis``."""
        static = getattr(x.type, "shape", None)
        if static is not None and static[axis] is not None:
            return Size(offset=static[axis])
        atom = Length(x, axis)
        return self._asked(atom, partial(length_of, self, x, axis), atom)

    def at_least(self, size: Size, k: int = 0) -> bool:
        """Whether ``size >= k`` in every run, as far as can be told."""
        return self._at_least(size - k, 4)

    def clipped(self, largest: bool, a: Size, b: Size) -> Size:
        """The larger (``largest``) or the smaller of two sizes."""
        if self.at_least(a - b):
            return a if largest else b
        if self.at_least(b - a):
            return b if largest else a
        return Size(frozenset([(Clipped(largest, a, b), 1)]))

    def learn(self, size: Size, least: int) -> None:
        """From here on ``size >= least`` is known: an atom and a number, nothing else is kept."""
        if len(size.terms) == 1:
            ((atom, k),) = size.terms
            if k == 1:
                bound = least - size.offset
                self._least[atom] = max(self._least.get(atom, bound), bound)

    def was_unknown(self, v: Any) -> bool:
        """Whether an answer hangs on ``v``, or its length, of which nothing more was known."""
        return v in self._unknown

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
            self._unknown.add(atom.of if isinstance(atom, Length) else atom)
            return Size(frozenset([(atom, 1)]))
        self._depth += 1
        try:
            answered = answer()
        finally:
            self._depth -= 1
        found = Size(frozenset([(atom, 1)])) if answered is None else answered
        if answered is None:
            self._unknown.add(atom.of if isinstance(atom, Length) else atom)
        self._known[key] = found
        return found

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

    def of_loop(self, node: Any) -> LoopSizes:
        """What is known of the rows of the loop of ``node``."""
        if node not in self._loops:
            self._loops[node] = LoopSizes(node, self, Sizes())
        return self._loops[node]

    def steps(self, node: Any) -> Size:
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
