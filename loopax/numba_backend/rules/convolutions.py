"""Convolutions of two vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.tensor.signal.conv import Convolve1d

from loopax.facts.constants import constant_value
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Dim, as_element, expr, literal
from loopax.numba_backend.emit.leaf import leaf
from loopax.numba_backend.emit.scalar_expressions import cast
from loopax.numba_backend.emit.schedule import sum_of_products
from loopax.numba_backend.emit.values import Array, Small, Value, Virtual

_MOST_PRODUCTS = 64  # that are written out


@rule(Convolve1d)
def convolve(site: Site, a: Value, b: Value, mode: Value) -> Any:
    """Compute ``out[i + j] += a[i] b[j]``; for a valid convolution, only sums over a whole vector."""
    emit, dtype = site.emit, site.out.type.dtype
    if dtype == "bool":
        return leaf(site, a, b, mode)
    flag = constant_value(site.node.inputs[2])
    is_full = None if flag is None else bool(flag)
    (m,), (n,) = a.shape, b.shape
    for axis in (m, n):
        emit.check("not_empty", axis)
    if is_full is None or not (isinstance(m, int) and isinstance(n, int) and m * n > 0):
        return _of_any_length(site, a, b, mode, is_full)
    if m > n:
        a, b, m, n = b, a, n, m
    first = 0 if is_full else m - 1
    length = n + m - 1 - 2 * first
    is_small = m * n <= _MOST_PRODUCTS and emit.is_small((length,))
    if not is_small or dtype not in ("float32", "float64"):
        return _in_memory(emit, a, b, length, dtype, first)
    x, y = ([cast(t, v.dtype, dtype) for t in emit.in_locals(v).elements] for v in (a, b))
    elements = np.empty(length, dtype=object)
    for k in range(length):
        pairs = [(x[i], y[first + k - i]) for i in range(m) if 0 <= first + k - i < n]
        elements[k] = emit.temp(sum_of_products(emit, pairs), "sum")
    return Small(elements, dtype)


def _of_any_length(site: Site, a: Value, b: Value, mode: Value, is_full: bool | None) -> Value:
    """A full convolution, and the part of it that is a valid one."""
    emit, dtype = site.emit, site.out.type.dtype
    (m,), (n,) = a.shape, b.shape
    full = _in_memory(emit, a, b, emit.temp(as_element(m) + n - 1, "n"), dtype)
    if is_full:
        return full
    flag = False if is_full is False else emit.scalar(mode)
    first = emit.temp(expr("0 if {} else min({}, {}) - 1", flag, m, n))
    length = emit.temp(expr("{} - 2 * {}", full.shape[0], first), "n")
    return Virtual((length,), dtype, lambda at: emit.read(full, [at[0] + first]))


def _in_memory(emit: Emitter, a: Value, b: Value, length: Dim, dtype: str, first: int = 0) -> Array:
    """Compute ``length`` sums from the ``first`` one on, which is 0 for a full convolution."""
    a, b = emit.for_many_reads(a), emit.for_many_reads(b)
    out = emit.empty((length,), dtype, "sums")
    emit.do("fill", out, literal(0, dtype))
    with emit.repeated(i := emit.local("i"), a.shape[0]):
        factor = emit.temp(emit.read(a, [i]).astype(dtype))
        with emit.repeated(k := emit.local("i"), length if first else b.shape[0]):
            at, k = (k, k + first - i) if first else (i + k, k)
            product = (factor * emit.read(b, [k]).astype(dtype)).astype(dtype)
            emit.set(out[[at]], out[[at]] + product)
    return Array(out, (length,), dtype, fresh=True, compact=True)
