"""Conversion of selected terms back to a graph. Unchanged terms map to their old variables."""

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
_DETERMINANTS = "signdet", "logdet"  # two outputs of one node


class _Number(NamedTuple):
    """A constant of one entry, without dtype and rank."""

    value: float


class _Chain(NamedTuple):
    """A sum or product whose only user is a longer one."""

    name: str
    operands: tuple[Any, ...]


class Unwritable(Exception):
    """Raised if the selected terms form no program, since the dtype of a number is unknown."""


def original_terms(program: Encoded, egraph: Saturated) -> Iterator[tuple[int, Node]]:
    """Yield the number of each term that the program needs, and the term with classes as operands."""
    needed = set(program.outputs)
    for number in reversed(range(len(program.terms))):  # operands have smaller numbers
        if number in needed:
            head, name, operands = program.terms[number]
            needed.update(operands)
            node = Node(head, name, tuple(egraph.class_of_term[k] for k in operands))
            yield number, in_order(node)


def original_choice(program: Encoded, egraph: Saturated) -> dict[int, Node]:
    """The program's own term of each class, the first where there are several."""
    terms = reversed(list(original_terms(program, egraph)))
    choice: dict[int, Node] = {}
    for number, node in terms:
        choice.setdefault(egraph.class_of_term[number], node)
    return choice


class Decoder:
    """Variables of classes, built from the selected terms."""

    def __init__(
        self,
        program: Encoded,
        egraph: Saturated,
        choice: Choice,
        original: Choice,
        like: Sequence[Any],
    ) -> None:
        self.table = program.table
        self.choice = choice
        self.variables: dict[int, Variable] = {}
        for number, v in program.variables.items():
            self.variables.setdefault(egraph.class_of_term[number], v)
        self.values: dict[int, Any] = {}
        self._built: dict[Any, Any] = {}
        roots = [egraph.class_of_term[k] for k in program.outputs]
        order = needed(choice, roots)
        self.dtypes = self._float_dtypes(order)
        self.users: dict[int, list[Node]] = {}
        uses = Counter(roots)
        for c in order:
            for operand in choice[c].operands:
                uses[operand] += 1
                self.users.setdefault(operand, []).append(choice[c])
        self.uses = uses
        unchanged: set[int] = set()
        self.changed: list[int] = []
        for c in order:
            if choice[c] == original.get(c) and all(k in unchanged for k in choice[c].operands):
                unchanged.add(c)
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
            if (name, *values) not in self._built:
                outputs = SLogDet().make_node(*values).outputs
                self._built.update(
                    ((determinant, *values), v)
                    for determinant, v in zip(_DETERMINANTS, outputs, strict=True)
                )
            return self._built[name, *values]
        entry = self.table.named(name)
        types = entry.types
        if isinstance(entry.op, CheckAndRaise):
            arrays = [v if isinstance(v, Variable) else self._typed(v, types[0]) for v in values]
        else:
            arrays = [self._fitting(v, t) for v, t in zip(values, types, strict=True)]
        key = entry.op, tuple(arrays), entry.constants
        if key not in self._built:  # other outputs share the node
            self._built[key] = entry(arrays)
        return self._built[key].outputs[entry.output]

    def _float_dtypes(self, order: Sequence[int]) -> dict[int, str]:
        """The float dtypes of classes, from their variables or from the classes that use them."""
        dtypes = {c: getattr(v.type, "dtype", None) for c, v in self.variables.items()}
        float_dtypes: dict[int, Any] = {c: dtype for c, dtype in dtypes.items() if dtype in FLOATS}
        for c in reversed(order):  # users first
            head, name, operands = self.choice[c]
            if c not in float_dtypes or (name in self.table and head != "S"):
                continue
            for k in operands[1:] if name == "Switch" else operands:
                float_dtypes.setdefault(k, float_dtypes[c])
        return float_dtypes

    def _dtype(self, c: int) -> str:
        """The dtype of a class, for the numbers in its terms."""
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
        """Apply ``op`` to arrays and numbers; the result of numbers alone is a number."""
        arrays = [v for v in values if isinstance(v, Variable)]
        if not arrays:
            with np.errstate(all="ignore"):
                return _Number(float(SCALARS[name].impl(*(np.float64(v.value) for v in values))))
        floats = [v for v in arrays if v.type.dtype in FLOATS]
        dtype = floats[0].type.dtype if floats else self._dtype(-1 if c is None else c)
        kind = TensorType(dtype, (1,) * arrays[0].type.ndim)
        return op.make_node(*(self._typed(v, kind) for v in values)).outputs[0]

    def _typed(self, v: Any, kind: TensorType) -> Variable:
        """Convert a number to an array of one entry of type ``kind``; an array stays."""
        if not isinstance(v, _Number):
            return v
        key = np.float64(v.value).tobytes(), kind.ndim, kind.dtype  # 0.0 is not -0.0
        if key not in self._built:  # one variable, so that equal nodes merge
            self._built[key] = constant(np.full((1,) * kind.ndim, v.value, kind.dtype))
        return self._built[key]

    def _fitting(self, v: Any, kind: TensorType) -> Variable:
        """Convert ``v`` to type ``kind``, with a check of its lengths where they are not static."""
        v = self._typed(v, kind)
        if kind.is_super(v.type):
            return v
        if (v, kind) not in self._built:
            self._built[v, kind] = kind.filter_variable(v)
        return self._built[v, kind]
