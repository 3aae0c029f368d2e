"""Conversion of a graph to terms, each once; `language.py` describes the language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import constant
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from loopax.base.upstream.pytensor import AdvancedSubtensor1
from loopax.extensions.egraph.kronecker import facts_of, kron_of
from loopax.extensions.egraph.node_names import (
    in_any_case,
    is_total,
    is_within,
    is_write,
    name_of,
    operand_type,
)
from loopax.extensions.egraph.op_table import FLOATS, OpTable, is_named
from loopax.facts.elementwise import is_elementwise
from loopax.ir.effects import Speculation, speculation
from loopax.ir.sizes import unconditional_dims_of


class Term(NamedTuple):
    """A constructor of the language, its name or number, and the numbers of its operands."""

    head: str
    name: Any  # a string, a number
    operands: tuple[int, ...] = ()


class Encoded:
    """The terms of a graph.

    Attributes
    ----------
    terms
        Distinct terms, each after its operands.
    variables
        Number of a term -> its variable in the graph, if there is one.
    outputs
        The numbers of the graph's outputs.
    facts
        Facts of the terms, as commands of egglog.
    switches
        The constant conditions of one axis, each with its variable and its term.
    """

    def __init__(self, graph: FunctionGraph) -> None:
        self.terms: list[Term] = []
        self.variables: dict[int, Variable] = {}
        self.table = OpTable()
        self.facts: list[str] = []
        self._numbers: dict[Term, int] = {}
        self._number_of: dict[Variable, int] = {}
        self._dims = unconditional_dims_of(graph)
        self._lengths: dict[Any, int] = {}
        self.switches: list[tuple[Constant, Variable, int]] = []
        self._safe: set[int] = set()
        for node in graph.toposort():
            self._node(node)
        self.outputs = [self.number_of(v) for v in graph.outputs]
        for v in in_any_case(graph):
            self.fact("Safe", self.number_of(v))

    @property
    def text(self) -> str:
        """The terms and their facts, as commands of egglog."""
        return "\n".join([*self._values(), *self.facts])

    # -- terms -------------------------------------------------------------------------------------------

    def number_of(self, v: Variable) -> int:
        if v not in self._number_of:
            self._number_of[v] = self.leaf(v)
        return self._number_of[v]

    def leaf(self, v: Variable) -> int:
        if isinstance(v, Constant) and (value := _one_float(v)) is not None:
            return self._literal(value)
        # A slice has no hash before Python 3.12.
        is_array = isinstance(v, Constant) and isinstance(v.type, TensorType)
        key: Any = v.signature() if is_array else v  # type: ignore[attr-defined]
        leaf_key = ("leaf", key)
        if leaf_key not in self._lengths:  # equal constants are one
            self._lengths[leaf_key] = self.add(Term("Atom", len(self.terms)), v)
            number = self._lengths[leaf_key]
            self._shape_fact(number, v)
            self.fact("Safe", number)
            if isinstance(v, Constant):
                self.fact("Known", number)
                if isinstance(v.type, TensorType) and v.data.dtype.kind in "fiu" and v.data.size:
                    if np.min(v.data) >= 0:
                        self.fact("Nonnegative", number)
        return self._lengths[leaf_key]

    def _literal(self, value: float) -> int:
        return self.add(Term("Lit", value + 0.0))

    def add(self, term: Term, v: Variable | None = None) -> int:
        number = self._numbers.get(term)
        if number is None:
            number = self._numbers[term] = len(self.terms)
            self.terms.append(term)
        if v is not None and term.head != "Lit":
            self.variables.setdefault(number, v)
        return number

    def _node(self, node: Apply) -> None:
        for k, v in enumerate(node.outputs):
            number = self.add(self._term(node, k), v)
            self._number_of[v] = number
            self._shape_fact(number, v)
        if (factors := kron_of(node)) is not None:
            self.facts += facts_of(*factors, self.table)
            a, b = map(self.number_of, factors)
            number = self.number_of(node.outputs[0])
            self.facts.append(f'(union (value {number}) (N2 "kron" (value {a}) (value {b})))')
        if (speculation(node) <= Speculation.CHEAP or is_total(node)) and all(
            v.owner is None or self.number_of(v) in self._safe for v in node.inputs
        ):
            for v in node.outputs:
                self.fact("Safe", self.number_of(v))

    def _term(self, node: Apply, output: int) -> Term:
        op: Any = node.op
        if is_elementwise(node) and not op.inplace_pattern and len(node.outputs) == 1:
            if (term := self._elementwise(node)) is not None:
                return term
        if (k := self.table.access(node)) is not None:
            if isinstance(op, Subtensor | AdvancedSubtensor | AdvancedSubtensor1):
                if node.inputs[0].type.ndim == node.outputs[0].type.ndim == 1:
                    self.facts.append(f"(Rows {k})")
            operand = self.number_of(node.inputs[0])
            is_one = all(n == 1 for n in node.outputs[0].type.shape)
            if is_one and self.terms[operand].head == "Lit":  # the number has any rank
                return self.terms[operand]
            return Term("S", k, (operand,))
        return self._opaque_term(node, output)

    def _elementwise(self, node: Apply) -> Term | None:
        op: Any = node.op
        if is_named(node, lambda v: self.terms[self.number_of(v)].head == "Lit"):
            name = type(op.scalar_op).__name__
            operands = self._operands(node, name)
            if name in ("Add", "Mul") and len(operands) > 1:
                *first, last = sorted(operands, key=self._is_array)
                partial = first[0]
                for right in first[1:]:
                    partial = self.add(Term("E2", name, (partial, right)))
                return Term("E2", name, (partial, last))
        else:
            types = tuple(TensorType(v.type.dtype, (None,) * v.type.ndim) for v in node.inputs)
            types = tuple(t.clone(shape=()) for t in types)  # of any rank
            name = f"#{self.table.number(op, types)}"
            operands = [self.number_of(v) for v in node.inputs]
        if len(operands) > 3:
            return None
        term = Term(f"E{len(operands)}", name, tuple(operands))
        condition = node.inputs[0]
        if name == "Switch" and isinstance(condition, Constant) and condition.type.ndim == 1:
            self.switches.append((condition, node.outputs[0], self.add(term)))
        return term

    def _is_array(self, number: int) -> bool:
        """Whether a term has more than one entry; such operands come last in products."""
        v = self.variables.get(number)
        return not (v is None or all(n == 1 for n in v.type.shape))

    def _operands(self, node: Apply, name: str) -> list[int]:
        """Operands of a node; a uniform constant is a number if another operand has its shape."""
        shape, numbers = node.outputs[0].type.shape, []
        dtype = node.outputs[0].type.dtype
        if dtype == "bool":  # a comparison takes the dtype of its operands
            dtype = next((v.type.dtype for v in node.inputs if not isinstance(v, Constant)), dtype)
        for k, v in enumerate(node.inputs):
            is_float = dtype in FLOATS and not (name == "Switch" and k == 0)
            if isinstance(v, Constant) and is_float and v.type.dtype != dtype:
                v = constant(v.data.astype(dtype))
            if isinstance(v, Constant) and is_float and v.data.size > 1:
                siblings = [w for j, w in enumerate(node.inputs) if j != k]
                covered = any(w.type.shape == shape and None not in shape for w in siblings)
                if covered and np.all(v.data == v.data.flat[0]) and np.isfinite(v.data.flat[0]):
                    numbers.append(self._literal(float(v.data.flat[0])))
                    continue
            numbers.append(self.number_of(v))
        return numbers

    def _opaque_term(self, node: Apply, output: int) -> Term:
        n = 2 if is_write(node) else len(node.inputs)
        operands = tuple(self.number_of(v) for v in node.inputs[:n])
        name = name_of(node, output)
        if name is None:
            types = tuple(operand_type(node.op, v.type) for v in node.inputs[:n])
            constants: Any = node.inputs[n:]
            name = f"#{self.table.number(node.op, types, constants, output)}"
            if isinstance(node.op, CheckAndRaise):
                self.facts.append(f'(Checks "{name}")')
            if is_write(node):
                # A function of values of another dtype would round them in that dtype.
                is_of_one_dtype = len({v.type.dtype for v in node.inputs[:2]}) == 1
                if node.op.set_instead_of_inc and is_of_one_dtype:
                    self.facts.append(f'(Put -1 "{name}")')
        if not operands:
            return Term("Atom", len(self.terms))
        return Term({1: "N1", 2: "N2"}.get(len(operands), "NN"), name, operands)

    # -- facts -------------------------------------------------------------------------------------------

    def fact(self, relation: str, number: int) -> None:
        if relation == "Safe":
            self._safe.add(number)
        self.facts.append(f"({relation} (value {number}))")

    def _shape_fact(self, number: int, v: Variable) -> None:
        if not isinstance(v.type, TensorType) or self.terms[number].head == "Lit":
            return
        shape = self.shape_of(v)
        self.facts.append(f"(set (shape (value {number})) {shape})")
        head, name, operands = self.terms[number]
        if head == "S" and (operand := self.variables.get(operands[0])) is not None:
            self.facts.append(f"(set (read {name} {self.shape_of(operand)}) {shape})")
            if v.owner is not None and is_within(v.owner):
                self.facts.append(f"(Total {name} {self.shape_of(operand)})")

    def shape_of(self, v: Variable) -> str:
        """The shape of a variable as a term; adds its number of entries to the facts."""
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

    def _length(self, v: Variable, axis: int, static: int | None) -> int:
        if static is not None:
            return static
        length = self._dims.length(v, axis)
        if length.constant is not None and length.constant != 1:
            return length.constant
        return self._lengths.setdefault(length, -1 - len(self._lengths))

    # -- as text -----------------------------------------------------------------------------------------

    def _values(self) -> Iterator[str]:
        for number, (head, name, operands) in enumerate(self.terms):
            args = [f"(value {k})" for k in operands]
            name_text = f'"{name}"' if isinstance(name, str) else _number(name)
            if head == "NN":
                args = [_list(args)]
            yield f"(set (value {number}) ({head} {name_text} {' '.join(args)}))"


def _number(x: float) -> str:
    if isinstance(x, int):
        return str(x)
    return repr(x) if np.isfinite(x) else ("inf" if x > 0 else "-inf")


def _list(args: Sequence[str]) -> str:
    text = "(Nil)"
    for head in reversed(args):
        text = f"(Cons {head} {text})"
    return text


def _one_float(v: Constant) -> float | None:
    """The value of a float constant of one entry; None for nan, which equals nothing, and others."""
    if not isinstance(v.type, TensorType) or v.type.dtype not in FLOATS or v.data.size != 1:
        return None
    value = float(v.data.flat[0])
    return None if np.isnan(value) else value
