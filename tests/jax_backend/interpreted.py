"""A JAX program run equation by equation: XLA compiles none of it as a whole, so that there can be many.

What is run is what JAX has traced: the staging, the conversions and JAX's transformations are all in it.
Loops, branches and calls are Python's; what NumPy has with the same meaning is NumPy's; a kernel is the
text of its native code, run as Python; any other primitive is JAX's own, compiled for its shapes and
parameters alone, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from loopax.calling import register_backend
from loopax.jax_backend import JAX
from loopax.jax_backend.callable.function import JaxFunction
from loopax.lowering.scan_to_loop import scan_to_loop
from tests.jax_backend.numpy_indices import RULES
from tests.numba_backend import interpreted as native


def interpreted(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, a function of arrays, traced by JAX for its arguments and run as `evaluate` does."""

    @wraps(f)
    def run(*args: Any) -> Any:
        jaxpr, shapes = jax.make_jaxpr(f, return_shape=True)(*args)
        outs = evaluate(jaxpr, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), outs)

    return run


def evaluate(jaxpr: ClosedJaxpr | Jaxpr, args: Sequence[Any]) -> list[Any]:
    """The results of ``jaxpr``: NumPy arrays, and what only JAX has, keys say, as it is."""
    consts: Sequence[Any] = ()
    if isinstance(jaxpr, ClosedJaxpr):
        jaxpr, consts = jaxpr.jaxpr, jaxpr.consts
    values: dict[Any, Any] = {}

    def read(v: Any) -> Any:
        return np.asarray(v.val, v.aval.dtype) if isinstance(v, Literal) else values[v]

    variables = [*jaxpr.constvars, *jaxpr.invars]
    values.update(zip(variables, map(_on_host, variables, [*consts, *args]), strict=True))
    with np.errstate(all="ignore"):
        for equation in jaxpr.eqns:
            outs = _computed(equation, [read(v) for v in equation.invars])
            values.update(zip(equation.outvars, map(_on_host, equation.outvars, outs), strict=True))
    return [read(v) for v in jaxpr.outvars]


def _on_host(v: Any, x: Any) -> Any:
    """``x`` as the NumPy array that the variable says."""
    if not isinstance(getattr(v.aval, "dtype", None), np.dtype):
        return x
    x = np.asarray(x, v.aval.dtype)
    assert x.shape == v.aval.shape, f"{x.shape}, not {v.aval.shape}"
    return x


def _computed(equation: Any, values: list[Any]) -> Sequence[Any]:
    primitive, params = equation.primitive, equation.params
    run = CONTROL_FLOW.get(primitive.name)
    if run is not None:
        outs = run(values, **params)
    elif (inner := _called(primitive, params)) is not None:
        outs = evaluate(inner, values)
    elif primitive.name in RULES and all(isinstance(x, np.ndarray) for x in values):
        outs = RULES[primitive.name](*values, **params)
        outs = outs if outs is NotImplemented or primitive.multiple_results else [outs]
    else:
        outs = NotImplemented
    if outs is NotImplemented:
        outs = primitive.bind(*values, **params)
        outs = outs if primitive.multiple_results else [outs]
    return outs


def _called(primitive: Any, params: Any) -> Any:
    """The jaxpr that a call is of, whatever else it says of derivatives or batches."""
    # For checkify, and without it an identity; and what puts two elements together, not whole arrays.
    if primitive.name in ("check", "reduce"):
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call"):
        if isinstance(params.get(name), ClosedJaxpr | Jaxpr):
            return params[name]
    return None


# -- control flow ------------------------------------------------------------------------------------


def _cond(values: list[Any], *, branches: Any, **_: Any) -> Any:
    index, *operands = values
    return evaluate(branches[min(max(int(index), 0), len(branches) - 1)], operands)


def _while(
    values: list[Any],
    *,
    cond_jaxpr: Any,
    body_jaxpr: Any,
    cond_nconsts: int,
    body_nconsts: int,
    **_: Any,
) -> Any:
    of_cond = values[:cond_nconsts]
    of_body = values[cond_nconsts : cond_nconsts + body_nconsts]
    carry = values[cond_nconsts + body_nconsts :]
    while True:
        (going,) = evaluate(cond_jaxpr, [*of_cond, *carry])
        if not going.any():
            return carry
        new = evaluate(body_jaxpr, [*of_body, *carry])
        # In a batch the rows that are done stay as they are.
        carry = [_where_rows(going, a, b) for a, b in zip(new, carry, strict=True)]


def _where_rows(going: Any, a: Any, b: Any) -> Any:
    if going.all():
        return a
    if not isinstance(a, np.ndarray):  # keys
        return jax.numpy.where(going.reshape(going.shape + (1,) * (a.ndim - going.ndim)), a, b)
    return np.where(going.reshape(going.shape + (1,) * (a.ndim - going.ndim)), a, b)


def _scan(values: list[Any], *, jaxpr: Any, length: int, reverse: bool, **params: Any) -> Any:
    consts, carry, xs = _scanned(values, params)
    rows: list[Any] = [None] * length
    for i in reversed(range(length)) if reverse else range(length):
        outs = evaluate(jaxpr, [*consts, *carry, *(x[i] for x in xs)])
        carry, rows[i] = outs[: len(carry)], outs[len(carry) :]
    if rows:
        return [*carry, *map(np.stack, zip(*rows, strict=True))]
    avals = jaxpr.out_avals[len(carry) :]
    return [*carry, *(np.zeros((0, *a.shape), a.dtype) for a in avals)]


def _scanned(values: list[Any], params: Any) -> list[list[Any]]:
    """The constants, states and sequences among the arguments of a scan."""
    if "ft_in" in params:  # JAX 0.12 has a tree of what they are
        return [list(part) for part in params["ft_in"].update(values).unpack()]
    n, m = params["num_consts"], params["num_consts"] + params["num_carry"]
    return [values[:n], values[n:m], values[m:]]


def _linear(values: list[Any], *, of: Any, **params: Any) -> Any:
    """A linear part of a loop that stops: its function is traced where it is lowered."""
    n = params["n"]
    jaxpr = jax.make_jaxpr(lambda *xs: of.forward(list(xs[:n]), list(xs[n:])))(*values)
    return evaluate(jaxpr, values)


def _native_call(values: list[Any], *, call_jaxpr: Any, plan: Any, n_tangents: int) -> Any:
    """A function of `loopax.native`, with kernels in the place of its loops."""
    return evaluate(plan.with_native_parts(call_jaxpr), values)


def _high(values: list[Any], *, _prim: Any) -> Any:
    """What JAX 0.12 makes of a function with a derivative of its own."""
    args = jax.tree.unflatten(_prim.in_tree, values)
    return evaluate(jax.make_jaxpr(_prim.expand)(*args), values)


# The programs of kernels live as long as their kernels.
_KERNELS: WeakKeyDictionary[Any, Callable[..., list[Any]]] = WeakKeyDictionary()


def _kernel(values: list[Any], *, kernel: Any, batch: Any, **_: Any) -> list[Any]:
    """A kernel over the axes of its batch, one element after another."""
    if kernel.no_code or not all(isinstance(x, np.ndarray) for x in values):
        return NotImplemented
    if batch:
        (has_axis, *inner), rows = batch, values[batch[0].index(True)].shape[0]
        if not rows:
            return NotImplemented
        each = [
            _kernel(
                [x[k] if has else x for x, has in zip(values, has_axis, strict=True)],
                kernel=kernel,
                batch=inner,
            )
            for k in range(rows)
        ]
        if any(row is NotImplemented for row in each):  # an inner axis has no rows
            return NotImplemented
        return [np.stack(column) for column in zip(*each, strict=True)]
    if kernel not in _KERNELS:
        graph = kernel.code.graph.clone()
        scan_to_loop(graph)
        _KERNELS[kernel] = native.interpreted(graph, sized=True)
    return [np.asarray(y) for y in _KERNELS[kernel](*map(np.copy, values))]


CONTROL_FLOW = {
    "loopax_kernel": _kernel,
    "loopax_kernel_jvp": _kernel,
    "loopax_native_call": _native_call,
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    "linear": _linear,
    "call_hi_primitive": _high,
}


# -- a backend ---------------------------------------------------------------------------------------


class InterpretedFunction(JaxFunction):
    """What `loopax.jaxify` makes for JAX; a direct call is interpreted where that one is compiled."""

    backend_name = "jax as Python"

    def _variant(self, form: Any, static: Any, open_lengths: bool = False) -> Any:
        program = super()._variant(form, static, open_lengths)
        return program if open_lengths else interpreted(program)


register_backend(
    replace(
        JAX, name=InterpretedFunction.backend_name, function=InterpretedFunction, transformations={}
    )
)
