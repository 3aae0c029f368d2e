"""Lists, generators and sparse matrices as arguments of a native program, and as its results.

Numba takes neither an empty list nor a list of lists, and keeps a reflection of each list that it
takes. So a list is passed as a `Leaves`: a new flat list of the innermost values, and the lengths of
the lists at each level, from which the program rebuilds the lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import NativeValue, intrinsic, models, register_model, typeof_impl, unbox
from pytensor.graph.type import Type
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list import TypedListType

from loopax.base.upstream.numba import cgutils, ir, struct_value
from loopax.numba_backend.emit.expressions import Expr, call
from loopax.numba_backend.emit.opaque import native, numba_type


def argument(declared: Type, x: Any) -> Any:
    """Convert ``x``, whose type is not a tensor, for the program. (`conversion.accept` has checked it.)"""
    if not isinstance(declared, TypedListType):
        return native(declared, x)
    counts, items, element = [], x, declared.ttype
    while isinstance(element, TypedListType):
        counts.append(np.array([len(item) for item in items], dtype=np.int64))
        items, element = [entry for item in items for entry in item], element.ttype
    leaves = Leaves([_leaf(element, entry) for entry in items], numba_type(element))
    return (leaves, *counts)


def _leaf(element: Type, x: Any) -> Any:
    if isinstance(element, DenseTensorType):
        return np.require(x, element.dtype, ("C", "A", "W"))
    return native(element, x)


def nested(name: Expr, declared: TypedListType) -> Expr:
    """The list that the argument ``name`` encodes, as an expression of `FUNCTIONS`."""
    depth, item = 0, declared.ttype
    while isinstance(item, TypedListType):
        depth, item = depth + 1, item.ttype
    rebuilt = call("list_of", name[0])
    for k in reversed(range(depth)):
        rebuilt = call("grouped", rebuilt, name[k + 1])
    return rebuilt


@numba_njit
def grouped(items, counts):  # type: ignore[no-untyped-def]
    groups, start = [], 0
    for n in counts:
        groups.append(items[start : start + n])
        start += n
    return groups


class Leaves:
    """A list of values of one Numba type, possibly empty."""

    def __init__(self, items: list[Any], element: object) -> None:
        self.items, self.element = items, element


class LeavesType(types.Type):  # type: ignore[misc]  # Numba has no annotations
    def __init__(self, items: types.List) -> None:
        self.items = items
        super().__init__(f"Leaves({items.dtype})")


@register_model(LeavesType)
class LeavesModel(models.StructModel):  # type: ignore[misc]  # Numba has no annotations
    def __init__(self, manager: object, declared: LeavesType) -> None:
        super().__init__(manager, declared, [("items", declared.items)])


@typeof_impl.register(Leaves)
def _type_of_leaves(x: Leaves, context: object) -> LeavesType:
    return LeavesType(types.List(x.element))


@unbox(LeavesType)
def _unbox_leaves(declared: LeavesType, x: ir.Value, c: Any) -> NativeValue:
    items = c.pyapi.object_getattr_string(x, "items")
    inner = c.unbox(declared.items, items)
    struct = cgutils.create_struct_proxy(declared)(c.context, c.builder)
    struct.items = inner.value

    def cleanup() -> None:
        inner.cleanup()
        c.pyapi.decref(items)

    return NativeValue(struct_value(struct), is_error=inner.is_error, cleanup=cleanup)


@intrinsic
def list_of(context, leaves):  # type: ignore[no-untyped-def]
    """Rebuild the list encoded by a `Leaves`."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        struct = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
        context.nrt.incref(builder, signature.return_type, struct.items)
        return struct.items

    return leaves.items(leaves), codegen


FUNCTIONS = {"list_of": list_of, "grouped": grouped}
