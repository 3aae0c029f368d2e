"""From a graph to terms, each once; the language is said in `language.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import ExtractDiag, constant
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.summary import Det, SLogDet
from pytensor.tensor.math import All, Dot, Sum
from pytensor.tensor.math import Any as AnyOf
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor
from pytensor.tensor.type import TensorType

from loopax.ir.compat import AdvancedIncSubtensor1, IfElse
from loopax.ir.effects import Speculation, errors, speculation
from loopax.ir.sizes import unconditional_dims_of
from loopax.lowering.egraph.kronecker import facts_of, kron_of
from loopax.lowering.egraph.op_table import FLOATS, OpTable, is_named
from loopax.lowering.egraph.sufficient import Statistics, at_rows, is_layout, statistics

_MASKS = 4  # constant conditions by which sums are cut: each doubles what is looked at


class Term(NamedTuple):
    """A constructor of the language, what stands in it besides terms, and the numbers of its operands."""

    head: str
    name: Any  # a string, a number
    operands: tuple[int, ...] = ()


class Encoded:
    """The terms of a graph.

    Attributes
    ----------
    terms
        Each is different, and behind its operands.
    variables
        By number of a term: the variable of the graph that it is, if it is one.
    outputs
        The numbers of the graph's outputs.
    """

    def __init__(self, graph: FunctionGraph) -> None:
        self.terms: list[Term] = []
        self.variables: dict[int, Variable] = {}
        self.table = OpTable()
        self.facts: list[str] = []
        self._numbers: dict[Term, int] = {}
        self._of: dict[Variable, int] = {}
        self._dims = unconditional_dims_of(graph)
        self._lengths: dict[Any, int] = {}
        self._masks: dict[int, tuple[np.ndarray, int, int]] = {}
        self._safe: set[int] = set()
        for node in graph.toposort():
            self._node(node)
        self.outputs = [self.of(v) for v in graph.outputs]
        for v in _in_any_case(graph):
            self._fact("Safe", self.of(v))
        self._mask_facts()
        for p, found in enumerate(statistics(graph)):
            self._statistics(p, found, graph)

    @property
    def text(self) -> str:
        """The terms and what is known of them, as commands of egglog."""
        return "\n".join([*self._values(), *self.facts])

    # -- terms -------------------------------------------------------------------------------------------

    def of(self, v: Variable) -> int:
        """The number of the term that a variable is."""
        if v not in self._of:
            self._of[v] = self._leaf(v)
        return self._of[v]

    def _leaf(self, v: Variable) -> int:
        if isinstance(v, Constant) and (value := _one_float(v)) is not None:
            return self._literal(value)
        key: Any = v.signature() if isinstance(v, Constant) else v
        known = ("leaf", key)
        if known not in self._lengths:  # equal constants are one
            self._lengths[known] = self._add(Term("Atom", len(self.terms)), v)
            number = self._lengths[known]
            self._shape_fact(number, v)
            self._fact("Safe", number)
            if isinstance(v, Constant):
                self._fact("Known", number)
                if isinstance(v.type, TensorType) and v.data.dtype.kind in "fiu" and v.data.size:
                    if np.min(v.data) >= 0:
                        self._fact("Nonnegative", number)
        return self._lengths[known]

    def _literal(self, value: float) -> int:
        return self._add(Term("Lit", value + 0.0))

    def _add(self, term: Term, v: Variable | None = None) -> int:
        number = self._numbers.get(term)
        if number is None:
            number = self._numbers[term] = len(self.terms)
            self.terms.append(term)
        if v is not None and term.head != "Lit":
            self.variables.setdefault(number, v)
        return number

    def _node(self, node: Apply) -> None:
        for k, v in enumerate(node.outputs):
            number = self._add(self._term(node, k), v)
            self._of[v] = number
            self._shape_fact(number, v)
        if (factors := kron_of(node)) is not None:
            self.facts += facts_of(*factors, self.table)
            a, b = map(self.of, factors)
            number = self.of(node.outputs[0])
            self.facts.append(f'(union (value {number}) (N2 "kron" (value {a}) (value {b})))')
        if (speculation(node) <= Speculation.CHEAP or _is_total(node)) and all(
            v.owner is None or self.of(v) in self._safe for v in node.inputs
        ):
            for v in node.outputs:
                self._fact("Safe", self.of(v))

    def _term(self, node: Apply, output: int) -> Term:
        op: Any = node.op
        if isinstance(op, Elemwise) and not op.inplace_pattern and len(node.outputs) == 1:
            if (found := self._elementwise(node)) is not None:
                return found
        if (k := self.table.access(node)) is not None:
            if op.__class__.__name__ in ("Subtensor", "AdvancedSubtensor", "AdvancedSubtensor1"):
                if node.inputs[0].type.ndim == node.outputs[0].type.ndim == 1:
                    self.facts.append(f"(Rows {k})")
            operand = self.of(node.inputs[0])
            is_one = all(n == 1 for n in node.outputs[0].type.shape)
            if is_one and self.terms[operand].head == "Lit":  # the number has any rank
                return self.terms[operand]
            return Term("S", k, (operand,))
        return self._other(node, output)

    def _elementwise(self, node: Apply) -> Term | None:
        op: Any = node.op
        if is_named(node, self._is_number):
            name = type(op.scalar_op).__name__
            operands = self._operands(node, name)
            if name in ("Add", "Mul") and len(operands) > 1:
                *first, last = sorted(operands, key=self._is_array)
                left = first[0]
                for right in first[1:]:
                    left = self._add(Term("E2", name, (left, right)))
                return Term("E2", name, (left, last))
        else:
            types = tuple(TensorType(v.type.dtype, (None,) * v.type.ndim) for v in node.inputs)
            types = tuple(t.clone(shape=()) for t in types)  # of whatever rank
            name = f"#{self.table.number(op, types)}"
            operands = [self.of(v) for v in node.inputs]
        if len(operands) > 3:
            return None
        term = Term(f"E{len(operands)}", name, tuple(operands))
        condition = node.inputs[0]
        if name == "Switch" and isinstance(condition, Constant) and condition.type.ndim == 1:
            self._mask(condition, node.outputs[0], term)
        return term

    def _is_number(self, v: Variable) -> bool:
        return self.terms[self.of(v)].head == "Lit"

    def _is_array(self, number: int) -> bool:
        """Numbers first, what has one entry next: partial products of few entries."""
        v = self.variables.get(number)
        return not (v is None or all(n == 1 for n in v.type.shape))

    def _operands(self, node: Apply, name: str) -> list[int]:
        """A constant that is the same everywhere is one number, where another operand has its shape."""
        shape, found = node.outputs[0].type.shape, []
        dtype = node.outputs[0].type.dtype
        if dtype == "bool":  # a comparison: that of what is compared
            dtype = next((v.type.dtype for v in node.inputs if not isinstance(v, Constant)), dtype)
        for k, v in enumerate(node.inputs):
            is_float = dtype in FLOATS and not (name == "Switch" and k == 0)
            if isinstance(v, Constant) and is_float and v.type.dtype != dtype:
                v = constant(v.data.astype(dtype))
            if isinstance(v, Constant) and is_float and v.data.size > 1:
                others = [w for j, w in enumerate(node.inputs) if j != k]
                covered = any(w.type.shape == shape and None not in shape for w in others)
                if covered and np.all(v.data == v.data.flat[0]) and np.isfinite(v.data.flat[0]):
                    found.append(self._literal(float(v.data.flat[0])))
                    continue
            found.append(self.of(v))
        return found

    def _other(self, node: Apply, output: int) -> Term:
        n = 2 if _is_constant_write(node) else len(node.inputs)
        operands = tuple(self.of(v) for v in node.inputs[:n])
        name = _name(node, output)
        if name is None:
            types = tuple(_operand_type(node.op, v.type) for v in node.inputs[:n])
            rest: Any = node.inputs[n:]
            name = f"#{self.table.number(node.op, types, rest, output)}"
            if isinstance(node.op, CheckAndRaise):
                self.facts.append(f'(Checks "{name}")')
            if _is_constant_write(node):
                if node.op.set_instead_of_inc:  # type: ignore[attr-defined]
                    self.facts.append(f'(Put -1 "{name}")')
        if not operands:
            return Term("Atom", len(self.terms))
        return Term({1: "N1", 2: "N2"}.get(len(operands), "NN"), name, operands)

    # -- facts -------------------------------------------------------------------------------------------

    def _fact(self, relation: str, number: int) -> None:
        if relation == "Safe":
            self._safe.add(number)
        self.facts.append(f"({relation} (value {number}))")

    def _shape_fact(self, number: int, v: Variable) -> None:
        if not isinstance(v.type, TensorType) or self.terms[number].head == "Lit":
            return
        shape = self._shape(v)
        self.facts.append(f"(set (shape (value {number})) {shape})")
        head, name, operands = self.terms[number]
        if head == "S" and (of := self.variables.get(operands[0])) is not None:
            self.facts.append(f"(set (read {name} {self._shape(of)}) {shape})")
            if v.owner is not None and _is_within(v.owner):
                self.facts.append(f"(Total {name} {self._shape(of)})")

    def _shape(self, v: Any) -> str:
        """The shape of a variable as a term, and how many entries it has as a fact."""
        lengths = [self._length(v, axis, n) for axis, n in enumerate(v.type.shape)]
        if len(lengths) <= 2:
            shape = f"(Sh{len(lengths)} {' '.join(map(str, lengths))})"
        else:
            k = self._lengths.setdefault(("shape", *lengths), len(self._lengths))
            shape = f"(ShN {k})"
            if min(lengths) >= 0:
                self.facts.append(f"(set (count {shape}) {int(np.prod(lengths))})")
        if not lengths:
            shape = "(Sh0)"
            self.facts.append("(set (count (Sh0)) 1)")
        if all(n == 1 for n in lengths):
            self.facts.append(f"(Ones {shape})")
        return shape

    def _length(self, v: Any, axis: int, known: int | None) -> int:
        if known is not None:
            return known
        length = self._dims.length(v, axis)
        if length.constant is not None and length.constant != 1:
            return length.constant
        return self._lengths.setdefault(length, -1 - len(self._lengths))

    # -- constant conditions -----------------------------------------------------------------------------

    def _mask(self, condition: Constant, out: Variable, term: Term) -> None:
        number = self.of(condition)
        where = condition.data.astype(bool)
        if where.all() or not where.any():
            self._fact("AllTrue" if where.all() else "AllFalse", number)
            return
        if number not in self._masks and len(self._masks) < _MASKS:
            parts = [self.table.rows(np.flatnonzero(rows)) for rows in (where, ~where)]
            self._masks[number] = where, *parts
            self.facts.append(f"(Parts (value {number}) {parts[0]} {parts[1]})")
            for k in parts:
                self.facts.append(f"(Rows {k})")
                [index] = self.table.entries[k].rest
                self.facts.append(f"(set (read {k} (Sh1 {len(where)})) (Sh1 {len(index.data)}))")
                self.facts.append(f"(Total {k} (Sh1 {len(where)}))")
        if number in self._masks and out.type.shape == condition.type.shape:
            zeros = self._leaf(constant(np.zeros(where.shape, out.type.dtype)))
            switch = self._add(term)
            self.facts.append(f"(Base (value {switch}) (value {zeros}))")
            for k in self._masks[number][1:]:
                self._put(k, out)

    def _put(self, k: int, like: Variable) -> None:
        """The write to the rows that the access ``k`` reads."""
        [index] = self.table.entries[k].rest
        vector = TensorType(like.type.dtype, like.type.shape)
        rows = TensorType(like.type.dtype, (index.type.shape[0],))
        node = vector()[index].set(rows()).owner  # type: ignore[attr-defined]
        rest: Any = list(node.inputs[2:])
        number = self.table.number(node.op, (vector, rows), rest)
        self.facts.append(f'(Put {k} "#{number}")')

    def _mask_facts(self) -> None:
        """Where one condition is the same in a part that another one makes."""
        for _, i, j in list(self._masks.values()):
            for k in (i, j):
                [index] = self.table.entries[k].rest
                for number, (where, *_) in self._masks.items():
                    if len(where) <= np.max(index.data):
                        continue
                    part = where[index.data]
                    for all_of, relation in ((part, "AllTrue"), (~part, "AllFalse")):
                        if all_of.all():
                            self.facts.append(f"({relation} (S {k} (value {number})))")

    # -- sufficient statistics ---------------------------------------------------------------------------

    def _statistics(self, p: int, found: Statistics, graph: FunctionGraph) -> None:
        """The constants of the p-th set of rows in coordinates, and what reads and writes fewer rows."""
        n, m = found.n, len(found.ones)
        for shape, few, ones in (
            (f"(Sh1 {n})", f"(Sh1 {m})", found.ones),
            (f"(Sh2 {n} 1)", f"(Sh2 {m} 1)", found.ones[:, None]),
        ):
            one = self._leaf(constant(ones))
            self.facts.append(f"(set (short {p} {shape}) {few})")
            self.facts.append(f"(Ones1 {p} {shape} (value {one}))")
        for v, value in found.columns.items():
            of, new = self.of(v), self._leaf(constant(value))
            self._fact("Safe", of)  # it has been computed
            is_matrix = value.ndim == 2 and value.shape[1] > 1
            self.facts.append(f"({'Columns' if is_matrix else 'Span'} {p} (value {of}))")
            if value.ndim == 2:
                self.facts.append(f"(Columns {p} (value {of}))")
            self.facts.append(f"(union (Lin {p} (value {of})) (value {new}))")
        for v, value in found.across.items():
            new = self._leaf(constant(value))
            self.facts.append(f"(Across {p} (value {self.of(v)}) (value {new}))")
        for node in found.gathers:
            k, few_rows = self.table.access(node), at_rows(node, found.row_of)
            fewer = self.table.access(few_rows)
            of = self._shape(node.inputs[0])
            self.facts.append(f"(FewerRows {p} {k} {fewer})")
            self.facts.append(f"(set (read {fewer} {of}) (Sh1 {m}))")
            self.facts.append(f"(Rows {fewer})")
        for node in found.scatters:
            name = self.terms[self.of(node.outputs[0])].name
            types = self.table.named(name).types
            rest: Any = at_rows(node, found.row_of).inputs[2:]
            few = self.table.number(node.op, types, rest)
            self.facts.append(f'(FewerWritten {p} "{name}" "#{few}")')
        for node in graph.apply_nodes:
            if is_layout(node) and (k := self.table.access(node)) is not None:
                self.facts.append(f"(Layout {k})")

    # -- as text -----------------------------------------------------------------------------------------

    def _values(self) -> Iterator[str]:
        for number, (head, name, operands) in enumerate(self.terms):
            args = [f"(value {k})" for k in operands]
            what = f'"{name}"' if isinstance(name, str) else _number(name)
            if head == "NN":
                args = [_list(args)]
            yield f"(set (value {number}) ({head} {what} {' '.join(args)}))"


def _number(x: float) -> str:
    if isinstance(x, int):
        return str(x)
    return repr(x) if np.isfinite(x) else ("inf" if x > 0 else "-inf")


def _list(args: Sequence[str]) -> str:
    text = "(Nil)"
    for one in reversed(args):
        text = f"(Cons {one} {text})"
    return text


def _one_float(v: Constant) -> float | None:
    """The number that a constant of one entry is, where it is a float; nan is equal to nothing."""
    if not isinstance(v.type, TensorType) or v.type.dtype not in FLOATS or v.data.size != 1:
        return None
    value = float(v.data.flat[0])
    return None if np.isnan(value) else value


def _name(node: Apply, output: int) -> str | None:
    """What the rules call an op that is not elementwise, None for most."""
    op: Any = node.op
    op = op.core_op if isinstance(op, Blockwise) else op
    types = [v.type for v in node.inputs]
    if (
        not all(isinstance(t, TensorType) for t in types)
        or node.outputs[0].type.dtype not in FLOATS
    ):
        return None
    if len({t.dtype for t in (*types, node.outputs[0].type)}) > 1:
        return None
    ranks = [t.ndim for t in types]
    if isinstance(op, Sum) and node.outputs[0].type.ndim == 0:
        usual = op.acc_dtype in (None, "float64", types[0].dtype)
        return "sum" if usual and types[0].dtype == "float64" else None
    if isinstance(op, CAReduce):
        return None
    if isinstance(op, Dot) and max(ranks) <= 2 and min(ranks) >= 1:
        return "dot"
    if isinstance(op, MatrixInverse) and ranks == [2]:
        return "inv"
    if isinstance(op, Det) and ranks == [2]:
        return "det"
    if isinstance(op, SLogDet) and ranks == [2]:
        return ("signdet", "logdet")[output]
    if isinstance(op, ExtractDiag) and ranks == [2] and op == ExtractDiag(0, 0, 1, op.view):
        return "diag"
    if isinstance(op, Solve) and ranks[0] == 2 and op == Solve(b_ndim=op.b_ndim):
        return f"solve{op.b_ndim}" if ranks[1] == op.b_ndim else None
    return None


def _is_total(node: Apply) -> bool:
    """Whether a node raises nothing that is dear, so that nobody would run it where it did not."""
    if isinstance(node.op, Sum | All | AnyOf | CumOp):
        return all(0 not in v.type.shape for v in node.inputs)  # type: ignore[attr-defined]
    if isinstance(node.op, Reshape):
        lengths: Any = [v.type.shape for v in (node.inputs[0], node.outputs[0])]  # type: ignore[attr-defined]
        known = not any(None in one for one in lengths)
        return known and np.prod(lengths[0]) == np.prod(lengths[1])
    return False


def _in_any_case(graph: FunctionGraph) -> list[Variable]:
    """What is computed in any case, so that it raises whatever a rule drops elsewhere.

    Rules drop what a fill is given for its shape, and what a `switch` is given: from there on nothing is.
    """
    seen = dict.fromkeys(graph.outputs)
    stack = list(seen)
    while stack:
        node = stack.pop().owner
        if node is None or isinstance(node.op, HasInnerGraph | IfElse | Blockwise):
            continue
        scalar: Any = getattr(node.op, "scalar_op", None)
        if isinstance(scalar, ps.Switch):
            continue
        for v in node.inputs[1:] if isinstance(scalar, ps.Second) else node.inputs:
            if v not in seen:
                seen[v] = None
                stack.append(v)
    return [v for v in seen if v.owner is not None]


def _is_within(node: Apply) -> bool:
    """Whether what an access reads is there, so that it raises nothing."""
    lengths: Any = node.inputs[0].type.shape  # type: ignore[attr-defined]  # of a tensor
    if isinstance(node.op, AdvancedSubtensor) and len(lengths) == 1 and lengths[0] is not None:
        index = [v.data for v in node.inputs[1:] if isinstance(v, Constant)]
        return len(index) == 1 and bool(np.all((-lengths[0] <= index[0]) & (index[0] < lengths[0])))
    return not errors(node)


def _operand_type(op: Any, t: Any) -> Any:
    """What an operand has to be: of an op with a body the very type, else which axes are broadcast."""
    if not isinstance(t, TensorType) or isinstance(op, HasInnerGraph | Blockwise):
        return t
    if isinstance(op, CheckAndRaise):
        return t.clone(shape=())  # it passes on whatever it is given
    return TensorType(t.dtype, tuple(1 if n == 1 else None for n in t.shape))


def _is_constant_write(node: Apply) -> bool:
    """Whether a node sets or adds at constant positions: of two operands."""
    op: Any = node.op
    kinds = (IncSubtensor, AdvancedIncSubtensor, AdvancedIncSubtensor1)
    return isinstance(op, kinds) and all(isinstance(v, Constant) for v in node.inputs[2:])
