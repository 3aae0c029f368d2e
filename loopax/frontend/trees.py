"""Pytrees of PyTensor variables: nested tuples, lists, dicts, named tuples, dataclasses, None."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from pytensor.graph.basic import Variable


class Tree(NamedTuple):
    """The structure of a pytree whose leaves are variables or values."""

    treedef: Any

    def build(self, leaves: Any) -> Any:
        """The pytree with ``leaves`` in it."""
        return jax.tree.unflatten(self.treedef, leaves)


def flatten(tree: Any) -> tuple[list[Any], Tree]:
    """The leaves of ``tree``, left to right, and its structure. A variable is a leaf."""
    leaves, treedef = jax.tree.flatten(tree, is_leaf=lambda x: isinstance(x, Variable))
    return leaves, Tree(treedef)


def leaf_names(tree: Any) -> list[str]:
    """The path to each leaf, as ``a``, ``a[0]``, ``a['key']`` under the names at the top."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [jax.tree_util.keystr(path) for path, _ in paths]
