"""Leaves of pytrees as variables: values that count as leaves, and the types of Python numbers."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pytensor.tensor as pt
from pytensor.basic import as_symbolic
from pytensor.configdefaults import config
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.type import TensorType

from loopax.base.errors import LoopTypeError
from loopax.frontend.loops.trees import Tree, flatten, is_traced, leaf_names


class CarryLeaf(Protocol):
    """A leaf of a carry: `Slot`, in carry.py, or `Lagged`, in lags.py."""

    path: str
    init: Any
    type: Any
    states: list[Any]


def as_variable(x: object, path: str) -> Variable:
    """Convert ``x`` to a variable; ``path`` names it in errors.

    A Python int is an int64 and a float has ``config.floatX``: PyTensor's dtype for a number (``0``
    in an int8, ``0.5`` in a float32) follows from its value, and would overflow in a loop.

    Raises `LoopTypeError` if it is not a variable, array or number.
    """
    if isinstance(x, Variable):
        return x
    if isinstance(x, np.generic | np.ndarray | bool):
        return _constant(np.asarray(x), path)
    if isinstance(x, int):
        if not -(2**63) <= x < 2**63:
            raise LoopTypeError(f"{path} is the number {x}, which does not fit into int64.")
        return _constant(np.asarray(x, "int64"), path)
    if isinstance(x, float):
        return _constant(np.asarray(x, config.floatX), path)
    if isinstance(x, complex):
        return _constant(np.asarray(x, np.result_type(config.floatX, np.complex64)), path)
    if isinstance(x, np.random.Generator):
        raise LoopTypeError(
            f"{path} is a NumPy generator. Drawing changes it, so a graph cannot hold it as a "
            "constant. Make it an input, rng = pt.random.type.random_generator_type('rng'), or a "
            "shared variable, rng = pytensor.shared(generator)."
        )
    if is_traced(x):
        raise LoopTypeError(
            f"{path} is traced by JAX, but a loop of loopax is a graph of PyTensor variables. Decorate "
            "the function that has the loop with @loopax.jaxify, and pass the result to jax.jit, "
            "jax.grad or jax.vmap."
        )
    if hasattr(x, "__array__"):
        return _constant(np.asarray(x), path)
    try:
        return as_symbolic(x)  # PyTensor's other types, such as sparse matrices
    except (NotImplementedError, TypeError):
        raise LoopTypeError(
            f"{path} is {x!r} of type {type(x).__name__}, but a leaf must be a PyTensor variable, an "
            "array or a number. Put anything else, such as a name or a flag, in the closure of the "
            "step, or in a field that is declared static, jax.tree_util.register_dataclass(..., "
            "meta_fields=[...])."
        ) from None


def variables_of(tree: object, label: str) -> tuple[list[Any], list[str], Tree]:
    """The leaves of a pytree as variables; their names, prefixed by ``label``; and its structure."""
    leaves, structure = flatten(tree)
    names = [f"{label}{name}" for name in leaf_names(tree)]
    return [as_variable(x, n) for x, n in zip(leaves, names, strict=True)], names, structure


def _constant(x: np.ndarray, path: str) -> Variable:
    if x.dtype.kind not in "biufc":
        raise LoopTypeError(
            f"{path} is an array of dtype {x.dtype}, but a loop carries numbers. Convert it, "
            "x.astype('float64')."
        )
    return pt.constant(x)


def is_weak(x: object) -> bool:
    """Whether ``x`` is a Python int, whose width the user did not choose."""
    return isinstance(x, int) and not isinstance(x, bool)


def as_flag(x: object, label: str, *, from_step: bool = True) -> Variable:
    """Convert ``x`` to a bool scalar; a flag ``from_step`` must not be a Python bool."""
    if from_step and isinstance(x, bool):
        raise LoopTypeError(
            f"{label} is the Python bool {x}, the same at every step. `==` and `!=` compare PyTensor "
            "variables as objects, not by value: write pt.eq(a, b), pt.neq(a, b)."
        )
    if isinstance(x, bool | np.bool_):
        return pt.constant(np.asarray(x))
    if isinstance(x, Variable) and isinstance(x.type, TensorType):
        if x.type.dtype == "bool" and x.type.ndim == 0:
            return x
        description = str(x.type)
    else:
        description = f"{x!r} of type {type(x).__name__}"
    raise LoopTypeError(
        f"{label} is {description}, but must be a bool scalar: compare, as in x > 0 or pt.eq(n, 3), "
        "and reduce a tensor of flags with .any() or .all()."
    )


def exact_in(x: Constant, dtype: str) -> bool:
    """Whether the values of a constant can be represented exactly in ``dtype``."""
    value = np.asarray(x.data)
    if value.dtype.kind == "c" and np.dtype(dtype).kind != "c":
        return False  # 2 + 0j is meant as a complex number
    with np.errstate(all="ignore"):
        cast = value.astype(dtype)
        round_trip = (cast if value.dtype.kind == "c" else cast.real).astype(value.dtype)
        # -1 becomes a large number in uint8, and is restored by the cast back.
        signs = value.dtype.kind not in "iu" or bool(np.all((cast.real < 0) == (value < 0)))
    return signs and np.array_equal(round_trip, value, equal_nan=value.dtype.kind in "fc")
