"""Traces of plain Python functions of PyTensor variables: a `Program` for each signature.

As with `jax.jit`, the function runs once per signature, on symbols. A signature is the structure of
the arguments and the type of each leaf: for an array the dtype, the rank and the axes of length 1,
since PyTensor broadcasts by type; generators, sparse matrices and slices have their own types.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from pytensor.configdefaults import config
from pytensor.graph.basic import Variable
from pytensor.graph.type import Type
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import SliceType

from loopax.base.errors import LoopTypeError
from loopax.frontend.loops.trees import Tree, flatten, is_sparse, leaf_names
from loopax.frontend.mistakes import explained, name_of
from loopax.frontend.programs.read import read_variables
from loopax.ir.program import Program

_NUMBERS = "biufc"  # kinds of dtypes


class Signature(NamedTuple):
    """The key of a traced graph: hashable."""

    tree: Tree
    leaves: tuple[Type, ...]


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Signature, list[Any]]:
    """The signature of a call, and its leaves.

    Raises `LoopTypeError` if a leaf is not a number or an array.
    """
    leaves, tree = flatten((args, kwargs))
    return Signature(
        tree, tuple(_leaf_type(x, k, (args, kwargs)) for k, x in enumerate(leaves))
    ), leaves


def trace(fn: Callable[..., Any], sig: Signature) -> Program:
    """Run ``fn`` on symbols of the types in ``sig``."""
    names = leaf_names(sig.tree.build(list(range(len(sig.leaves)))))
    symbols = [t(name=_plain(name)) for t, name in zip(sig.leaves, names, strict=True)]
    args, kwargs = sig.tree.build(symbols)
    with explained(name_of(fn)):
        outputs = fn(*args, **kwargs)
    program = read_variables(symbols, outputs, name=getattr(fn, "__name__", "program"))
    program.doc = getattr(fn, "__doc__", None)
    return program


@lru_cache(maxsize=1024)  # new types took two thirds of a call with three numbers, 40 us then
def _tensor_type(dtype: Any, static_shape: tuple[int | None, ...]) -> Type:
    return TensorType(str(dtype), static_shape)


def _leaf_type(x: Any, k: int, tree: object) -> Type:
    if type(x) is np.ndarray and x.dtype.kind in _NUMBERS:  # first, since most leaves are
        return _tensor_type(x.dtype, tuple([1 if n == 1 else None for n in x.shape]))
    if isinstance(x, bool):
        return _tensor_type("bool", ())
    if isinstance(x, int):
        return _tensor_type("int64", ())
    if isinstance(x, float):
        return _tensor_type(config.floatX, ())
    if isinstance(x, Variable):
        raise LoopTypeError(
            f"Argument {leaf_names(tree)[k]} is a PyTensor variable: call the function with arrays, "
            "or use it on variables before it goes through jaxify."
        )
    if isinstance(x, np.random.Generator) or str(getattr(x, "dtype", "")).startswith("key<"):
        return random_generator_type
    if isinstance(x, slice):
        return SliceType()
    if is_sparse(x) or scipy.sparse.issparse(x):
        return SparseTensorType("csc" if getattr(x, "format", "") == "csc" else "csr", str(x.dtype))
    shape = getattr(x, "shape", None)
    dtype: Any = getattr(x, "dtype", None)
    if shape == () and getattr(
        x, "weak_type", False
    ):  # a Python number, under the caller's jax.jit
        return _tensor_type({"i": "int64", "f": config.floatX}.get(dtype.kind, str(dtype)), ())
    if shape is None or dtype is None:
        x = np.asarray(x)
        shape, dtype = x.shape, x.dtype
    dtype = np.dtype(dtype) if not hasattr(dtype, "name") else dtype
    if getattr(dtype, "kind", "O") not in _NUMBERS:
        raise LoopTypeError(
            f"Argument {leaf_names(tree)[k]} is {x!r} of type {type(x).__name__}, but a function "
            "traced by jaxify takes arrays, numbers, sparse matrices, generators and slices, alone or "
            "in tuples, lists and dicts. An argument that decides what the program is, such as a name or a "
            "flag, is static: jaxify(f, static_argnames='kind')."
        )
    return _tensor_type(dtype, tuple(1 if n == 1 else None for n in shape))


def _plain(path: str) -> str:
    """Convert ``[0][1]['a']``, a path into ``(args, kwargs)``, to a name: ``arg1['a']``."""
    if path.startswith("[0]["):
        k, _, suffix = path[4:].partition("]")
        return f"arg{k}{suffix}"
    name = path.removeprefix("[1]['")
    key, _, suffix = name.partition("']")
    return key + suffix
