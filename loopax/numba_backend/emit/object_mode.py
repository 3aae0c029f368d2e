"""Ops without a native form, which run as Python through their ``perform``.

This is Numba's object mode: the values are boxed, the interpreter runs, the results are unboxed. A call
takes microseconds, so that `compile_program` names every such op.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from threading import local
from typing import Any
from weakref import WeakValueDictionary

import numba
import numpy as np
from numba import types
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.type import Type
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list import TypedListType

from loopax.ir.evaluation.evaluate import apply
from loopax.numba_backend.emit import opaque
from loopax.numba_backend.emit.constants import on_numbers
from loopax.numba_backend.emit.emitter import Emitter, Site, described
from loopax.numba_backend.emit.expressions import Expr, call
from loopax.numba_backend.emit.values import EmittedValue, Value


def object_mode(site: Site, *values: EmittedValue | None) -> Any:
    """Call the ``perform`` of any op, on copies of the inputs that it destroys."""
    emit, node = site.emit, site.node
    emit.note_foreign_call(node, by_python=True)
    python, number = _Python(node), next(_numbers)
    _RUNNING[number] = python
    emit.bind(python, "python")  # keeps it alive as long as the program
    args = [_argument(emit, x, v) for x, v in zip(values, node.inputs, strict=True)]
    out = emit.temp(call(emit.bind(_perform_function(node, number), "perform"), *args), "out")
    results = []
    for k, v in enumerate(node.outputs):
        if isinstance(v.type, TypedListType):
            take = emit.bind(_item_function(v.type.ttype, number, k), "take")
            results.append(_list(emit, out[k], take, v.type.ttype))
        else:
            results.append(opaque.result(emit, out[k], v, fresh=True))
    return tuple(results)


def _argument(emit: Emitter, value: EmittedValue | None, v: Variable) -> Expr:
    """An argument that Python may keep: a later step overwrites the memory of most arrays."""
    if isinstance(value, Value) and on_numbers(v) and v.type.ndim and emit.scopes.depth:
        return emit.fresh(value, reuse=False).name
    return opaque.as_argument(emit, value, v)


def _list(emit: Emitter, length: Expr, take: str, item: Type) -> Any:
    """Unbox a list item by item: Numba keeps a reflection of a whole unboxed list."""
    elements = opaque.no_elements(emit, item)
    with emit.repeated(i := emit.local("i"), length):
        opaque.append(emit, elements, call(take, i))
    return elements


class _Python:
    """A node that runs as Python. It has a number, since Numba pickles the globals of object mode."""

    def __init__(self, node: Apply) -> None:
        self.node = node
        self.last = local()  # the last outputs, until the items of their lists are unboxed

    def run(self, inputs: Sequence[Any]) -> Any:
        node = self.node
        arguments = [_as_scalar(v.type, x) for v, x in zip(node.inputs, inputs, strict=True)]
        self.last.outs = apply(node, arguments)
        pairs = zip(node.outputs, self.last.outs, strict=True)
        return tuple(_unboxable(v.type, y) for v, y in pairs)

    def item(self, k: int, i: int) -> Any:
        return _unboxable(self.node.outputs[k].type.ttype, self.last.outs[k][i])


_RUNNING: WeakValueDictionary[int, _Python] = WeakValueDictionary()
_numbers = count()


def run(number: int, inputs: Sequence[Any]) -> Any:
    python = _RUNNING[number]
    try:
        return python.run(inputs)
    except Exception as error:
        # The note also tells the search for the failing op to stop.
        error.add_note(f"Raised by {described(python.node)}, which runs as Python.")
        raise


def item(number: int, k: int, i: int) -> Any:
    return _RUNNING[number].item(k, i)


def _perform_function(node: Apply, number: int) -> Any:
    """A native function from the inputs to the outputs; a list is replaced by its length."""
    returned = types.Tuple([_result_type(v.type) for v in node.outputs])

    @numba_njit
    def perform(*inputs):  # type: ignore[no-untyped-def]
        with numba.objmode(outs=returned):
            outs = run(number, inputs)
        return outs

    return perform


def _item_function(element: Type, number: int, k: int) -> Any:
    """A native function of ``i``, which returns item ``i`` of output ``k``."""
    declared = opaque.numba_type(element)

    @numba_njit
    def take(i):  # type: ignore[no-untyped-def]
        with numba.objmode(x=declared):
            x = item(number, k, i)
        return x

    return take


def _as_scalar(declared: Type, x: object) -> Any:
    """Convert a boxed number to the NumPy scalar that ``perform`` expects."""
    if isinstance(declared, ScalarType):
        return np.dtype(declared.dtype).type(x)
    return x


def _result_type(declared: Type) -> Any:
    return types.int64 if isinstance(declared, TypedListType) else opaque.numba_type(declared)


def _unboxable(declared: Type, y: Any) -> Any:
    """Convert a result to the type declared to Numba: arrays in C order and writable."""
    if isinstance(declared, TypedListType):
        return len(y)
    if isinstance(declared, DenseTensorType):
        return np.require(y, declared.dtype, ("C", "A", "W", "O"))
    return opaque.native(declared, y)
