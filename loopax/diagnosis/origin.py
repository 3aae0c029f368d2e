"""A variable in a report: its name, its expression, and the user's line that made it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle

from loopax.base.errors import source_line
from loopax.facts.axes import unshuffled
from loopax.facts.elementwise import is_elementwise, scalar_op_of

_DEPTH = 3  # levels of operations in an expression
_INFIX = {"add": "+", "sub": "-", "mul": "*", "true_div": "/", "int_div": "//", "pow": "**"}
_INFIX |= {"gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "neq": "!="}
_FUNCTIONS = {"neg": "-", "sqr": "sqr", "switch": "where"}
# Ops that PyTensor inserts, which say nothing to a reader.
_SILENT = ("Cast", "TensorFromScalar", "ScalarFromTensor", "DimShuffle", "SpecifyShape", "Checked")


class Origin:
    """A line of a user's source: ``file.py:12`` and its text, each empty where unknown."""

    def __init__(self, variable: Variable) -> None:
        self._set_line(source_line(variable))

    @classmethod
    def parsed(cls, line: str) -> Origin:
        """Parse the text of `source_line`."""
        origin = cls.__new__(cls)
        origin._set_line(line)
        return origin

    def _set_line(self, line: str) -> None:
        where, _, self.code = line.partition(": ")
        place, _, _ = where.partition(", in ")
        self.place = _short(place)

    def __str__(self) -> str:
        return f"{self.place}: {self.code}" if self.place else ""


def _short(place: str) -> str:
    """``place`` relative to the current directory, if it is below it."""
    path, colon, line = place.rpartition(":")
    if not colon:
        return place
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return place
    return f"{path if relative.startswith('..') else relative}:{line}"


def op_name(op: Op) -> str:
    """The common name of an op: ``Log``, ``Cholesky``, ``Sum``."""
    if isinstance(op, Blockwise):
        return op_name(op.core_op)
    if (scalar := scalar_op_of(op)) is not None:
        return str(scalar.name or type(scalar).__name__).capitalize()
    if isinstance(op, CAReduce):
        return type(op).__name__
    return re.split(r"[{(]", str(op), maxsplit=1)[0] or type(op).__name__


def expression(
    variable: Variable, names: Mapping[Variable, str] | None = None, depth: int = _DEPTH
) -> str:
    """``variable`` as an expression of named values, a few operations deep.

    >>> import pytensor.tensor as pt
    >>> h, x = pt.dscalars("h", "x")
    >>> expression(pt.log(h) + x**2 / h)
    'log(h) + x ** 2 / h'
    """
    names = names or {}
    if variable in names:
        return str(names[variable])
    if isinstance(variable, Constant):
        is_number = getattr(variable.type, "ndim", 1) == 0
        return _constant(variable.data) if is_number or not variable.name else str(variable.name)
    if variable.owner is None:
        return variable.name or "an input"
    if variable.name and depth < _DEPTH:
        return str(variable.name)
    node = variable.owner
    if type(node.op).__name__ in _SILENT or op_name(node.op) in _SILENT:
        return expression(node.inputs[0], names, depth)
    if depth == 0:
        return "…"
    inner = [expression(v, names, depth - 1) for v in node.inputs]
    name = op_name(node.op).lower()
    if is_elementwise(node) and name in _INFIX and len(inner) > 1:
        operands = [
            f"({x})" if _binds_less(v, name) else x for v, x in zip(node.inputs, inner, strict=True)
        ]
        return f" {_INFIX[name]} ".join(operands)
    if isinstance(node.op, DimShuffle):
        return inner[0]
    if name == "neg":
        return f"-({inner[0]})" if " " in inner[0] else f"-{inner[0]}"
    if name.startswith("subtensor"):
        return f"{inner[0]}[{', '.join(inner[1:]) or '…'}]"
    return f"{_FUNCTIONS.get(name, name)}({', '.join(inner)})"


_STRENGTH = {"add": 1, "sub": 1, "mul": 2, "true_div": 2, "int_div": 2, "pow": 3}


def _binds_less(operand: Variable, around: str) -> bool:
    """Whether ``operand`` needs parentheses inside of the infix operation ``around``."""
    node = unshuffled(operand).owner
    if operand.name or not is_elementwise(node):
        return False
    inner = op_name(node.op).lower()
    if inner not in _INFIX:
        return False
    strength, outer = _STRENGTH.get(inner, 0), _STRENGTH.get(around, 0)
    return strength < outer or (strength == outer and around in ("sub", "true_div", "pow"))


def _constant(data: object) -> str:
    size = getattr(data, "size", 1)
    if getattr(data, "ndim", 0) == 0 or size == 1:
        try:
            return f"{data.item():.6g}" if hasattr(data, "item") else str(data)
        except (TypeError, ValueError):
            return str(data)
    return f"a constant of shape {data.shape}" if hasattr(data, "shape") else "a constant"
