"""Scalar ops as expressions, for the common ones; the rest through PyTensor's registry.

An expression is used where Numba's arithmetic on the given dtypes is PyTensor's; where it might
differ (bool, uint64, complex), PyTensor's own function is called. It runs as fast, but takes some ten
milliseconds to compile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant
from pytensor.link.numba.dispatch.basic import numba_funcify

from loopax.numba_backend.emitter import Emitter
from loopax.numba_backend.literals import dtype_name, literal

# {0}, {1}, ... are the operands.
_FLOATS = {
    ps.TrueDiv: "{0} / {1}",
    ps.Pow: "{0} ** {1}",
    ps.Reciprocal: "1.0 / {0}",
    ps.Sqrt: "np.sqrt({0})",
    ps.Exp: "np.exp({0})",
    ps.Expm1: "np.expm1({0})",
    ps.Log: "np.log({0})",
    ps.Log1p: "np.log1p({0})",
    ps.Sin: "np.sin({0})",
    ps.Cos: "np.cos({0})",
    ps.Tan: "np.tan({0})",
    ps.Tanh: "np.tanh({0})",
    ps.IsNan: "np.isnan({0})",
    ps.IsInf: "np.isinf({0})",
}
_NUMBERS = {
    ps.Sub: "{0} - {1}",
    ps.Neg: "-{0}",
    ps.Sqr: "{0} * {0}",
    ps.Abs: "abs({0})",
    ps.LT: "{0} < {1}",
    ps.LE: "{0} <= {1}",
    ps.GT: "{0} > {1}",
    ps.GE: "{0} >= {1}",
    ps.EQ: "{0} == {1}",
    ps.NEQ: "{0} != {1}",
    ps.ScalarMaximum: "np.maximum({0}, {1})",
    ps.ScalarMinimum: "np.minimum({0}, {1})",
}
_BOOLS = {
    ps.AND: "{0} and {1}",
    ps.OR: "{0} or {1}",
    ps.Invert: "not {0}",
}
_FOLDS = {ps.Add: " + ", ps.Mul: " * "}
_REAL = {"float32", "float64"}
_INTEGERS = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}


def emit_scalar(emit: Emitter, op: Any, operands: Sequence[str], node: Any) -> list[str]:
    """Write the outputs of a scalar op, in the dtypes of ``node`` (scalar or tensor); their names."""
    dtypes = [v.type.dtype for v in node.inputs]
    outs = [v.type.dtype for v in node.outputs]
    if isinstance(op, ps.Composite):
        return _composite(emit, op, operands)
    if isinstance(op, ps.Identity) or (isinstance(op, ps.Cast) and dtypes == outs):
        return [operands[0]]
    if isinstance(op, ps.Second):
        return [operands[1] if dtypes[1] == outs[0] else _cast(emit, operands[1], outs[0])]
    if outs[0] in _REAL and set(dtypes) <= _INTEGERS | {"bool"} and type(op) in _FLOATS:
        # PyTensor computes in the dtype of the result; Numba would divide small integers in float32.
        operands, dtypes = [f"{dtype_name(outs[0])}({x})" for x in operands], outs * len(dtypes)
    expression = _expression(op, operands, dtypes)
    if expression is None:
        return _by_pytensor(emit, op, operands, dtypes, outs)
    natural = len({*dtypes, *outs}) == 1 and outs[0] in ("float64", "float32", "int64")
    if natural or outs[0] == "bool":
        return [emit.temp(expression)]
    return [_cast(emit, expression, outs[0])]


def _cast(emit: Emitter, expression: str, dtype: str) -> str:
    return emit.temp(f"{dtype_name(dtype)}({expression})")


def _expression(op: Any, operands: Sequence[str], dtypes: Sequence[str]) -> str | None:
    kind, kinds = type(op), set(dtypes)
    if kind is ps.Switch and set(dtypes[1:]) <= _REAL | _INTEGERS | {"bool"}:
        # Both are there already; the condition may be any number.
        same = dtypes[1] == dtypes[2]
        return "{1} if {0} else {2}".format(*operands) if same else None
    if kind is ps.Cast and kinds <= _REAL | _INTEGERS | {"bool"} and _is_plain_cast(op, dtypes[0]):
        return operands[0]
    table: dict[type, str] = {}
    if kinds == {"bool"}:
        table = _BOOLS
    elif kinds <= _REAL | _INTEGERS:
        if kind in _FOLDS:
            return _FOLDS[kind].join(operands)
        table = {**_NUMBERS, **_FLOATS} if kinds <= _REAL else _NUMBERS
        if kind is ps.TrueDiv and "float64" in kinds:
            table = _FLOATS
    return table[kind].format(*operands) if kind in table else None


def _is_plain_cast(op: Any, dtype: str) -> bool:
    """Numbers to wider ones or to floats: where nothing can be out of range."""
    target = op.o_type.dtype
    return target in _REAL or (dtype in _INTEGERS | {"bool"} and target == "int64")


def _by_pytensor(
    emit: Emitter, op: Any, operands: Sequence[str], dtypes: Sequence[str], outs: Sequence[str]
) -> list[str]:
    node = op.make_node(*[ps.get_scalar_type(d)() for d in dtypes])
    function = emit.bind(numba_funcify(op, node=node), "scalar")
    call = f"{function}({', '.join(operands)})"
    if len(outs) == 1:
        return [_cast(emit, call, outs[0])]
    both = emit.temp(call)
    return [_cast(emit, f"{both}[{k}]", dtype) for k, dtype in enumerate(outs)]


def _composite(emit: Emitter, op: Any, operands: Sequence[str]) -> list[str]:
    env: dict[Any, str] = dict(zip(op.fgraph.inputs, operands, strict=True))

    def read(v: Any) -> str:
        if isinstance(v, Constant):
            return literal(np.asarray(v.data, dtype=v.type.dtype))
        return env[v]

    for node in op.fgraph.toposort():
        outs = emit_scalar(emit, node.op, [read(v) for v in node.inputs], node)
        env.update(zip(node.outputs, outs, strict=True))
    return [read(v) for v in op.fgraph.outputs]
