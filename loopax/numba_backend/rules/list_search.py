"""Search for a row of a typed list by value: ``index_``, ``count``, ``remove``.

Two tensors are equal if their shapes and elements are, where nan equals nan, as in PyTensor's types.
Rows of any other kind (generators, sparse matrices) run as Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from pytensor.graph.type import Type
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list import Count, Index, Remove, TypedListType

from loopax.base.upstream.numba import Dispatcher
from loopax.numba_backend.emit.emitter import Site, rule
from loopax.numba_backend.emit.expressions import Expr, call, expr
from loopax.numba_backend.emit.object_mode import object_mode
from loopax.numba_backend.emit.opaque import as_argument, as_list
from loopax.numba_backend.emit.statements import Do
from loopax.numba_backend.emit.values import EmittedValue, Opaque, Rows, Value, small


def equal(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays, or two lists of arrays, have equal values."""
    raise NotImplementedError("only inside of Numba")


@overload(equal)
def _equal(x, y):  # type: ignore[no-untyped-def]
    if isinstance(x, types.List):

        def equal_lists(x, y):  # type: ignore[no-untyped-def]
            if len(x) != len(y):
                return False
            for k in range(len(x)):
                if not equal(x[k], y[k]):
                    return False
            return True

        return equal_lists

    def equal_arrays(x, y):  # type: ignore[no-untyped-def]
        if x.shape != y.shape:
            return False
        for a, b in zip(x.flat, y.flat):  # noqa: B905  (Numba takes no keyword here)
            if a != b and not (a != a and b != b):
                return False
        return True

    return equal_arrays


@numba_njit
def position(rows, row):  # type: ignore[no-untyped-def]
    """The first position of ``row``, or -1."""
    for k in range(len(rows)):
        if equal(rows[k], row):
            return k
    return -1


@numba_njit
def occurrences(rows, row):  # type: ignore[no-untyped-def]
    n_equal = 0
    for k in range(len(rows)):
        if equal(rows[k], row):
            n_equal += 1
    return n_equal


def _comparable(declared: Type) -> bool:
    if isinstance(declared, TypedListType):
        return _comparable(declared.ttype)
    return isinstance(declared, DenseTensorType)


def _search(site: Site, rows: Rows | Opaque, row: EmittedValue, function: Dispatcher) -> Expr:
    emit = site.emit
    name = emit.bind(function, function.__name__)
    return emit.temp(call(name, rows.name, as_argument(emit, row, site.node.inputs[1])), "k")


@rule(Index)
def index(site: Site, rows: Rows | Opaque, row: EmittedValue) -> Any:
    if not _comparable(site.node.inputs[0].type):
        return object_mode(site, rows, row)
    k = _search(site, as_list(site.emit, rows), row, position)
    with site.emit.when(expr("{} < 0", k)):
        site.emit.fail("ValueError", "A value that was looked for is not in the list")
    return small(site.emit.temp(k.astype("int64")), "int64")


@rule(Count)
def count(site: Site, rows: Rows | Opaque, row: EmittedValue) -> Value:
    if not _comparable(site.node.inputs[0].type):
        return object_mode(site, rows, row)
    k = _search(site, as_list(site.emit, rows), row, occurrences)
    return small(site.emit.temp(k.astype("int64")), "int64")


@rule(Remove)
def remove(site: Site, rows: Rows | Opaque, row: EmittedValue) -> Any:
    """Copy the list without the first equal row, or whole where there is none."""
    if not _comparable(site.node.inputs[0].type):
        return object_mode(site, rows, row)
    emit = site.emit
    rows = as_list(emit, rows)
    k = _search(site, rows, row, position)
    shortened = emit.temp(rows.name.method("copy"), "list")
    with emit.when(expr("{} >= 0", k)):
        emit.add(Do(shortened.method("pop", k)))
    return Opaque(shortened, fresh=True)
