"""Table of the ops of a program; terms refer to its numbers.

An entry is an op of the graph, frozen, with everything else that defines it as a function of its
operands: the constants among its inputs (the index of a gather, the shape of a reshape), the types of
the operands, and the position of its output. Equal entries are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as scalar_math
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from loopax.base.upstream.pytensor import AdvancedSubtensor1

# Scalar ops without properties, by the name of their class, which is their name in the rules.
SCALARS: dict[str, Any] = {
    type(op).__name__: op
    for module in (ps, scalar_math)
    for op in vars(module).values()
    if isinstance(op, ps.ScalarOp)
    and not isinstance(op, ps.Composite | ps.Cast)
    and not getattr(op, "__props__", ())
}


@dataclass(frozen=True)
class Entry:
    """An op with its constant inputs.

    ``constants`` follow the operands, which have ``types``; ``output`` is the position of the output.
    """

    op: Any
    types: tuple[Any, ...]
    constants: tuple[Constant, ...] = ()
    output: int = 0

    def __call__(self, operands: Sequence[Variable]) -> Apply:
        return self.op.make_node(*operands, *self.constants)


@dataclass
class OpTable:
    """The entries of one program."""

    entries: list[Entry] = field(default_factory=list)
    _numbers: dict[Any, int] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.startswith("#")

    def named(self, name: str) -> Entry:
        return self.entries[int(name[1:])]

    def __post_init__(self) -> None:
        # Entry 0 is the transpose, by which number the rules of linear algebra refer to it.
        matrix = TensorType("float64", (None, None))
        self.number(DimShuffle(input_ndim=2, new_order=(1, 0)), (matrix,))

    def number(
        self, op: Op, types: Sequence[Any], constants: Sequence[Constant] = (), output: int = 0
    ) -> int:
        """The number of an entry, added where it is new."""
        key = op, tuple(types), tuple(c.signature() for c in constants), output
        if isinstance(op, DimShuffle) and op.new_order == (1, 0) and op.input_ndim == 2:
            key = op, (TensorType("float64", (None, None)),), (), 0
        if key not in self._numbers:
            self._numbers[key] = len(self.entries)
            self.entries.append(Entry(op, key[1], tuple(constants), output))
        return self._numbers[key]

    def rows(self, index: np.ndarray) -> int:
        """The number of the access to the rows at ``index`` of a vector."""
        vector: Any = TensorType("float64", (None,))()
        number = self.access(vector[index].owner)
        assert number is not None
        return number

    def access(self, node: Apply) -> int | None:
        """The number of a node that reads its first input at constant positions; None for others."""
        op: Any = node.op
        if not isinstance(op, ACCESSES) or not isinstance(node.inputs[0].type, TensorType):
            return None
        array, *index = node.inputs
        constants: Any = index
        if not all(isinstance(v, Constant) for v in constants):
            return None
        kind = TensorType("float64", (None,) * array.type.ndim)
        if isinstance(op, DimShuffle | Alloc):  # axes of length 1 matter
            kind = TensorType("float64", tuple(n if n == 1 else None for n in array.type.shape))
        return self.number(op, (kind,), constants)


ACCESSES = (DimShuffle, Reshape, Subtensor, AdvancedSubtensor, AdvancedSubtensor1, Alloc)


def is_named(node: Apply, is_number: Callable[[Variable], bool]) -> bool:
    """Whether an elementwise node has the types that the rules assume for the name of its scalar op.

    Its operands are floats of one dtype, or constants convertible to it (``is_number`` tests for terms
    that are numbers). The condition of a ``Switch`` may have any dtype; the result of a comparison is a
    bool; all operands of ``AND`` and ``OR`` are bools.
    """
    op: Any = node.op
    name = type(op.scalar_op).__name__
    if name not in SCALARS or SCALARS[name] != op.scalar_op:
        return False
    dtype = node.outputs[0].type.dtype
    operands = node.inputs[1:] if name == "Switch" else node.inputs
    if name in ("AND", "OR"):
        return dtype == "bool" and all(v.type.dtype == "bool" for v in operands)
    dtypes = {v.type.dtype for v in operands if not (isinstance(v, Constant) or is_number(v))}
    if isinstance(op.scalar_op, ps.LogicalComparison):
        return dtype == "bool" and len(dtypes) == 1 and dtypes <= FLOATS
    return dtype in FLOATS and dtypes <= {dtype}


FLOATS = {"float64", "float32"}


def elementwise(name: str) -> Elemwise:
    """The elementwise op for a name in the rules."""
    return Elemwise(SCALARS[name])
