"""From the terms that were taken back to a graph. What stayed as it was is the variable that it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import constant, diagonal
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg.inverse import matrix_inverse
from pytensor.tensor.linalg.solvers.general import solve
from pytensor.tensor.linalg.summary import SLogDet, det
from pytensor.tensor.math import dot
from pytensor.tensor.math import sum as sum_of
from pytensor.tensor.type import TensorType

from loopax.extensions.egraph.encode import Encoded
from loopax.extensions.egraph.extract import Choice, needed
from loopax.extensions.egraph.kronecker import kron
from loopax.extensions.egraph.op_table import FLOATS, SCALARS, elementwise
from loopax.extensions.egraph.saturate import Node, Saturated, in_order

_NAMED: dict[str, Any] = {
    "sum": sum_of,
    "dot": dot,
    "inv": matrix_inverse,
    "det": det,
    "kron": kron,
    "diag": diagonal,
    "solve1": lambda a, b: solve(a, b, b_ndim=1),
    "solve2": lambda a, b: solve(a, b, b_ndim=2),
}
_DETERMINANTS = "signdet", "logdet"  # of one node


class _Number(NamedTuple):
    """A constant of one entry, of no dtype and rank yet."""

    value: float


class _Chain(NamedTuple):
    """A sum or product that is an operand of a longer one, and of nothing else."""

    name: str
    operands: tuple[Any, ...]


class Unwritable(Exception):
    """The terms that were taken are no program: of a number nobody can say which dtype it has."""


def original_terms(program: Encoded, found: Saturated) -> Iterator[tuple[int, Node]]:
    """The number of each term that the program needs, and the term with classes as operands."""
    needed = set(program.outputs)
    for number in reversed(range(len(program.terms))):  # each is behind its operands
        if number in needed:
            head, name, operands = program.terms[number]
            needed.update(operands)
            node = Node(head, name, tuple(found.of_term[k] for k in operands))
            yield number, in_order(node)


def original_choice(program: Encoded, found: Saturated) -> dict[int, Node]:
    """The term of each class that stood in the program, the first where there are several."""
    terms = reversed(list(original_terms(program, found)))
    choice: dict[int, Node] = {}
    for number, node in terms:
        choice.setdefault(found.of_term[number], node)
    return choice


class Decoder:
    """The variables that classes are, by the terms that were taken."""

    def __init__(
        self,
        program: Encoded,
        found: Saturated,
        choice: Choice,
        original: Choice,
        like: Sequence[Any],
    ) -> None:
        self.table = program.table
        self.choice = choice
        self.variables: dict[int, Variable] = {}
        for number, v in program.variables.items():
            self.variables.setdefault(found.of_term[number], v)
        self.values: dict[int, Any] = {}
        self._made: dict[Any, Any] = {}
        roots = [found.of_term[k] for k in program.outputs]
        order = needed(choice, roots)
        self.dtypes = self._float_dtypes(order)
        self.users: dict[int, list[Node]] = {}
        uses = Counter(roots)
        for c in order:
            for operand in choice[c].operands:
                uses[operand] += 1
                self.users.setdefault(operand, []).append(choice[c])
        self.uses = uses
        same: set[int] = set()
        self.changed: list[int] = []
        for c in order:
            if choice[c] == original.get(c) and all(k in same for k in choice[c].operands):
                same.add(c)
                self.values[c] = self._unchanged(c)
            else:
                if choice[c] != original.get(c):
                    self.changed.append(c)
                self.values[c] = self._value(c)
        wholes = [self._whole(self.values[c]) for c in roots]
        self.outputs = [self._fitting(x, v.type) for x, v in zip(wholes, like, strict=True)]

    def _unchanged(self, c: int) -> Any:
        node = self.choice[c]
        if node.head == "Lit":
            return _Number(node.name)
        return self.variables[c] if c in self.variables else self._value(c)

    def _value(self, c: int) -> Any:
        head, name, operands = self.choice[c]
        if head == "Atom":
            return self.variables[c]
        if head == "Lit":
            return _Number(name)
        values = [self.values[k] for k in operands]
        if head == "E2" and name in ("Add", "Mul"):
            return self._chain(c, name, values)
        values = [self._whole(v) for v in values]
        if head.startswith("E"):
            return self._elementwise(c, name, values)
        if head == "S":
            entry = self.table.entries[name]
            [x] = values
            if isinstance(x, _Number):
                x = self._typed(x, TensorType(self._dtype(c), entry.types[0].shape))
            return entry([x]).outputs[0]
        if name in _NAMED:
            if name == "sum" and isinstance(values[0], _Number):
                return values[0]
            if any(isinstance(v, _Number) for v in values):
                raise Unwritable(f"{name} of a number")
            return _NAMED[name](*values)
        if name in _DETERMINANTS:
            if (name, *values) not in self._made:
                both = SLogDet().make_node(*values).outputs
                self._made.update(
                    ((one, *values), v) for one, v in zip(_DETERMINANTS, both, strict=True)
                )
            return self._made[name, *values]
        entry = self.table.named(name)
        types = entry.types
        if isinstance(entry.op, CheckAndRaise):
            arrays = [v if isinstance(v, Variable) else self._typed(v, types[0]) for v in values]
        else:
            arrays = [self._fitting(v, t) for v, t in zip(values, types, strict=True)]
        key = entry.op, tuple(arrays), entry.rest
        if key not in self._made:  # the other outputs are of the same node
            self._made[key] = entry(arrays)
        return self._made[key].outputs[entry.output]

    def _float_dtypes(self, order: Sequence[int]) -> dict[int, str]:
        """The float dtypes of classes that have a variable's dtype, or that of their operands."""
        dtypes = {c: getattr(v.type, "dtype", None) for c, v in self.variables.items()}
        found: dict[int, Any] = {c: dtype for c, dtype in dtypes.items() if dtype in FLOATS}
        for c in reversed(order):  # users first
            head, name, operands = self.choice[c]
            if c not in found or (name in self.table and head != "S"):
                continue
            for k in operands[1:] if name == "Switch" else operands:
                found.setdefault(k, found[c])
        return found

    def _dtype(self, c: int) -> str:
        """The dtype of a number that a class is, or is made of."""
        if c not in self.dtypes:
            raise Unwritable("a number that may be of one of two dtypes")
        return self.dtypes[c]

    # -- elementwise -------------------------------------------------------------------------------------

    def _chain(self, c: int, name: str, values: list[Any]) -> Any:
        flat: list[Any] = []
        for v in values:
            flat += v.operands if isinstance(v, _Chain) and v.name == name else [self._whole(v)]
        chain = _Chain(name, tuple(flat))
        users = self.users.get(c, [])
        inside = len(users) == self.uses[c] == 1 and users[0].head == "E2" and users[0].name == name
        return chain if inside else self._whole(chain)

    def _whole(self, v: Any) -> Any:
        return (
            self._applied(elementwise(v.name), v.name, v.operands) if isinstance(v, _Chain) else v
        )

    def _elementwise(self, c: int, name: str, values: list[Any]) -> Any:
        if name in self.table:
            entry = self.table.named(name)
            ranks = [v.type.ndim for v in values if isinstance(v, Variable)]
            if not ranks:
                raise Unwritable(f"{entry.op} of numbers")
            kinds = [TensorType(t.dtype, (1,) * ranks[0]) for t in entry.types]
            arrays = [self._typed(v, t) for v, t in zip(values, kinds, strict=True)]
            return entry.op.make_node(*arrays).outputs[0]
        return self._applied(elementwise(name), name, values, c)

    def _applied(self, op: Elemwise, name: str, values: Sequence[Any], c: int | None = None) -> Any:
        """``op`` of arrays and numbers; of numbers alone it is a number."""
        arrays = [v for v in values if isinstance(v, Variable)]
        if not arrays:
            with np.errstate(all="ignore"):
                return _Number(float(SCALARS[name].impl(*(np.float64(v.value) for v in values))))
        floats = [v for v in arrays if v.type.dtype in FLOATS]
        dtype = floats[0].type.dtype if floats else self._dtype(-1 if c is None else c)
        kind = TensorType(dtype, (1,) * arrays[0].type.ndim)
        return op.make_node(*(self._typed(v, kind) for v in values)).outputs[0]

    def _typed(self, v: Any, kind: Any) -> Variable:
        """A number as an array of one entry of a type; an array as it is."""
        if not isinstance(v, _Number):
            return v
        key = np.float64(v.value).tobytes(), kind.ndim, kind.dtype  # 0.0 is not -0.0
        if key not in self._made:  # one variable, so that nodes of it are one
            self._made[key] = constant(np.full((1,) * kind.ndim, v.value, kind.dtype))
        return self._made[key]

    def _fitting(self, v: Any, kind: Any) -> Variable:
        """``v`` as an operand of a type: with a check of its lengths, where its own type says less."""
        v = self._typed(v, kind)
        if kind.is_super(v.type):
            return v
        if (v, kind) not in self._made:
            self._made[v, kind] = kind.filter_variable(v)
        return self._made[v, kind]
