"""How long what comes out of a loop is, along the axes of a row.

    final.shape    ->  init.shape
    trace.shape[1:] ->  the shape of a row, by what the step makes it of

A state is taken to keep its shape, as the IR has it (`Scan.shapes_of`), unless the step says that it may
not: one that gets longer, or is cut, does not. ``w @ s`` is taken to be as long as ``s``: where it is not,
only a loop of one step could end, and no backend with structured loops would take that.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import Elemwise

from loopax.ir.sizes.size import Size
from loopax.ir.sizes.size_questions import SizeQuestions


class LoopSizes:
    """The sizes in the body of the loop of ``node``, by those outside."""

    def __init__(self, node: Apply, outside: SizeQuestions, inside: SizeQuestions) -> None:
        self._op: Any = node.op
        self._node = node
        self._outside, self._inside = outside, inside
        self._keeps: dict[tuple[int, int], bool] = {}

    def of(self, at: int, axis: int) -> Size | None:
        """The length of output ``at`` along ``axis``, which for a trace is not that of its rows."""
        op = self._op
        if at < op.n_states:
            return self._of_state(at, axis)
        y = op.outs.ys[at - op.n_states]
        for k, v in enumerate(op.outs.states):
            if y is v and self.keeps(k, axis - 1):
                return self._of_state(k, axis - 1)
        return self._translated(self._inside.length(y, axis - 1))

    def _of_state(self, k: int, axis: int) -> Size | None:
        init = self._op.split_inputs(self._node.inputs).states[k]
        return self._outside.length(init, axis) if self.keeps(k, axis) else None

    def keeps(self, k: int, axis: int) -> bool:
        """Whether state ``k`` is as long along ``axis`` behind the step as before it."""
        key = (k, axis)
        if key not in self._keeps:
            self._keeps[key] = self._found(self._op.args.states[k], self._op.outs.states[k], axis)
        return self._keeps[key]

    def _found(self, state: Any, following: Any, axis: int) -> bool:
        own = self._inside.length(state, axis)
        if own.constant is not None:
            return True
        stack, seen = [following], {following}
        while stack:  # of those that an Elemwise does not broadcast, one tells the length
            v = stack.pop()
            length = self._inside.length(v, axis)
            if v is state or length == own:
                return True
            if v.owner is not None and isinstance(v.owner.op, Elemwise):
                more = [x for x in v.owner.inputs if x.type.shape[axis] != 1 and x not in seen]
                seen.update(more)
                stack += more
            elif not self._is_of_an_input(length):
                return False
        return True

    def _is_of_an_input(self, length: Size) -> bool:
        """Whether ``length`` is that of a row or a constant, and so the same at each step."""
        given = {*self._op.args.rows, *self._op.args.consts}
        return not length.offset and all(
            k == 1 and getattr(atom, "of", None) in given for atom, k in length.terms
        )

    def _translated(self, length: Size) -> Size | None:
        """``length``, in the terms of what is outside; None where it needs more."""
        op, given = self._op, self._op.split_inputs(self._node.inputs)
        total: Any = type(length)(offset=length.offset)
        for atom, k in length.terms:
            v, axis = getattr(atom, "of", None), getattr(atom, "axis", 0)
            found: Any = None
            if v in op.args.consts:
                found = self._outside.length(given.consts[op.args.consts.index(v)], axis)
            elif v in op.args.rows:
                found = self._outside.length(given.sequences[op.args.rows.index(v)], axis + 1)
            elif v in op.args.states:
                found = self._of_state(op.args.states.index(v), axis)
            if found is None:
                return None
            total = total + found * k
        return total
