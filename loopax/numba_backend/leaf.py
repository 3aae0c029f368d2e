"""Ops without a rule of ours: through PyTensor's own Numba registry, on arrays.

Only here are scalars boxed into 0-d arrays, and only for the call. A conversion that would run the
op's ``perform`` as Python (object mode) is refused before anything is written.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic
from pytensor.link.numba.dispatch.basic import numba_funcify
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.blockwise import Blockwise

from loopax.numba_backend.emitter import Site, rule
from loopax.numba_backend.values import Value, small

_TABLES = (
    basic.numba_funcify,
    basic.numba_funcify_and_cache_key,
    basic.numba_funcify_default_op_cache_key,
)


def has_conversion(op: Any) -> bool:
    """Whether PyTensor's registry converts ``op`` without running Python."""
    if isinstance(op, Blockwise):
        return has_conversion(op.core_op)
    return any(table.dispatch(type(op)) is not table.dispatch(object) for table in _TABLES)


@rule(Op)
def leaf(site: Site, *values: Any) -> Any:
    emit, node = site.emit, site.node
    function = emit.bind(numba_funcify(node.op, node=node), "op")
    destroyed = {k for places in node.op.destroy_map.values() for k in places}
    args = []
    for k, (v, value) in enumerate(zip(node.inputs, values, strict=True)):
        if isinstance(v.type, ScalarType):
            args.append(emit.scalar(value))
        elif not isinstance(value, Value):
            args.append(emit.bind(value, "thing"))
        elif v.type.ndim == 0:
            args.append(f"np.array({emit.scalar(value)})")
        else:
            args.append((emit.fresh if k in destroyed else emit.dense)(value).name)
    call = emit.temp(f"{function}({', '.join(args)})", "out")
    many = len(node.outputs) > 1
    names = [f"{call}[{k}]" if many else call for k in range(len(node.outputs))]
    return tuple(_result(site, name, v) for name, v in zip(names, node.outputs, strict=True))


def _result(site: Site, name: str, v: Any) -> Value:
    emit = site.emit
    if getattr(v.type, "ndim", 0) == 0:
        return small(emit.temp(f"as_scalar({name})"), v.type.dtype)
    array = emit.temp(name, "a")
    for k, n in enumerate(v.type.shape):
        if n is not None:  # what reads it relies on that
            with emit.block(f"if {array}.shape[{k}] != {n}:"):
                emit.line(
                    'raise ValueError("An op returned an array of another shape than declared")'
                )
    return emit.array(array, v)
