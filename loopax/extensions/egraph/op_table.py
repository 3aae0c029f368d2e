"""The ops of a program by number: what is awkward as a term is an entry here, and the term has its number.

An entry is an op as it is in the graph, frozen, with what else says which function of its operands it
is: the constants among its inputs (the index of a gather, the shape that a reshape asks for), the types
of the operands, which of its outputs is meant. Two entries are one where all of this is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as scalar_math
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from loopax.base.upstream.pytensor import AdvancedSubtensor1

# Scalar ops that are what their class is, by its name: what rules call them by, and what they make of it.
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
    """An op with what it is given besides its operands.

    ``rest`` are the constants behind the operands, ``types`` those of the operands, ``output`` which is
    meant.
    """

    op: Any
    types: tuple[Any, ...]
    rest: tuple[Constant, ...] = ()
    output: int = 0

    def __call__(self, operands: Sequence[Variable]) -> Apply:
        return self.op.make_node(*operands, *self.rest)


@dataclass
class OpTable:
    """The entries of one program."""

    entries: list[Entry] = field(default_factory=list)
    _numbers: dict[Any, int] = field(default_factory=dict)

    def __contains__(self, name: Any) -> bool:
        """Whether a term of that name is said by an entry: ``"#3"``."""
        return isinstance(name, str) and name.startswith("#")

    def named(self, name: str) -> Entry:
        """The entry that ``"#3"`` says."""
        return self.entries[int(name[1:])]

    def __post_init__(self) -> None:
        # Number 0, by which the rules of linear algebra call it.
        matrix = TensorType("float64", (None, None))
        self.number(DimShuffle(input_ndim=2, new_order=(1, 0)), (matrix,))

    def number(
        self, op: Any, types: Sequence[Any], rest: Sequence[Constant] = (), output: int = 0
    ) -> int:
        """The number of an entry, a new one where there is none."""
        key = op, tuple(types), tuple(c.signature() for c in rest), output
        if isinstance(op, DimShuffle) and op.new_order == (1, 0) and op.input_ndim == 2:
            key = op, (TensorType("float64", (None, None)),), (), 0
        if key not in self._numbers:
            self._numbers[key] = len(self.entries)
            self.entries.append(Entry(op, key[1], tuple(rest), output))
        return self._numbers[key]

    def rows(self, index: np.ndarray) -> int:
        """The access that reads the rows at ``index`` of a vector."""
        vector: Any = TensorType("float64", (None,))()
        found = self.access(vector[index].owner)
        assert found is not None
        return found

    def access(self, node: Apply) -> int | None:
        """The number of what a node reads of its first input by constants alone; None for others."""
        op: Any = node.op
        if not isinstance(op, ACCESSES) or not isinstance(node.inputs[0].type, TensorType):
            return None
        array, *others = node.inputs
        rest: Any = others
        if not all(isinstance(v, Constant) for v in rest):
            return None
        kind = TensorType("float64", (None,) * array.type.ndim)
        if isinstance(op, DimShuffle | Alloc):  # which axes are of length 1 matters
            kind = TensorType("float64", tuple(n if n == 1 else None for n in array.type.shape))
        return self.number(op, (kind,), rest)


ACCESSES = (
    DimShuffle,
    Reshape,
    Subtensor,
    AdvancedSubtensor,
    AdvancedSubtensor1,
    Alloc,
)


def is_named(node: Apply, is_number: Callable[[Variable], bool]) -> bool:
    """Whether an elementwise node is what the rules mean by the name of its scalar op.

    Its operands are floats of one dtype, or constants that are written as such (``is_number`` says
    which are numbers by now); of a ``Switch`` the branches, of a comparison the result is a bool; of
    ``AND`` and ``OR`` all are bools.
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
    """The elementwise op of a name in the rules."""
    return Elemwise(SCALARS[name])
