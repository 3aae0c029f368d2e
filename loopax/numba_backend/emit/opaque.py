"""Values that are not tensors: their copies, types, arguments and list elements.

Random generators and lists are the only mutable values of a program. `Site.owned` alone decides whether
a change may be made in place. Sparse matrices, slices and None are passed on unchanged.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.type import Type
from pytensor.link.numba.dispatch.basic import get_numba_type, numba_njit
from pytensor.link.numba.dispatch.compile_ops import numba_deepcopy
from pytensor.scalar.basic import ScalarType
from pytensor.sparse import SparseTensorType
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.random.utils import custom_rng_deepcopy
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.type_other import NoneTypeT, SliceType
from pytensor.typed_list import TypedListType
from scipy.sparse import csc_matrix, csr_matrix

from loopax.numba_backend.emit.expressions import Expr, call, expr, local
from loopax.numba_backend.emit.statements import Do
from loopax.numba_backend.emit.storage import Storage
from loopax.numba_backend.emit.values import EmittedValue, Opaque, Rows, small


def is_opaque(declared: Type) -> bool:
    """Whether the emitter passes values of a type on to Numba as a whole."""
    if isinstance(declared, TypedListType):
        return isinstance(declared.ttype, DenseTensorType) or is_opaque(declared.ttype)
    return isinstance(declared, RandomGeneratorType | SparseTensorType | SliceType | NoneTypeT)


def needs_local(declared: Type) -> bool:
    """Whether a constant of a type needs a local: slices, None and strings stand in the source."""
    return is_opaque(declared) and not isinstance(declared, SliceType | NoneTypeT)


def numba_type(declared: Type) -> Any:
    """The Numba type of values of a PyTensor type, arrays in C order."""
    if isinstance(declared, TypedListType):
        return types.List(numba_type(declared.ttype))
    if isinstance(declared, SliceType):
        return types.slice3_type
    if isinstance(declared, NoneTypeT):
        return types.none
    return get_numba_type(declared, layout="C")


def native(declared: Type, x: Any) -> Any:
    """Convert ``x`` for Numba: a sparse matrix has indices of 32 bits and writable arrays."""
    if isinstance(declared, SparseTensorType):
        kind = csr_matrix if declared.format == "csr" else csc_matrix
        parts = (
            x.data,
            x.indices.astype(np.int32, copy=False),
            x.indptr.astype(np.int32, copy=False),
        )
        return kind(
            tuple(np.require(a, requirements=("C", "A", "W")) for a in parts), shape=x.shape
        )
    return x


# -- ownership -------------------------------------------------------------------------------------


def copied(emit: Storage, value: Opaque) -> Opaque:
    """A deep copy, visible to no other node."""
    function = emit.bind(numba_deepcopy, "deepcopy")
    return Opaque(emit.temp(call(function, value.name), "own"), fresh=True)


def changeable(emit: Storage, value: Opaque, changed: list[Expr]) -> Opaque:
    """``value`` where it is fresh and not in ``changed``, else a copy; added to ``changed``."""
    if not value.fresh or value.name in changed:
        value = copied(emit, value)
    changed.append(value.name)
    return value


NONE = Expr("None")

# -- constants, arguments, elements ----------------------------------------------------------------


def constant(emit: Storage, v: Constant) -> Opaque:
    """A constant of an opaque type, as an expression, or as a local assigned at each call."""
    data = v.data
    if data is None or isinstance(v.type, SliceType):
        return Opaque(_in_source(data))
    if isinstance(v.type, RandomGeneratorType):
        return Opaque(emit.temp(call(emit.bind(_generator_copy(data), "made")), "rng"), fresh=True)
    if isinstance(v.type, TypedListType):
        item: Any = v.type.ttype
        elements = no_elements(emit, item)
        for x in data:
            append(
                emit, elements, as_element(emit, emit.constant_value(item.make_constant(x)), item)
            )
        return elements
    return Opaque(local(emit.bind(data, "const")))


def _in_source(data: Any) -> Expr:
    """A slice of numbers, or None, as an expression."""
    if data is None:
        return NONE
    parts = (data.start, data.stop, data.step)
    return call("slice", *(None if x is None else int(x) for x in parts))


def append(emit: Storage, rows: Opaque, item: Expr) -> None:
    emit.add(Do(rows.name.method("append", item)))


def _generator_copy(generator: np.random.Generator) -> Any:
    """A native function that returns a copy of ``generator``, which cannot be a Numba global."""
    declared = types.npy_rng

    @numba_njit
    def copy_of_generator() -> Any:
        with numba.objmode(rng=declared):
            rng = custom_rng_deepcopy(generator)
        return rng

    return copy_of_generator


def no_elements(emit: Storage, element: Type) -> Opaque:
    """An empty list of elements of type ``element``."""
    return Opaque(emit.temp(call(emit.bind(_empty_list(element), "no_elements")), "list"), True)


def _empty_list(element: Type) -> Any:
    declared = numba_type(element)

    @numba_njit
    def never() -> Any:  # never called: it gives the list its type
        with numba.objmode(x=declared):
            x = None
        return x

    @numba_njit
    def empty() -> list[Any]:
        return [never() for _ in range(0)]

    return empty


def as_argument(emit: Storage, value: Any, v: Any) -> Expr:
    """Convert ``value`` for PyTensor's own conversions: a tensor to an array, 0-d ones too."""
    if isinstance(value, Opaque):
        return value.name
    if value is None or isinstance(value, slice):  # a constant, which a loop may have as an operand
        return _in_source(value)
    if isinstance(value, Rows):
        return as_list(emit, value).name
    if isinstance(v.type, ScalarType):
        return emit.scalar(value)
    if isinstance(v.type, DenseTensorType):
        return emit.dense(value).name if v.type.ndim else call("np.array", emit.scalar(value))
    return constant(emit, v).name


def as_element(emit: Storage, value: EmittedValue, element: Any) -> Expr:
    """Convert ``value`` to an element of a list: a copy, arrays in C order."""
    if isinstance(value, Opaque):
        return copied(emit, value).name
    if isinstance(value, Rows):
        return as_list(emit, value).name
    if element.ndim == 0:
        return call("np.array", emit.scalar(value))
    return emit.dense(value).name.method("copy")  # the next step may overwrite it


def result(emit: Storage, value: Expr, v: Variable, fresh: bool = False) -> Any:
    """Wrap ``value``, the result of a foreign function, as the value of ``v``."""
    if not isinstance(v.type, DenseTensorType | ScalarType):
        # A sparse matrix may share its arrays with another one, or with the program's inputs.
        return Opaque(emit.temp(value, "held"), fresh and not isinstance(v.type, SparseTensorType))
    if v.type.ndim == 0:
        return small(emit.temp(call("as_scalar", value)), v.type.dtype)
    array = emit.temp(value, "a")
    check_declared(emit, array, v, "An op returned an array of another shape than declared")
    return emit.array(array, v)


def check_declared(emit: Storage, array: Expr, v: Variable, message: str) -> None:
    """Check that ``array`` has the lengths in the type of ``v``, on which its readers rely."""
    for k, n in enumerate(v.type.shape):
        if n is not None:
            with emit.when(expr("{} != {}", array.length(k), n)):
                emit.fail("ValueError", message)


# -- lists -----------------------------------------------------------------------------------------


def as_list(emit: Storage, rows: Rows | Opaque) -> Opaque:
    """Convert rows in one buffer to a list of arrays."""
    if isinstance(rows, Opaque):
        return rows
    function = emit.bind(_row_copies if rows.ndim else _number_copies, "as_list")
    return Opaque(emit.temp(call(function, rows.name, rows.count), "list"), fresh=True)


@numba_njit
def _row_copies(rows: np.ndarray, count: int) -> list[np.ndarray]:
    return [rows[k].copy() for k in range(count)]


@numba_njit
def _number_copies(rows: np.ndarray, count: int) -> list[np.ndarray]:
    return [np.array(rows[k]) for k in range(count)]
