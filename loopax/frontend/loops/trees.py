"""Pytrees of PyTensor variables: nested tuples, lists, dicts, named tuples, dataclasses, None.

`jax.tree` treats an unregistered dataclass as a leaf. Here it is a node with the fields that its
constructor takes, without global registration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental.sparse import BCOO
from pytensor.graph.basic import Variable

from loopax.base.errors import LoopTypeError
from loopax.frontend.loops.fixed import Fixed
from loopax.ir.named_axes import axis_names, with_names, without_names

# Most leaves, which need no further look.
_PLAIN_LEAVES = frozenset({bool, int, float, complex, np.ndarray})


class Tree(NamedTuple):
    """The structure of a pytree whose leaves are variables or values. Hashable.

    ``boxes`` has a builder for each leaf of ``treedef`` that is a dataclass, a tensor with named axes
    or a static value, and None for other leaves; it is empty without such leaves.
    """

    treedef: Any
    boxes: tuple[Any, ...] = ()

    def build(self, leaves: Any, axis_name: str = "step") -> Any:
        """Build the pytree of ``leaves``; ``axis_name`` names an additional leading axis."""
        if not self.boxes:
            return jax.tree.unflatten(self.treedef, leaves)
        remaining = iter(leaves)
        children = [
            next(remaining) if box is None else box.build(remaining, axis_name)
            for box in self.boxes
        ]
        return jax.tree.unflatten(self.treedef, children)

    def leaves_of(self, tree: object) -> list[Any]:
        """The subtrees of ``tree`` at the positions of this structure's leaves."""
        tops = self.treedef.flatten_up_to(tree)
        if not self.boxes:
            return list(tops)
        return [
            leaf
            for x, box in zip(tops, self.boxes, strict=True)
            for leaf in ([x] if box is None else box.leaves_of(x))
        ]

    @property
    def axis_name(self) -> str:
        """The name of the axis along which a loop takes rows."""
        named = [box for box in self.boxes if isinstance(box, _Named) and box.names]
        return named[0].names[0] if named else "step"

    @property
    def n_leaves(self) -> int:
        if not self.boxes:
            return int(self.treedef.num_leaves)
        return sum(1 if box is None else box.n_leaves for box in self.boxes)


class _Box(NamedTuple):
    """A dataclass that is not a registered pytree."""

    kind: type
    names: tuple[str, ...]
    tree: Tree

    def __str__(self) -> str:
        return self.kind.__name__

    @property
    def n_leaves(self) -> int:
        return self.tree.n_leaves

    def build(self, leaves: Iterator[Any], axis_name: str) -> Any:
        values = self.tree.build([next(leaves) for _ in range(self.tree.n_leaves)], axis_name)
        return self.kind(**dict(zip(self.names, values, strict=True)))

    def leaves_of(self, x: object) -> list[Any]:
        return self.tree.leaves_of(tuple(getattr(x, name) for name in self.names))


class _Named(NamedTuple):
    """A tensor with named axes, whose leaf is the plain tensor."""

    names: tuple[str, ...]

    @property
    def n_leaves(self) -> int:
        return 1

    def __str__(self) -> str:
        return f"axes ({', '.join(self.names)})"

    def build(self, leaves: Iterator[Any], axis_name: str) -> Any:
        """The tensor, a row of it, or a stack with a row for each step; an array is returned unchanged."""
        x = next(leaves)
        if not isinstance(x, Variable) or not hasattr(x.type, "ndim"):
            return x
        n = len(self.names)
        by_rank = {n: self.names, n - 1: self.names[1:], n + 1: (axis_name, *self.names)}
        return with_names(x, by_rank[x.type.ndim])

    def leaves_of(self, x: object) -> list[Any]:
        return [without_names(x) if isinstance(x, Variable) else x]


class _Value(NamedTuple):
    """A static argument, without leaves."""

    fixed: Fixed

    @property
    def n_leaves(self) -> int:
        return 0

    def __str__(self) -> str:
        return repr(self.fixed)

    def build(self, leaves: Iterator[Any], axis_name: str) -> Any:
        return self.fixed

    def leaves_of(self, x: object) -> list[Any]:
        return []


def flatten(tree: object) -> tuple[list[Any], Tree]:
    """The leaves of ``tree``, variables and sparse matrices among them, and its structure."""
    tops, treedef = jax.tree.flatten(tree, is_leaf=_is_leaf)
    leaves: list[Any] = []
    boxes: list[_Box | _Named | _Value | None] = []
    for x in tops:
        if type(x) in _PLAIN_LEAVES:
            leaves.append(x)
            boxes.append(None)
        elif isinstance(x, Fixed):
            boxes.append(_Value(x))
        elif _is_plain_dataclass(x):
            names = _names(x)
            inner, structure = flatten(tuple(getattr(x, name) for name in names))
            leaves += inner
            boxes.append(_Box(type(x), names, structure))
        elif (axes := axis_names(x)) is not None:
            leaves.append(without_names(x))
            boxes.append(_Named(axes))
        else:
            leaves.append(x)
            boxes.append(None)
    return leaves, Tree(treedef, tuple(boxes) if any(boxes) else ())


def leaf_names(tree: object) -> list[str]:
    """The paths to the leaves, as in ``a``, ``a[0]``, ``a['key']``."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_leaf)
    all_names = []
    for path, leaf in paths:
        name = jax.tree_util.keystr(path)
        if _is_plain_dataclass(leaf):
            inner = [(n, leaf_names(getattr(leaf, n))) for n in _names(leaf)]
            all_names += [f"{name}.{n}{tail}" for n, names in inner for tail in names]
        elif not isinstance(leaf, Fixed):
            all_names.append(name)
    return all_names


def is_traced(x: object) -> bool:
    """Whether ``x`` is a value of a program that JAX is tracing."""
    return isinstance(x, jax.core.Tracer)


def is_sparse(x: object) -> bool:
    """Whether ``x`` is a sparse matrix of JAX, which JAX itself treats as a tree of arrays."""
    return isinstance(x, BCOO)


def _is_leaf(x: object) -> bool:
    return isinstance(x, (Variable, BCOO))


def _is_plain_dataclass(x: object) -> bool:
    return is_dataclass(x) and not isinstance(x, type | Variable)


def _names(x: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(x) if f.init)


def match_prefix(prefix: object, tree: object, label: str) -> list[Any]:
    """The entry of ``prefix``, a prefix of the pytree ``tree``, for each leaf of ``tree``.

    None is a leaf of ``prefix``.

    Raises `LoopTypeError` if ``prefix`` is not a prefix of ``tree``; ``label`` names it.
    """
    if prefix is None or isinstance(prefix, int):
        return [prefix] * len(flatten(tree)[0])
    tops, treedef = jax.tree.flatten(prefix, is_leaf=lambda x: x is None)
    structure: Any = treedef
    try:
        subtrees = structure.flatten_up_to(tree)
    except ValueError as error:
        raise LoopTypeError(
            f"{label} is {prefix!r}, which is not a prefix of {tree!r}: {error}"
        ) from None
    return [a for a, sub in zip(tops, subtrees, strict=True) for _ in flatten(sub)[0]]


def mapped_axes(in_axes: object, args: tuple[Any, ...], n_leaves: int) -> list[Any]:
    """The axis of each of the ``n_leaves`` arguments of a call that `loopax.vmap` maps over, or None.

    Leaves after the leaves of ``args`` were passed by name, and are mapped along the first axis, as in JAX.
    """
    prefix = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    axes = match_prefix(prefix, args, "in_axes")
    return axes + [0] * (n_leaves - len(axes))
