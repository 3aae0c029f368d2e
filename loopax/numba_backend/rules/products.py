"""Products of matrices and vectors: written out where they are small."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.tensor.math import Dot

from loopax.numba_backend.emitter import Emitter, Site, rule
from loopax.numba_backend.literals import dtype_name
from loopax.numba_backend.values import Array, Index, Small, Value, Virtual

_LARGEST = 8  # from this size on, BLAS is faster than a product that is written out


@rule(Dot)
def dot(site: Site, a: Value, b: Value) -> Any:
    emit = site.emit
    dtype = site.out.type.dtype
    shape = (*a.shape[:-1], *b.shape[1:])
    n = emit.agree(a.shape[-1], b.shape[0])
    if emit.is_small(shape) and isinstance(n, int) and n <= _LARGEST:
        x = emit.in_locals(a, (*a.shape[:-1], n)).elements
        y = emit.in_locals(b, (n, *b.shape[1:])).elements
        elements = np.empty(shape, dtype=object)
        for at in np.ndindex(*shape):  # type: ignore[arg-type]
            row, column = x[at[: x.ndim - 1]], y[(slice(None), *at[x.ndim - 1 :])]
            terms = [f"{p} * {q}" for p, q in zip(row, column, strict=True)]
            elements[at] = _cast(emit, " + ".join(terms) or "0.0", a, b, dtype)
        return Small(elements, dtype)
    if a.dtype == b.dtype == dtype and dtype in ("float32", "float64") and len(shape) == 2:
        x, y = (_contiguous(emit, v) for v in (a, b))
        return Array(emit.temp(f"np.dot({x}, {y})", "a"), shape, dtype, fresh=True)
    a, b = emit.dense(a), emit.dense(b)  # each element is read more than once

    def at(index: Any) -> str:
        rows: list[Index] = list(index[: len(a.shape) - 1])
        columns: list[Index] = list(index[len(a.shape) - 1 :])
        total = emit.temp(f"{dtype_name(dtype)}(0)", "sum")
        with emit.loops([n]) as indices:
            for (k,) in indices:
                p, q = emit.read(a, [*rows, k]), emit.read(b, [k, *columns])
                emit.line(f"{total} = {dtype_name(dtype)}({total} + {p} * {q})")
        return total

    return site.result(Virtual(shape, dtype, at, cheap=False))


def _contiguous(emit: Emitter, v: Value) -> str:
    """In C order, as far as Numba's types know: it warns of a product of anything else."""
    return v.name if isinstance(v, Array) and v.fresh else emit.fresh(v).name


def _cast(emit: Emitter, expression: str, a: Value, b: Value, dtype: str) -> str:
    plain = a.dtype == b.dtype == dtype and dtype in ("float64", "float32")
    return emit.temp(expression if plain else f"{dtype_name(dtype)}({expression})")
