"""Views of arrays with other axes."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import lower_builtin, type_callable

from loopax.base.upstream.numba import ir, make_array, populate_array


def in_line(a: Any) -> Any:
    """View ``a``, in C order, with one axis.

    ``a.reshape(-1)`` calls a function that searches for a way without a copy; in C order there always
    is one.
    """
    return a.reshape(-1)


@type_callable(in_line)
def _type_of_in_line(context):  # type: ignore[no-untyped-def]  # Numba reads the signature of what follows
    def result(a):  # type: ignore[no-untyped-def]
        return a.copy(ndim=1) if isinstance(a, types.Array) and a.layout == "C" else None

    return result


@lower_builtin(in_line, types.Array)
def _lower_in_line(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    source = make_array(signature.args[0])(context, builder, args[0])
    result = make_array(signature.return_type)(context, builder)
    populate_array(
        result,
        data=source.data,
        shape=[source.nitems],
        strides=[ir.Constant(source.itemsize.type, _itemsize(context, signature.args[0]))],
        itemsize=source.itemsize,
        meminfo=source.meminfo,
        parent=source.parent,
    )
    value = result._getvalue()
    context.nrt.incref(builder, signature.return_type, value)
    return value


def _itemsize(context: Any, array: Any) -> int:
    return int(context.get_abi_sizeof(context.get_data_type(array.dtype)))


FUNCTIONS = {"in_line": in_line}
