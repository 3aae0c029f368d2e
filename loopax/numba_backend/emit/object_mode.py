"""Ops that run as Python, through their ``perform``, because nothing native is known for them.

This is Numba's object mode: the values are boxed, the interpreter runs, the results are unboxed. It
takes microseconds, which is why `compile_program` names every op that does so.
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
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list import TypedListType

from loopax.ir.evaluation.evaluate import apply
from loopax.numba_backend.emit import opaque
from loopax.numba_backend.emit.emitter import Emitter, Site, described
from loopax.numba_backend.emit.expressions import Expr, call


def object_mode(site: Site, *values: Any) -> Any:
    """A rule for any op: its ``perform``, on copies of what it destroys."""
    emit, node = site.emit, site.node
    emit.note_foreign_call(node, by_python=True)
    python, number = _Python(node), next(_numbers)
    _RUNNING[number] = python
    emit.bind(python, "python")  # it lives as long as the program
    pairs = zip(values, node.inputs, strict=True)
    args = [opaque.as_argument(emit, x, v) for x, v in pairs]
    out = emit.temp(call(emit.bind(_performed(node, number), "perform"), *args), "out")
    results = []
    for k, v in enumerate(node.outputs):
        if isinstance(v.type, TypedListType):
            take = emit.bind(_taken(v.type.ttype, number, k), "take")
            results.append(_list(emit, out[k], take, v.type.ttype))
        else:
            results.append(opaque.result(emit, out[k], v, fresh=True))
    return tuple(results)


def _list(emit: Emitter, length: Expr, take: str, item: Any) -> Any:
    """A list one by one: Numba keeps what it knows of a Python list that it has unboxed."""
    made = opaque.no_elements(emit, item)
    with emit.repeated(i := emit.local("i"), length):
        opaque.append(emit, made, call(take, i))
    return made


class _Python:
    """A node that runs as Python. Numba pickles what object mode refers to, so it is given a number."""

    def __init__(self, node: Apply) -> None:
        self.node = node
        self.kept = local()  # the last outputs, for as long as the items of their lists are taken

    def run(self, inputs: Sequence[Any]) -> Any:
        node = self.node
        given = [_given(v.type, x) for v, x in zip(node.inputs, inputs, strict=True)]
        self.kept.outs = apply(node, given)
        pairs = zip(node.outputs, self.kept.outs, strict=True)
        return tuple(_returned(v.type, y) for v, y in pairs)

    def item(self, k: int, i: int) -> Any:
        """Item ``i`` of output ``k``, a list."""
        return _returned(self.node.outputs[k].type.ttype, self.kept.outs[k][i])


_RUNNING: WeakValueDictionary[int, _Python] = WeakValueDictionary()
_numbers = count()


def run(number: int, inputs: Sequence[Any]) -> Any:
    python = _RUNNING[number]
    try:
        return python.run(inputs)
    except Exception as error:
        # A note also says that the op need not be run once more to find out which one fails.
        error.add_note(f"Raised by {described(python.node)}, which runs as Python.")
        raise


def item(number: int, k: int, i: int) -> Any:
    return _RUNNING[number].item(k, i)


def _performed(node: Apply, number: int) -> Any:
    """A native function of the inputs: a tuple of the outputs, the length of one that is a list."""
    returned = types.Tuple([_returned_type(v.type) for v in node.outputs])

    @numba_njit
    def perform(*inputs):  # type: ignore[no-untyped-def]
        with numba.objmode(outs=returned):
            outs = run(number, inputs)
        return outs

    return perform


def _taken(element: Any, number: int, k: int) -> Any:
    """A native function of i: item i of output k."""
    declared = opaque.numba_type(element)

    @numba_njit
    def take(i):  # type: ignore[no-untyped-def]
        with numba.objmode(x=declared):
            x = item(number, k, i)
        return x

    return take


def _given(declared: Any, x: Any) -> Any:
    """A boxed value as ``perform`` expects it."""
    if isinstance(declared, ScalarType):
        return np.dtype(declared.dtype).type(x)
    return x


def _returned_type(declared: Any) -> Any:
    return types.int64 if isinstance(declared, TypedListType) else opaque.numba_type(declared)


def _returned(declared: Any, y: Any) -> Any:
    """A result as Numba is told that it is: an array is in C order, and may be written to."""
    if isinstance(declared, TypedListType):
        return len(y)
    if isinstance(declared, DenseTensorType):
        return np.require(y, declared.dtype, "CAWO")
    return opaque.native(declared, y)
