"""Statements on arrays: each takes the values so far and returns a new one, of any shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Value = Any
Statement = Callable[[np.random.Generator, list[Value]], Value]


def pick(
    rng: np.random.Generator, values: list[Value], kind: str, ndim: int | None = None
) -> Value:
    """One of the values of a kind (``"f"``, ``"i"`` or ``"b"``), and of a rank, if there is one."""
    fitting = [v for v in values if v.dtype.kind == kind and ndim in (None, v.ndim)]
    if fitting:
        return fitting[rng.integers(len(fitting))]
    if ndim is not None:
        return pick(rng, values, kind)
    return {"f": values[0] * 0 + 0.5, "i": jnp.asarray(2), "b": jnp.asarray(True)}[kind]


def one_of(rng: np.random.Generator, cases: list[Any]) -> Any:
    """One of the cases, all equally probable."""
    return cases[rng.integers(len(cases))]


def _array(rng: np.random.Generator, values: list[Value]) -> Value:
    """A vector or matrix of floats; a vector of one number where there is none."""
    x = pick(rng, values, "f", 1 + int(rng.integers(2)))
    return x[None] if x.ndim == 0 else x


def _axis(rng: np.random.Generator, x: Value) -> int:
    return int(rng.integers(-x.ndim, x.ndim))


def _read(rng: np.random.Generator, values: list[Value]) -> Value:
    x, i = _array(rng, values), pick(rng, values, "i", 0)
    if not x.size or i.ndim:
        return x
    positions = jnp.stack([i, i + 1, -i])
    return one_of(
        rng,
        [
            lambda: x[i],
            lambda: x[..., i],
            lambda: x[positions],
            lambda: x[:, None][positions, 0],
            lambda: lax.dynamic_slice_in_dim(x, i, min(2, len(x))),
            lambda: x.at[positions].get(mode="fill", fill_value=0.25),
            lambda: jnp.take(x, positions, axis=-1, mode="wrap"),
            lambda: jnp.take(x, positions, axis=0, mode="clip"),
            lambda: jnp.take_along_axis(x, jnp.argsort(x, axis=-1), axis=-1),
            lambda: lax.dynamic_index_in_dim(x, i, 0, keepdims=False),
        ],
    )()


def _write(rng: np.random.Generator, values: list[Value]) -> Value:
    x, i, y = _array(rng, values), pick(rng, values, "i", 0), pick(rng, values, "f", 0)
    if not x.size or i.ndim or y.ndim:
        return x
    rows = jnp.stack([i, 1 - i])
    return one_of(
        rng,
        [
            lambda: x.at[i].set(y),
            lambda: x.at[..., i].set(y),
            lambda: x.at[i].add(y),
            lambda: x.at[rows].subtract(y),
            lambda: x.at[i].multiply(y),
            lambda: x.at[i].max(y),
            lambda: x.at[rows].min(y),
            lambda: x.at[jnp.stack([i, i])].add(y),
            lambda: x.at[rows].set(y, mode="drop"),
            lambda: x.at[1:].add(x[:-1]),
            lambda: x.at[::2].set(y),
            lambda: x.at[-1:].multiply(y),
            lambda: jnp.where(x > y, y, x),
            lambda: lax.dynamic_update_slice_in_dim(x, 2 * x[:1], i, 0),
            lambda: lax.dynamic_update_index_in_dim(x, y * x[0], i, 0),
        ],
    )()


def _reshape(rng: np.random.Generator, values: list[Value]) -> Value:
    x = _array(rng, values)
    axis = _axis(rng, x)
    return one_of(
        rng,
        [
            lambda: x[::-1],
            lambda: x.T,
            lambda: jnp.roll(x, 1, axis),
            lambda: jnp.flip(x, axis),
            lambda: jnp.concatenate([x[1:], x[:1]]),
            lambda: jnp.concatenate([x, x], axis),
            lambda: jnp.stack([x, 2 * x], axis)[..., :1].reshape(-1),
            lambda: jnp.pad(x, 1),
            lambda: x.reshape(-1)[: x.shape[0]],
            lambda: jnp.tile(x, 2),
            lambda: jnp.repeat(x, 2, axis),
            lambda: x[..., ::2],
            lambda: x[1:],
            lambda: x[..., :0],
            lambda: jnp.ravel(x),
            lambda: jnp.diff(x, axis=axis, prepend=0.5),
        ],
    )()


def _reduction(rng: np.random.Generator, values: list[Value]) -> Value:
    x = _array(rng, values)
    axis = one_of(rng, [None, _axis(rng, x)])
    of_any = [jnp.sum, jnp.prod]
    of_some = [
        jnp.max,
        jnp.min,
        jnp.mean,
        jnp.argmax,
        jnp.argmin,
        jax.nn.logsumexp,
        jnp.var,
        jnp.ptp,
    ]
    of_some += [jnp.median] if axis is not None else []
    length = x.size if axis is None else x.shape[axis]
    reduced = one_of(rng, of_any + of_some if length else of_any)(x, axis=axis)
    return reduced


def _along(rng: np.random.Generator, values: list[Value]) -> Value:
    """A function along one axis, which keeps the shape."""
    x = _array(rng, values)
    axis, reverse = _axis(rng, x) % x.ndim, bool(rng.integers(2))
    return one_of(
        rng,
        [
            lambda: jnp.cumsum(x, axis),
            lambda: jnp.cumprod(x, axis),
            lambda: lax.cumsum(x, axis, reverse=reverse),
            lambda: lax.cummax(x, axis, reverse=reverse),
            lambda: lax.cummin(x, axis, reverse=reverse),
            lambda: lax.cumlogsumexp(x, axis, reverse=reverse),
            lambda: jnp.sort(x, axis, descending=reverse),
            lambda: jnp.argsort(x, axis, descending=reverse),
            lambda: jax.nn.softmax(x, axis) if x.shape[axis] else x,
            lambda: jnp.cumsum(x > 0, axis),
            lambda: (
                lax.associative_scan(jnp.multiply, x, axis=axis, reverse=reverse)
                if x.shape[axis]
                else x
            ),
        ],
    )()


def _product(rng: np.random.Generator, values: list[Value]) -> Value:
    x, y = _array(rng, values), _array(rng, values)
    cases = [lambda: jnp.tanh(x @ x.T)]
    if x.ndim == 2:
        cases += [
            lambda: jnp.einsum("ij,ik->jk", x, x),
            lambda: jnp.einsum("ij,ij->i", x, x),
            lambda: jnp.linalg.solve(jnp.eye(len(x)) + 0.1 * x @ x.T, x),
            lambda: jnp.linalg.cholesky(jnp.eye(len(x)) + x @ x.T),
        ]
    if x.ndim == 2 and y.ndim == 1:
        cases += (
            [lambda: x @ y]
            if x.shape[1] == len(y)
            else [lambda: jnp.outer(y, x[:, 0])]
            if x.shape[1]
            else []
        )
    if x.ndim == y.ndim == 1:
        cases += [lambda: jnp.outer(x, y)]
        cases += [lambda: jnp.convolve(x, y, mode="same")] if len(x) and len(y) else []
        cases += [lambda: jnp.interp(x, jnp.arange(len(y), dtype=y.dtype), y)] if len(y) else []
    return jnp.clip(one_of(rng, cases)(), -50, 50)


ARRAYS: list[Statement] = [_read, _write, _reshape, _reduction, _along, _product]
