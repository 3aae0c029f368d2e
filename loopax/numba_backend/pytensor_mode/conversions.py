"""The ops of the IR in PyTensor's Numba mode: one registered function for each.

Here values are what they are everywhere in that mode: arrays, 0-d ones too. A body is converted by
PyTensor, with its own registry, as a function that the loop calls. (`program.py` emits a whole
program as one function instead.) `Scan` has a file of its own, `scan_conversion.py`.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
from pytensor.compile.mode import get_mode
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_ensure_cache,
    numba_njit,
    register_funcify_and_cache_key,
    register_funcify_default_op_cache_key,
)
from pytensor.link.numba.dispatch.compile_ops import numba_deepcopy

from loopax.ir import Call, Cond, FitRows, KeepRows, Stack, Unstack
from loopax.ir.compat import thaw
from loopax.numba_backend.emit.literals import dtype_name
from loopax.numba_backend.emit.source import Source, tuple_of

_NAMESPACE = {"np": np, "deepcopy": numba_deepcopy}


def converted(source: Source, parts: dict[str, tuple[Any, str | None]]) -> tuple[Any, str | None]:
    """The function, and the key of its cache: ``parts`` are functions it calls, with theirs."""
    functions = {name: function for name, (function, _) in parts.items()}
    keys = [key for _, key in parts.values()]
    key = None
    if None not in keys:
        key = sha256(repr((str(source), keys)).encode()).hexdigest()
    return numba_njit(source.function({**_NAMESPACE, **functions})), key


@cache
def _rewriter() -> GraphRewriter:
    return get_mode("NUMBA").excluding("inplace").optimizer


def converted_body(graph: Any) -> tuple[Any, str | None]:
    """The inner graph of an op, converted by PyTensor.

    Some ops have no conversion until Numba's mode has rewritten them (Matmul, random variables), and
    PyTensor does not rewrite the inner graphs of ops it does not know. In place is left out: states
    and constants are read again.
    """
    body = thaw(graph)
    _rewriter().rewrite(body)
    return numba_funcify_ensure_cache(body)


def raise_if(source: Source, condition: str, message: str) -> None:
    with source.block(f"if {condition}:"):
        source.line(f"raise ValueError({message!r})")


# -- Cond, Call ------------------------------------------------------------------------------------


@register_funcify_and_cache_key(Cond)
def cond_conversion(op: Cond, node: Any = None, **kwargs: Any) -> Any:
    operands = [f"x{k}" for k in range(len(op.fgraph.inputs))]
    outs = [f"y{k}" for k in range(op.n_outs)]
    source = Source("cond", ["condition", *operands])
    for head, branch in (("if condition.item():", "then"), ("else:", "otherwise")):
        with source.block(head):
            source.line(f"{', '.join(outs)}, = {branch}({', '.join(operands)})")
            _return_copies(source, outs)
    then, otherwise = (converted_body(branch) for branch in op.branches)
    return converted(source, {"then": then, "otherwise": otherwise})


@register_funcify_and_cache_key(Call)
def call_conversion(op: Call, node: Any = None, **kwargs: Any) -> Any:
    inputs = [f"x{k}" for k in range(len(op.fgraph.inputs))]
    outs = [f"y{k}" for k in range(len(op.fgraph.outputs))]
    source = Source("call", inputs)
    source.line(f"{', '.join(outs)}, = body({', '.join(inputs)})")
    _return_copies(source, outs)
    return converted(source, {"body": converted_body(op.fgraph)})


def _return_copies(source: Source, names: list[str]) -> None:
    """A body may return an input as it is, and PyTensor takes an op's outputs for its own."""
    copies = [f"deepcopy({name})" for name in names]
    source.line(f"return {copies[0] if len(copies) == 1 else tuple_of(copies)}")


# -- traces ----------------------------------------------------------------------------------------


@register_funcify_default_op_cache_key(FitRows)
def fit_rows_conversion(op: FitRows, node: Any = None, **kwargs: Any) -> Any:
    @numba_njit
    def fit_rows(rows, length):
        n, wanted = rows.shape[0], max(0, length.item())
        fitted = np.zeros((wanted,) + rows.shape[1:], dtype=rows.dtype)
        kept = min(n, wanted)
        for k in range(kept):  # setting a slice takes Numba seconds to compile
            fitted[k] = rows[n - kept + k]
        return fitted

    return fit_rows


@register_funcify_default_op_cache_key(KeepRows)
def keep_rows_conversion(op: KeepRows, node: Any = None, **kwargs: Any) -> Any:
    last = op.last

    @numba_njit
    def keep_rows(rows, count, length):
        n = min(count.item(), length.item(), rows.shape[0])
        kept = np.zeros((length.item(),) + rows.shape[1:], dtype=rows.dtype)
        first = rows.shape[0] - n if last else 0
        to = kept.shape[0] - n if last else 0
        for k in range(n):
            kept[to + k] = rows[first + k]
        return kept

    return keep_rows


@register_funcify_and_cache_key(Stack)
def stack_conversion(op: Stack, node: Any, **kwargs: Any) -> Any:
    dims = [f"n{k}" for k in range(len(node.inputs) - 1)]
    source = Source("stack", ["rows", *dims])
    shape = tuple_of([f"{n}.item()" for n in dims])
    source.line(f"shape = {shape}")
    source.line(
        f"stacked = np.empty((len(rows),) + shape, dtype={dtype_name(node.outputs[0].type.dtype)})"
    )
    with source.block("for k in range(len(rows)):"):
        if dims:
            message = "A row of a list has another shape than the rest: pad the rows to one shape."
            raise_if(source, "rows[k].shape != shape", message)
        source.line("stacked[k] = rows[k]" + ("" if dims else ".item()"))
    source.line("return stacked")
    return converted(source, {})


@register_funcify_and_cache_key(Unstack)
def unstack_conversion(op: Unstack, node: Any, **kwargs: Any) -> Any:
    source = Source("unstack", ["x"])
    row = "x[k].copy()" if node.inputs[0].type.ndim > 1 else "np.array(x[k])"
    source.line(f"return [{row} for k in range(len(x))]")
    return converted(source, {})
