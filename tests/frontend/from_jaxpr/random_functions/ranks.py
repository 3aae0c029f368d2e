"""Statements on stacks of matrices: products, windows and indices with several axes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.frontend.from_jaxpr.random_functions.arrays import Value, one_of, pick


def _stack(rng: np.random.Generator, values: list[Value]) -> Value:
    """Two 2 x 3 matrices, filled with one of the values so far."""
    x = jnp.ravel(pick(rng, values, "f"))
    filled = jnp.resize(x, (2, 2, 3)) if x.size else jnp.ones((2, 2, 3), x.dtype)
    return jnp.clip(filled * jnp.arange(1, 13, dtype=x.dtype).reshape(2, 2, 3) / 6, -20, 20)


def stacks(rng: np.random.Generator, values: list[Value]) -> Value:
    """A function of a stack of matrices and of integers; its result has at most two axes."""
    x, i = _stack(rng, values), pick(rng, values, "i", 0)
    i = jnp.sum(i) if i.ndim else i
    axis, reverse = int(rng.integers(-3, 3)), bool(rng.integers(2))
    cases = [*_products(x), *_indices(x, i), *_writes(x, i), *_along(x, axis, reverse)]
    result = one_of(rng, cases)()
    while result.ndim > 2:
        result = one_of(rng, [jnp.sum, jnp.max, jnp.mean])(result, axis=axis % result.ndim)
    return result


def _products(x: Value) -> list[Any]:
    y = x[::-1] - 0.5
    batches = (((2,), (2,)), ((0,), (0,)))
    return [
        lambda: x @ jnp.swapaxes(y, 1, 2),
        lambda: lax.dot_general(x, y, batches),
        lambda: lax.dot_general(x, y, (((1, 2), (1, 2)), ((0,), (0,)))),
        lambda: lax.dot_general(x, y, (((0,), (0,)), ((2,), (2,)))),
        lambda: jnp.tensordot(x, y, ((0, 2), (0, 2))),
        lambda: jnp.einsum("bij,bkj->kbi", x, y),
        lambda: jnp.einsum("bij,cij->bc", x, y),
        lambda: jnp.einsum("bij->ji", x),
        lambda: jnp.einsum("bbj->bj", x),
        lambda: jnp.kron(x[0], y[1]),
        lambda: jnp.inner(x, y[0, 0]),
        lambda: jnp.vdot(x, y),
        lambda: jnp.cross(x, y),
        lambda: jax.vmap(jnp.convolve)(x[:, 0], y[:, 1]),
        lambda: jnp.correlate(x[0, 0], y[0, 1], mode="full"),
        lambda: jnp.trace(x, axis1=1, axis2=2),
        lambda: jnp.diagonal(x, 1, 1, 2),
        lambda: jnp.triu(x, 1) + jnp.tril(y),
    ]


def _indices(x: Value, i: Value) -> list[Any]:
    positions = jnp.stack([i, -i, i + 2])
    table = jnp.stack([positions, positions + 1])
    return [
        lambda: x[i, :, i],
        lambda: x[:, i, positions],
        lambda: x[positions, :, positions],
        lambda: x[positions, ::-1, 1:],
        lambda: x[table, i],
        lambda: x[..., table],
        lambda: x[None, i, None, :, -1],
        lambda: x[:, 0][jnp.abs(table) % 2],
        lambda: x.at[positions, 1].get(mode="fill", fill_value=-1.0),
        lambda: x.at[0, positions].get(mode="clip"),
        lambda: lax.dynamic_slice(x, (i, 0 * i, i + 1), (1, 2, 2)),
        lambda: jnp.take(x, positions, axis=2, mode="wrap"),
        lambda: jnp.take(x, table, axis=1, mode="fill"),
        lambda: jnp.take_along_axis(x, table[:, :, None] % 2, axis=1),
        lambda: jnp.where(x > 0.5, x, 0).sum(1),
        lambda: jnp.unravel_index(jnp.argmax(x), x.shape)[1] * x[0],
    ]


def _writes(x: Value, i: Value) -> list[Any]:
    positions = jnp.stack([i, -i, i])
    rows = jnp.arange(3, dtype=x.dtype)
    return [
        lambda: x.at[i, :, i].set(0.5),
        lambda: x.at[i, 1, positions].add(rows),
        lambda: x.at[positions, 0].multiply(rows[:, None] + 1),
        lambda: x.at[:, :, positions].add(rows),
        lambda: x.at[positions, :, 1:].min(0.25),
        lambda: x.at[0, ::-1].set(x[1]),
        lambda: x.at[:, i, ::2].max(rows[:2]),
        lambda: x.at[positions, 1, positions].set(rows, mode="drop"),
        lambda: x.at[positions, 1].divide(2.0),
        lambda: x.at[positions].power(2),
        lambda: x.at[1, i].apply(jnp.sin),
        lambda: lax.dynamic_update_slice(x, x[:1, :, :2], (i, i, i)),
        lambda: jnp.fill_diagonal(x[0], 0.5, inplace=False),
        lambda: jax.ops.segment_sum(x[0].T, positions, 3),
        lambda: jax.ops.segment_max(x[0].T, jnp.abs(positions) % 2, 2),
    ]


def _along(x: Value, axis: int, reverse: bool) -> list[Any]:
    return [
        lambda: jnp.cumsum(x, axis),
        lambda: lax.cumprod(x / 3, axis % 3, reverse),
        lambda: lax.cummax(x, axis % 3, reverse),
        lambda: jnp.sort(x, axis, descending=reverse),
        lambda: jnp.argsort(x, axis).astype(x.dtype) * x,
        lambda: lax.sort((jnp.floor(x), x), dimension=axis % 3, num_keys=1)[1],
        lambda: lax.sort((jnp.floor(x), -x), dimension=axis % 3, num_keys=2)[1],
        lambda: lax.top_k(x, 2)[0],
        lambda: jax.nn.logsumexp(x, axis=(axis, (axis + 1) % 3 - 3 * (axis < 0))),
        lambda: jax.nn.log_softmax(x, axis),
        lambda: jnp.max(x, (0, 2)) - jnp.min(x, (0, 2), keepdims=True),
        lambda: jnp.argmin(x, axis).astype(x.dtype),
        lambda: jnp.flip(x, (0, axis % 2 + 1)),
        lambda: jnp.roll(x, (1, -1), (0, 2)),
        lambda: jnp.moveaxis(x, axis, 0)[1:],
        lambda: jnp.pad(x, ((0, 1), (1, 0), (0, 0)), constant_values=0.5),
        lambda: jnp.pad(x[0], 1, mode="edge"),
        lambda: jnp.pad(x[0, 0], (2, 1), mode="reflect"),
        lambda: lax.pad(x, x[0, 0, 0], ((1, 0, 1), (0, 0, 0), (-1, 1, 0))),
        lambda: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2), (1, 1, 1), "VALID"),
        lambda: lax.reduce_window(x, 0.0, lax.add, (1, 1, 2), (1, 1, 2), "SAME"),
        lambda: jnp.percentile(x, 30.0, axis=axis),
        lambda: jnp.std(x, axis, ddof=1),
        lambda: jnp.cov(x[0]),
        lambda: jnp.trapezoid(x, axis=axis),
        lambda: jnp.gradient(x[0], axis=1),
        lambda: jnp.searchsorted(jnp.sort(x[0, 0]), x[1]).astype(x.dtype),
        lambda: jnp.digitize(x[0], jnp.array([-1.0, 0.0, 1.0], x.dtype)) * x[1],
        lambda: jnp.histogram(x[0], bins=3, range=(-2.0, 2.0))[0].astype(x.dtype),
        lambda: jnp.select([x[0] > 1, x[0] > 0], [x[0], -x[0]], 0.25),
        lambda: jnp.piecewise(x[0], [x[0] < 0, x[0] >= 1], [jnp.sin, 2.0, jnp.negative]),
        lambda: jnp.split(x, 3, 2)[1],
        lambda: jnp.apply_along_axis(lambda row: row / (1 + row @ row), 2, x),
        lambda: jnp.polyval(x[0, 0], x[1]),
        lambda: lax.conv_general_dilated(x, x[:, :, :2], (1,), "SAME"),
        lambda: lax.reduce_precision(x, 8, 7),
        lambda: jnp.nextafter(x, jnp.inf) - x,
        lambda: jnp.vander(x[0, 0], 3),
    ]
