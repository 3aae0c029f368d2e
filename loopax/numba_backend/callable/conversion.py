"""Conversion of values at the border of a native program: the `Crossing` of Numba.

=====================  ==========================================  ==============================
PyTensor's type        accepted                                    in the program, and returned
=====================  ==========================================  ==============================
tensor, scalar         arrays and numbers that it can hold, and   NumPy array
                       anything that NumPy converts to one
random generator       NumPy ``Generator``                         ``Generator``
sparse matrix          SciPy's, of any format                      SciPy CSR or CSC
typed list             list of rows, array of them                 list
slice, None            slice of integers, None                     no slice is returned
=====================  ==========================================  ==============================

Neither a conversion nor a program changes the arrays of a caller.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytensor.scalar as ps
import scipy.sparse
from pytensor.graph.basic import Variable
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import DenseTensorType, TensorType
from pytensor.tensor.type_other import SliceType
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import LoopTypeError
from loopax.calling.types import (
    accept_none,
    accept_slice,
    described,
    filtered,
    has_shape,
    refuse_rows,
    refuse_variable,
    without_mask,
)

TARGET = "native code"


def accept(x: Any, expected: Type, what: str) -> Any:
    """Convert ``x`` to the type ``expected``; returns ``x`` itself where it fits.

    Raises `LoopTypeError` if ``x`` has another rank or static shape, a dtype that the type cannot
    hold, or another kind; or it is a tracer of JAX. ``what`` names the value in the message.
    """
    if isinstance(expected, ScalarType):
        expected = TensorType(expected.dtype, ())
    if isinstance(expected, DenseTensorType):
        return _accept_array(x, expected, what)
    refuse_variable(x, what)
    _refuse_tracer(x, what)
    if isinstance(expected, RandomType):
        return _accept_generator(x, what)
    if isinstance(expected, TypedListType):
        refuse_rows(x, expected, what)
        rows = f"{what[0].lower()}{what[1:]}"
        return [accept(r, expected.ttype, f"Row {k} of {rows}") for k, r in enumerate(x)]
    if isinstance(expected, SparseTensorType):
        return _accept_sparse(x, expected, what)
    if isinstance(expected, SliceType):
        return accept_slice(x, what)
    return accept_none(x, what)


def accept_copy(x: object, expected: Type, what: str) -> Any:
    """Convert ``x`` to the type ``expected``, and copy it."""
    return deepcopy(accept(x, expected, what))


def snapshot(x: object, variable: Variable, what: str) -> Any:
    """Copy the value of a shared variable, which PyTensor's functions change in place."""
    return accept_copy(x, variable.type, what)


def stored(x: object, held: Type, before: object) -> Any:
    """Convert the value ``x`` of a context to PyTensor's form: here the same."""
    return x


def _accept_array(x: object, expected: DenseTensorType, what: str) -> np.ndarray:
    if type(x) is not np.ndarray:
        refuse_variable(x, what)
        _refuse_tracer(x, what)
        x = without_mask(x, what)
        if hasattr(x, "__array__") and not isinstance(x, np.generic):
            x = np.asarray(x)  # for example an array of JAX; its dtype counts
    return filtered(x, expected, what)


def _accept_generator(x: object, what: str) -> np.random.Generator:
    if not isinstance(x, np.random.Generator):
        raise LoopTypeError(
            f"{what} must be a NumPy Generator, got a value of type {type(x).__name__}. Pass "
            "numpy.random.default_rng(seed)."
        )
    return x


def _accept_sparse(x: Any, expected: SparseTensorType, what: str) -> Any:
    if not scipy.sparse.issparse(x):
        received = f"{x.dtype}, shape {x.shape}" if hasattr(x, "dtype") else type(x).__name__
        raise LoopTypeError(
            f"{what} must be a {described(expected)}, got {received}. Pass "
            f"scipy.sparse.{expected.format}_matrix(x), or make it sparse in the program, with "
            f"pytensor.sparse.{expected.format}_from_dense(x)."
        )
    dtype = np.dtype(x.dtype)
    if (
        not has_shape(x.shape, expected.shape)
        or dtype.kind not in "biufc"
        or ps.upcast(dtype.name, expected.dtype) != expected.dtype
    ):
        raise LoopTypeError(
            f"{what} must be a {described(expected)}, got {dtype}, shape {x.shape}. Convert it, for "
            f"example with x.astype({expected.dtype!r}), or declare another type for the input."
        )
    return x.asformat(expected.format).astype(expected.dtype, copy=False)


def _refuse_tracer(x: object, what: str) -> None:
    """Raise for a tracer of JAX, recognised by its name, since this backend does not import JAX."""
    kinds = type(x).__mro__
    if any(k.__name__ == "Tracer" and k.__module__.startswith("jax") for k in kinds):
        raise LoopTypeError(
            f"{what} is a tracer of JAX, which cannot look into native code. Transform the function "
            "with loopax.grad(f), loopax.value_and_grad(f) or loopax.vmap(f), or compile it for JAX: "
            "jaxify(..., backend='jax')."
        )
