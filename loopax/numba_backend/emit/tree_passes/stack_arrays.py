"""Stack promotion: small arrays of known size that no reference outlives are on the stack.

    a = empty((2, 2), np.float64)        a = on_stack((2, 2), np.float64)
    matmul(b, c, a)                 ->   matmul(b, c, a)
    x = a[0, 1]                          x = a[0, 1]

An array qualifies if its name is assigned once and each use of the name, or of a view of it, reads or
writes elements, or is an argument that the called function does not capture. A returned array, or one
that a state exchanges with another, does not qualify.

Every run of such a statement uses the same memory. If one statement allocates two arrays, in two steps of a
loop, the program has a single name for both and can read only the last one; and a view is used only after
the statement that creates it, in the same block, so that it is a view of that last one, too.

In the literature: escape analysis and stack promotion.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from loopax.numba_backend.emit.expressions import Expr
from loopax.numba_backend.emit.statements import Assign, Block, Function, Region, blocks_in
from loopax.numba_backend.runtime.checks import FUNCTIONS

# Bytes of an array, and of all arrays of a function: a thread of XLA's has a stack of megabytes.
_LARGEST, _MOST = 512, 16_384
_VIEWS = {"in_line", "view_of_run"}
_MAY_RETURN_IT = {"finite_or_identity", "nonempty", "factor_of_empty"}
# Functions that keep no reference to an argument.
_BORROWING = frozenset(FUNCTIONS) - _VIEWS - _MAY_RETURN_IT


def is_short_array(shape: Sequence[Any], dtype: str) -> bool:
    """Whether the lengths in ``shape`` are known, and the stack has room for the array."""
    is_known = all(isinstance(n, int) for n in shape)
    return is_known and prod(shape) * np.dtype(dtype).itemsize <= _LARGEST


def promote_to_stack(function: Function, callees: Mapping[str, ArrayUses]) -> ArrayUses:
    """Allocate the arrays that qualify in ``function``, which calls ``callees``, on the stack.

    Returns its uses of arrays, for the functions that call it.
    """
    uses = ArrayUses(str(function), callees)
    size, names = 0, set()
    for name, (shape, dtype) in uses.allocated().items():
        n_bytes = prod(shape) * np.dtype(dtype).itemsize
        is_short = is_short_array(shape, dtype)
        if is_short and size + n_bytes <= _MOST and uses.are_private(name, len(shape)):
            names.add(name)
            size += n_bytes
    _replace(function.body, names)
    return uses


def _replace(block: Block, names: set[str]) -> None:
    for k, statement in enumerate(block.statements):
        if isinstance(statement, Assign) and statement.targets[0].text in names:
            text = statement.value.text.replace("empty(", "on_stack(", 1)
            block.statements[k] = Assign(statement.targets, Expr(text))
        elif isinstance(statement, Block):
            _replace(statement, names)
        elif isinstance(statement, Region):
            if statement.call is None:
                _replace(statement.body, names)
        else:
            for inner in blocks_in(statement):
                _replace(inner, names)


class _Tree:
    """The syntax tree of a function: parameters, reads and assignments of each name, and parent nodes."""

    def __init__(self, text: str) -> None:
        self.parents: dict[ast.AST, tuple[ast.AST, str]] = {}
        self.reads: dict[str, list[ast.Name]] = defaultdict(list)
        self.n_assigned: dict[str, int] = defaultdict(int)
        (definition,) = ast.parse(text).body
        assert isinstance(definition, ast.FunctionDef)
        self.parameters = [x.arg for x in definition.args.args]
        self.nodes: list[ast.AST] = [definition]
        for node in self.nodes:  # those that are appended, too
            for field in node._fields:
                children = getattr(node, field)
                for child in children if isinstance(children, list) else [children]:
                    if isinstance(child, ast.expr | ast.stmt | ast.keyword):
                        self.parents[child] = node, field
                        self.nodes.append(child)
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load):
                    self.reads[node.id].append(node)
                else:
                    self.n_assigned[node.id] += 1

    def blocks_around(self, node: ast.AST) -> set[tuple[ast.AST, str]]:
        blocks = set()
        while node in self.parents:
            blocks.add(self.parents[node])
            node = self.parents[node][0]
        return blocks


class ArrayUses:
    """Uses of arrays by the locals of a function, which calls ``callees``."""

    def __init__(self, text: str, callees: Mapping[str, ArrayUses]) -> None:
        self._text = text
        self._callees = callees

    @cached_property
    def _tree(self) -> _Tree:  # few functions are asked
        return _Tree(self._text)

    def allocated(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """The shape and the dtype of each array of known size whose name is assigned once."""
        arrays: dict[str, tuple[tuple[int, ...], str]] = {}
        for node in self._tree.nodes if "empty(" in self._text else ():
            match node:
                case ast.Assign(
                    [ast.Name(name)],
                    ast.Call(ast.Name("empty"), [ast.Tuple(lengths), ast.Attribute(_, dtype)]),
                ) if self._tree.n_assigned[name] == 1:
                    shape: list[Any] = [getattr(n, "value", None) for n in lengths]
                    if all(isinstance(n, int) for n in shape):
                        arrays[name] = tuple(shape), dtype.rstrip("_")
        return arrays

    def are_private(self, name: str, ndim: int) -> bool:
        """Whether no reference to an array of ``ndim`` axes outlives its uses by ``name``."""
        return all(self._is_private(use, ndim) for use in self._tree.reads[name])

    def captures(self, position: int, ndim: int) -> bool:
        """Whether a reference to an argument of ``ndim`` axes may outlive a call."""
        parameter = self._tree.parameters[position]
        return parameter in self._tree.n_assigned or not self.are_private(parameter, ndim)

    def _is_private(self, use: ast.expr, ndim: int) -> bool:
        parent, field = self._tree.parents[use]
        match parent:
            case ast.Subscript(_, index) if field == "value":
                is_target = not isinstance(parent.ctx, ast.Load)
                return is_target or _is_element(index, ndim)
            case ast.Attribute(_, "shape"):
                return True
            case ast.Attribute(_, "T"):
                return self._is_private(parent, ndim)
            case ast.Call(ast.Name(function), args) if field == "args":
                if function in _VIEWS and args[0] is use:
                    return self._is_view_private(parent)
                if (callee := self._callees.get(function)) is not None:
                    return not callee.captures(args.index(use), ndim)
                return function in _BORROWING
            case _:
                return False

    def _is_view_private(self, view: ast.Call) -> bool:
        shape, tree = view.args[-1], self._tree
        ndim = len(shape.elts) if isinstance(shape, ast.Tuple) else 1
        statement, _ = tree.parents[view]
        match statement:
            case ast.Assign([ast.Name(name)]) if tree.n_assigned[name] == 1:
                block = tree.parents[statement]
                return self.are_private(name, ndim) and all(
                    use.lineno > statement.lineno and block in tree.blocks_around(use)
                    for use in tree.reads[name]
                )
            case _:
                return self._is_private(view, ndim)


def _is_element(index: ast.expr, ndim: int) -> bool:
    """Whether an index of an array of ``ndim`` axes has a number for each of them."""
    indices = index.elts if isinstance(index, ast.Tuple) else [index]
    numbers = (
        isinstance(i, ast.Name | ast.BinOp | ast.UnaryOp | ast.Call | ast.IfExp | ast.Subscript)
        or (isinstance(i, ast.Constant) and isinstance(i.value, int))
        for i in indices
    )
    return len(indices) == ndim and all(numbers)
