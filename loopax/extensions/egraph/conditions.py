"""Constant conditions of ``switch``: the rows taken from each branch, as accesses to these rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import constant
from pytensor.tensor.type import TensorType

from loopax.extensions.egraph.encode import Encoded

_MASKS = 4  # masks that split sums: each doubles the number of terms


def add_condition_facts(program: Encoded) -> None:
    """Add the constant conditions of a program to the facts of its terms."""
    conditions = _Conditions(program)
    for switch in program.switches:
        conditions.add(*switch)
    conditions.add_implied_conditions()


class _Conditions:
    """Conditions of a program that are among its facts."""

    def __init__(self, program: Encoded) -> None:
        self._program = program
        self._masks: dict[int, tuple[np.ndarray, int, int]] = {}

    def add(self, condition: Constant, out: Variable, switch: int) -> None:
        number = self._program.number_of(condition)
        where = condition.data.astype(bool)
        if where.all() or not where.any():
            self._program.fact("AllTrue" if where.all() else "AllFalse", number)
            return
        if number not in self._masks and len(self._masks) < _MASKS:
            parts = [self._program.table.rows(np.flatnonzero(rows)) for rows in (where, ~where)]
            self._masks[number] = where, *parts
            self._program.facts.append(f"(Parts (value {number}) {parts[0]} {parts[1]})")
            for k in parts:
                self._program.facts.append(f"(Rows {k})")
                [index] = self._program.table.entries[k].constants
                self._program.facts.append(
                    f"(set (read {k} (Sh1 {len(where)})) (Sh1 {len(index.data)}))"
                )
                self._program.facts.append(f"(Total {k} (Sh1 {len(where)}))")
        if number in self._masks and out.type.shape == condition.type.shape:
            zeros = self._program.leaf(constant(np.zeros(where.shape, out.type.dtype)))
            self._program.facts.append(f"(Base (value {switch}) (value {zeros}))")
            for k in self._masks[number][1:]:
                self._add_write(k, out)

    def _add_write(self, k: int, like: Variable) -> None:
        """Add the write to the rows that the access ``k`` reads."""
        [index] = self._program.table.entries[k].constants
        vector = TensorType(like.type.dtype, like.type.shape)
        rows = TensorType(like.type.dtype, (index.type.shape[0],))
        node = vector()[index].set(rows()).owner
        index_inputs: Any = list(node.inputs[2:])
        number = self._program.table.number(node.op, (vector, rows), index_inputs)
        self._program.facts.append(f'(Put {k} "#{number}")')

    def add_implied_conditions(self) -> None:
        """Add conditions that are constant in a part of another condition."""
        for _, i, j in list(self._masks.values()):
            for k in (i, j):
                [index] = self._program.table.entries[k].constants
                for number, (where, *_) in self._masks.items():
                    if len(where) <= np.max(index.data):
                        continue
                    part = where[index.data]
                    for entries, relation in ((part, "AllTrue"), (~part, "AllFalse")):
                        if entries.all():
                            self._program.facts.append(f"({relation} (S {k} (value {number})))")
