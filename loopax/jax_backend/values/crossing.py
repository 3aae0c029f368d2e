"""Conversion of arguments to their types, and of results to JAX values.

This is the `Crossing` of JAX. In addition, ``current`` converts the value of a shared variable to an
argument, and ``release`` converts a result.

=====================  ==========================================  ==============================
PyTensor's type        accepted                                    in the program, and returned
=====================  ==========================================  ==============================
tensor, scalar         arrays and numbers that it can hold         JAX array
random generator       key, old-style key, NumPy ``Generator``     new-style key
sparse matrix          SciPy CSR or CSC, ``BCOO``                  ``BCOO``
typed list             list of rows, array of them                 ``StackedList``, or a list
slice, None            slice of integers, None                     static; no slice is returned
=====================  ==========================================  ==============================
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO
from pytensor.graph.basic import Variable
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import DenseTensorType, TensorType
from pytensor.tensor.type_other import SliceType
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import LoopTypeError
from loopax.calling.memo import aligned_copy
from loopax.calling.types import (
    NO_ARRAYS,
    accept_none,
    accept_slice,
    filtered,
    has_shape,
    misfit,
    refuse_rows,
    refuse_variable,
    without_mask,
)
from loopax.ir.ops.trace import stacked
from loopax.jax_backend.staging.checked import Failure, checked
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.generators import as_generator, as_key, is_key
from loopax.jax_backend.values.lists import (
    RaggedList,
    StackedList,
    TypedList,
    as_list,
    from_rows,
    sparse_batch,
)
from loopax.jax_backend.values.padded_array import PaddedArray
from loopax.jax_backend.values.sparse import as_bcoo, bcoo_to_scipy
from loopax.jax_backend.values.x64 import as_declared, holds, refuse_narrowed, refuse_wrapping

TARGET = "JAX"
_PARTS = "integers that are known while JAX traces. Under jax.jit, close over the slice"


def is_static(t: Type) -> bool:
    """Whether values of the type ``t`` are not arrays, so that a program is compiled for each of them."""
    return isinstance(t, NO_ARRAYS)


def accept(x: object, expected: Type, what: str) -> Any:
    """Convert ``x`` to a value of the type ``expected``; ``what`` names it in messages.

    Raises `LoopTypeError` if it has another rank or static shape, a dtype that the type cannot
    hold, or is of another kind.
    """
    refuse_variable(x, what)
    match expected:
        case DenseTensorType():
            if isinstance(x, list | tuple) and any(map(is_traced, jax.tree.leaves(x))):
                x = _joined(x, expected, what)
            if isinstance(x, jax.Array):
                return _accept_jax(x, expected, what)
            return _filtered(x, expected, what)
        case TypedListType():
            return _accept_list(x, expected, what)
        case RandomType():
            return as_key(x, what)
        case SparseTensorType():
            return as_bcoo(x, expected, what)
        case ScalarType(dtype=dtype):
            return accept(x, TensorType(dtype, ()), what)
        case SliceType():
            return accept_slice(x, what, _PARTS)
    return accept_none(x, what)


def _joined(x: list[Any] | tuple[Any, ...], expected: DenseTensorType, what: str) -> jax.Array:
    """The array of a list with traced values, which NumPy cannot join."""
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError):
        raise LoopTypeError(misfit(x, expected, what)) from None


def accept_copy(x: Any, expected: Type, what: str) -> Any:
    """Copy the result of `accept`; leading axes beyond the type's are allowed, for ``jax.vmap``."""
    if isinstance(expected, RandomType) and is_key(x):
        return x
    if isinstance(expected, DenseTensorType | ScalarType):
        shape = getattr(expected, "shape", ())
        extra = max(np.ndim(x) - len(shape), 0)
        expected = TensorType(expected.dtype, (*[None] * extra, *shape))
    value = accept(x, expected, what)
    return np.array(value) if isinstance(value, np.ndarray) else value


def current(x: object, held: Type, what: str) -> Any:
    """The value ``x`` of a shared variable of type ``held``, safe from in-place changes by PyTensor.

    PyTensor's functions change their arrays in place, and JAX on CPU reads an aligned array in place too,
    even after the call that it was passed to has returned. Only one copy is made, an aligned one.
    """
    if isinstance(held, DenseTensorType) and isinstance(x, np.ndarray):
        return accept(aligned_copy(without_mask(x, what)), held, what)
    if isinstance(held, TypedListType) and isinstance(x, list):
        return accept([current(row, held.ttype, what) for row in x], held, what)
    return accept(x, held, what)


def snapshot(x: object, variable: Variable, what: str) -> Any:
    """The value of a shared variable, on the device."""
    return release(current(x, variable.type, what), variable)


def release(x: Any, v: Variable) -> Any:
    """Convert the value ``x`` of the output ``v`` to a pytree of JAX arrays.

    An array with a row for each step that a loop took is a `PaddedArray`. A list is a `StackedList`, also
    of sparse matrices; if its rows have unequal shapes, or numbers of entries, it is a Python list.
    """
    if isinstance(x, PaddedArray):
        return x
    if isinstance(v.type, TypedListType):
        rows = as_list(x, v.type)
        if isinstance(rows, RaggedList):
            return [release(row, v.type.ttype()) for row in rows]
        if isinstance(v.type.ttype, SparseTensorType):
            return sparse_batch(rows, v.type.ttype)
        return jax.tree.map(jnp.asarray, rows)
    if isinstance(v.type, RandomType):
        return as_key(x)
    if isinstance(v.type, SparseTensorType):
        return BCOO((jnp.asarray(x.data), jnp.asarray(x.indices)), shape=x.shape)
    if hasattr(v.type, "dtype"):
        refuse_narrowed(x, v)
        return as_declared(jnp.asarray(x), v)
    return x


def stored(x: Any, held: Type, before: Any) -> Any:
    """Convert the value ``x`` to PyTensor's form for the type ``held``, replacing the value ``before``."""
    if isinstance(held, RandomType):
        return as_generator(x, before)
    if isinstance(held, SparseTensorType):
        return bcoo_to_scipy(x, held.format)
    if isinstance(held, TypedListType):
        return [stored(row, held.ttype, before[0] if before else None) for row in as_list(x, held)]
    return None if x is None else held.filter(np.array(x))


def _filtered(x: object, expected: DenseTensorType, what: str) -> np.ndarray:
    value = filtered(x, expected, what)
    refuse_wrapping(value, what)
    return value


def _accept_list(x: Any, expected: TypedListType, what: str) -> TypedList:
    """Make a list from its rows, in a Python list or along the leading axis of an array."""
    row_type = expected.ttype
    batch = x.data if isinstance(x, StackedList) else x
    if isinstance(row_type, SparseTensorType) and isinstance(batch, BCOO) and batch.n_batch == 1:
        # All rows at once: one by one, each would be a program.
        shape = batch.shape[1:]
        rows = jax.vmap(lambda *parts: accept(BCOO(parts, shape=shape), row_type, what))
        return StackedList(rows(batch.data, batch.indices))
    if isinstance(x, StackedList):
        x = x.data if isinstance(row_type, DenseTensorType) else list(x)
    if isinstance(x, list | tuple | RaggedList):
        what = f"{what[0].lower()}{what[1:]}"
        return from_rows(
            [accept(r, row_type, f"Row {k} of {what}") for k, r in enumerate(x)], row_type
        )
    refuse_rows(x, expected, what)
    if isinstance(row_type, DenseTensorType):
        return StackedList(accept(x, stacked(row_type), what))
    return _accept_list(list(x), expected, what)


def _accept_jax(x: jax.Array, expected: DenseTensorType, what: str) -> jax.Array:
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.extended)
    fits = has_shape(x.shape, expected.shape) and not is_key
    dtype = str(x.dtype)
    if fits and dtype != expected.dtype:
        fits = holds(expected.dtype, dtype)
        if not fits and _is_number_for(x, expected.dtype):
            fits, x = True, _in_range(x, np.dtype(expected.dtype), what)
        if fits:
            x = x.astype(jax.dtypes.canonicalize_dtype(expected.dtype))
    if not fits:
        raise LoopTypeError(misfit(x, expected, what))
    return x


# Kind of a Python number -> kinds of dtypes that accept it: a float is not accepted as an integer.
_NUMBERS = {"i": "iufc", "f": "fc", "c": "c"}


def _is_number_for(x: jax.Array, dtype: str) -> bool:
    """Whether ``x`` is a Python number, traced by a ``jax.jit``, that a ``dtype`` may hold."""
    return x.aval.weak_type and np.dtype(dtype).kind in _NUMBERS.get(x.dtype.kind, "")


def _in_range(x: jax.Array, dtype: np.dtype, what: str) -> jax.Array:
    """Check that integers ``x`` fit ``dtype``, in a direct call or by checkify.

    Without checkify, JAX wraps traced integers that do not fit, as it does in all of its functions.
    """
    if dtype.kind not in "iu":
        return x
    info, own = np.iinfo(dtype), np.iinfo(x.dtype)
    fits = (x >= max(info.min, own.min)) & (x <= min(info.max, own.max))
    message = (
        f"{what} must be {dtype}, from {info.min} to {info.max}. A number that is not was given."
    )
    if is_traced(x):
        return checked(x, jnp.all(fits), Failure(LoopTypeError, message))
    if not np.all(fits):
        raise LoopTypeError(message)
    return x
