"""Each primitive that is read into the IR, against XLA, on values that are easy to get wrong."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from tests.frontend.from_jaxpr.importing import assert_native_agrees, assert_same, in_the_ir

FLOATS = ["float64", "float32"]
INTEGERS = ["int8", "int32", "int64", "uint8", "uint32", "uint64"]
NAN, INF = np.nan, np.inf


def floats(dtype: str) -> Any:
    return np.array([-3.7, -1.0, -0.5, -0.0, 0.0, 0.3, 0.5, 1.5, 2.5, 88.0, INF, -INF, NAN], dtype)


def integers(dtype: str) -> Any:
    limits = np.iinfo(dtype)
    low = [limits.min, limits.min + 1, -7, -1] if limits.min else []
    return np.array([*low, 0, 1, 2, 5, limits.max - 1, limits.max], dtype)


def pairs(values: Any) -> tuple[Any, Any]:
    x, y = np.meshgrid(values, values)
    return x.ravel(), y.ravel()


def without_lowest_bits(x: Any) -> Any:
    """``x`` without the lower half of its significand, as in an error-free product."""
    n, kind = (27, "uint64") if x.dtype == np.float64 else (12, "uint32")
    mask = np.array(-(2**n), f"int{8 * x.dtype.itemsize}").astype(kind)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, kind) & mask, x.dtype)


def shift_right(x: Any, n: Any) -> Any:
    return lax.shift_right_arithmetic(x, n) if x.dtype.kind == "i" else x


def counts(x: Any) -> Any:
    """Numbers of bits for each element, some out of range."""
    return jnp.arange(len(x), dtype=x.dtype) * 7 - (x.dtype.kind == "i")


DIGAMMA_IS_INFINITE_AT_0 = bool(np.isinf(lax.digamma(0.0)))  # JAX 0.10 has nan

ONE_FLOAT = {
    **{
        name: getattr(jnp, name)
        for name in ("exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tan", "sinh", "cosh")
    },
    **{name: getattr(jnp, name) for name in ("tanh", "arcsin", "arccos", "arctan", "arcsinh")},
    **{name: getattr(jnp, name) for name in ("arccosh", "arctanh", "sqrt", "floor", "ceil")},
    **{name: getattr(jnp, name) for name in ("sign", "abs", "isnan", "isfinite", "round")},
    "rsqrt": lax.rsqrt,
    "logistic": lax.logistic,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erf_inv": lambda x: lax.erf_inv(jnp.clip(x, -1, 1)),
    "lgamma": lax.lgamma,
    "digamma": lambda x: lax.digamma(x if DIGAMMA_IS_INFINITE_AT_0 else jnp.where(x == 0, 1, x)),
    "bessel": lambda x: (lax.bessel_i0e(jnp.nan_to_num(x)), lax.bessel_i1e(jnp.nan_to_num(x))),
    "polygamma": lambda x: [
        lax.polygamma(jnp.full_like(x, n), jnp.where(jnp.abs(x) < 50, x, jnp.inf))
        for n in (1, 2, 3)
    ],
    "cube root": jnp.cbrt,
    "polynomial": lambda x: jnp.polyval(jnp.array([0.5, -1.0, 2.0, 3.0], x.dtype), x),
    "long polynomial": lambda x: jnp.polyval(jnp.arange(10, dtype=x.dtype), x, unroll=1),
    "sign bit": lambda x: (jnp.signbit(x[:-1]), jnp.copysign(2.0, x[:-1])),  # of a nan it is 0
    "lowest bits": lambda x: jax.jit(without_lowest_bits)(
        jnp.concatenate([x, x * 1e30, x / 1e30, x / 3, x * (1 + jnp.finfo(x.dtype).eps)])
    ),
    "derivative of erf": lambda x: jax.vmap(jax.grad(lax.erf))(x[:-3]),
    "square": lax.square,
    "cube": lambda x: x**3,
    "inverse cube": lambda x: x**-3,
    "to zeroth": lambda x: lax.integer_pow(x, 0),
    "round away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "equals itself": lambda x: (x == x, x != x),
    "neg": lambda x: -x,
    "clamp": lambda x: jnp.clip(x, -1, 1),
    **{f"to {t}": lambda x, t=t: x.astype(t) for t in (*INTEGERS, "int16", "bool", "float32")},
}
TWO_FLOATS = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
    "atan2": lax.atan2,
    "pow": lambda x, y: lax.pow(jnp.abs(x), y),
    "compare": lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y),
    "where": lambda x, y: jnp.where(x < y, x, y),
    "mod": jnp.mod,
    "logaddexp": jnp.logaddexp,
}
ONE_INTEGER = {
    "neg": lambda x: -x,
    "abs": jnp.abs,
    "sign": jnp.sign,
    "not": lambda x: ~x,
    "cube": lambda x: lax.integer_pow(x, 3),
    "shifts": lambda x: (x << 3, x >> 2, lax.shift_right_logical(x, x.dtype.type(2)), x << 0),
    "far shifts": lambda x: (x << x.dtype.type(100), x >> x.dtype.type(100)),
    "shifts by numbers": lambda x: [
        [
            shift(part, n)
            for part, n in zip(jnp.split(x, [5]), jnp.split(counts(x), [5]), strict=True)
        ]
        for shift in (lax.shift_left, lax.shift_right_logical, shift_right)
    ],
    "number of bits": lax.population_count,
    "extrema": lambda x: (x.max(), x.min(), jnp.argmax(x), jnp.argmin(x), jnp.ptp(x)),
    **{f"to {t}": lambda x, t=t: x.astype(t) for t in (*INTEGERS, "bool", *FLOATS)},
}
TWO_INTEGERS = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "floor divide": jnp.floor_divide,
    "mod": jnp.mod,
    "max": lax.max,
    "min": lax.min,
    "bits": lambda x, y: (x & y, x | y, x ^ y),
    "compare": lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y),
}
FLAGS = {
    "flags": lambda x, y: (x & y, x | y, x ^ y, ~x, x.astype(int), x.astype("float32")),
    "all and any": lambda x, y: (x.all(), y.any(), (x == y).sum()),
    "switch": lambda x, y: jnp.where(x, y, ~y),
}
X = np.random.default_rng(3).normal(size=(3, 4, 2))
M = np.random.default_rng(4).normal(size=(4, 3))
OF_ARRAYS = {
    "sums": lambda x: (x.sum(), x.sum(0), x.sum((0, 2)), x.mean(1), x.prod(2)),
    "extrema": lambda x: (x.max(), x.min(1), x.max((0, 2)), jnp.argmax(x, 1), jnp.argmin(x, 2)),
    "nan": lambda x: (jnp.argmax(jnp.log(x), 1), jnp.argmin(jnp.log(x), 0), jnp.log(x).max(0)),
    "integers": lambda x: (
        x.astype(int).sum(1),
        x.astype("int8").sum(),
        (x > 0).astype(int).max(0),
    ),
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=(0, 2)),
    "cumulative": lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cumsum(x, 2, reverse=True)),
    "reshapes": lambda x: (
        x.reshape(12, 2),
        x.reshape(-1),
        x[:, None],
        x[0, :, 0],
        x.reshape(6, 4),
    ),
    "transposes": lambda x: (x.T, jnp.swapaxes(x, 0, 1), jnp.moveaxis(x, 0, 2)),
    "flips": lambda x: (x[::-1], x[:, ::-1, ::-1], jnp.flip(x, 2)),
    "slices": lambda x: (x[1:], x[:, 1:3:2], x[0, ::-2], x[-1:, 2:]),
    "joins": lambda x: (jnp.concatenate([x, x[:, :1]], 1), jnp.stack([x, x], 1), jnp.tile(x, 2)),
    "splits": lambda x: jnp.split(x, 2, axis=1),
    "pads": lambda x: (
        jnp.pad(x, 1),
        lax.pad(x, x.dtype.type(-9), ((1, 0, 2), (-1, -1, 0), (0, -2, 1))),
        lax.pad(x, x.dtype.type(0), ((-1, 2, 1), (5, 0, 0), (-3, 1, 0))),
    ),
    "rolls": lambda x: (jnp.roll(x, 1), jnp.roll(x, -1, 1), jnp.roll(x, (1, 1), (0, 2))),
    "broadcasts": lambda x: (jnp.broadcast_to(x, (2, 3, 4, 2)), jnp.ones((3, 1)) * x[:, 0]),
    "numbers": lambda x: (jnp.arange(4) + x[0, :, 0], jnp.eye(4), jnp.full((2, 3), x[0, 0, 0])),
    "products": lambda x: (
        x[:, :, 0] @ M,
        x[0, :, 0] @ M,
        M @ x[:, 0, 0],
        x[0, :, 0] @ x[1, :, 1],
        jnp.outer(x[:, 0, 0], x[0, :, 0]),
        jnp.einsum("ijk,ilk->ijl", x, x),
        jnp.einsum("ijk,jl->kil", x, M),
        jnp.tensordot(x, x, 2 * [[0, 2]]),
        x.astype(int)[0] @ x.astype(int)[1].T,
    ),
    "sorts": lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0), jnp.sort(x.ravel(), descending=True)),
    "largest": lambda x: (
        *lax.top_k(x, 2),
        *lax.top_k(jnp.round(x), 2),
        # -0.0 and 0.0, by a product: a constant that holds -0.0 stays in JAX.
        *lax.top_k(
            jnp.arange(5.0, dtype=x.dtype) % 2 * 0 * jnp.array([-1.0, 1, 1, -1, 2]) * x[0, 0, :1], 4
        ),
    ),
    "sorts by several keys": lambda x: (
        jnp.lexsort((x[:, 0, 0], jnp.round(x[:, 1, 0]))),
        lax.sort((jnp.round(x), x[::-1], x * 2), dimension=1, num_keys=2),
        jnp.sort(x > 0, 1),
        jnp.argsort(x > 0, 1),
    ),
    "largest of many": lambda x: (
        *lax.top_k(jnp.round(x.ravel()), 20),
        *lax.top_k(jnp.where(x > 1, jnp.nan, x).ravel(), 11),
        *lax.top_k(x.astype(int), 2),
        *lax.top_k(x > 0, 1),
    ),
    "positions of flags": lambda x: (jnp.argmax(x > 0, 1), jnp.argmin(x > 0, 0)),
    "cumulative integers": lambda x: (
        jnp.cumsum((x * 50).astype("int8"), 1),
        lax.cumsum((x * 9).astype(int), 0, reverse=True),
        lax.cumprod((x * 9).astype("uint8"), 1),
        jnp.cumsum(x > 0),
    ),
    "in another order": lambda x: (
        lax.reshape(x, (4, 6), dimensions=(1, 2, 0)),
        jnp.dstack([x, x]),
    ),
    "convolutions": lambda x: (
        jnp.convolve(x[0, :, 0], x[:, 0, 0]),
        jnp.correlate(x[0, :, 0], x[:, 0, 0], mode="same"),
        lax.conv(x[:, None], x[:2, None, :2], (1, 1), "SAME"),
        lax.conv_general_dilated(
            x, x[:2, :, :2], (2,), [(2, 1)], lhs_dilation=(3,), rhs_dilation=(2,)
        ),
        lax.conv_general_dilated(
            x, x[:, :2, :2], (1,), [(-1, 1)], dimension_numbers=("NHC", "OIH", "HNC")
        ),
    ),
    "convolutions of infinities": lambda x: (
        jnp.convolve(jnp.log(jnp.maximum(x[0, :, 0], 0)), x[:, 0, 0]),
        jnp.convolve(x[0, :, 0], jnp.log(x[:, 0, 0]), mode="same"),
        lax.conv(jnp.log(x[:, None]), x[:2, None, :2], (1, 1), "SAME"),
        lax.conv_general_dilated(
            jnp.log(x), x[:2, :, :2], (2,), [(2, 3)], lhs_dilation=(3,), rhs_dilation=(2,)
        ),
    ),
    "a product with fewer digits": lambda x: jnp.matmul(
        1 + x[0] * 1e-9, jnp.array([1, -1], x.dtype), preferred_element_type="float32"
    ),
    "windows": lambda x: [
        lax.reduce_window(y, init, f, (1, 3, 1), strides, "SAME", window_dilation=(1, 2, 1))
        for strides in ((1, 1, 1), (1, 2, 1))
        for y, init, f in (
            (x, x.dtype.type(0), lax.add),
            (x, x.dtype.type(-np.inf), lax.max),
            (x, x.dtype.type(np.inf), lax.min),
            ((x * 9).astype("int32"), np.int32(np.iinfo("int32").min), lax.max),
        )
    ],
    "median": lambda x: jnp.median(x, axis=1),
    "searches": lambda x: jnp.searchsorted(jnp.sort(x.ravel()), x[0].ravel()),
    "one hot": lambda x: jax.nn.one_hot(jnp.argmax(x, 1), 4),
    "triangles": lambda x: (jnp.tril(M), jnp.triu(x[:, :, 0]), jnp.diag(x[0, :, 0])),
    "complex": lambda x: (lax.real(x + 1j * x[::-1]), ((x + 2j) * x * 1j).imag),
    "calls": lambda x: (
        jax.jit(jnp.sin)(x),
        jax.checkpoint(jnp.cos)(x),
        jax.nn.relu(x),
        jax.nn.silu(x),
    ),
    "running": lambda x: (
        lax.cummax(x, 1),
        lax.cummin(x, 2, reverse=True),
        lax.cumlogsumexp(x, 1),
        lax.cumlogsumexp(x, 0, reverse=True),
        lax.cummax(jnp.log(x), 0),
        lax.cummin((x * 9).astype("int8"), 1),
        lax.cummax(x[:, :0], 1),
    ),
    "incomplete functions": lambda x: (
        jax.scipy.special.gammainc(jnp.abs(x) + 0.1, jnp.abs(x[::-1])),
        jax.scipy.special.gammainc(jnp.zeros_like(x), jnp.abs(x)),
        jax.scipy.special.gammaincc(jnp.abs(x) + 0.1, jnp.abs(x[::-1])),
        jax.scipy.special.betainc(jnp.abs(x) + 0.1, jnp.abs(x[::-1]) + 0.1, jax.nn.sigmoid(x)),
    ),
    "identities": lambda x: (checkpoint_name(x, "x"), jax.device_put(x), jnp.diagonal(x)),
    "parts": lambda x: lax.real(lax.complex(x, x[::-1]) * 1j - 1),
    "collectives": lambda x: jax.vmap(
        lambda row: (
            lax.psum(row, "rows"),
            lax.psum((row > 0, 3), "rows"),
            lax.pmean(row, "rows"),
            lax.pmax((row * 9).astype(int), "rows"),
            lax.pmin(row, "rows") * lax.axis_index("rows"),
        ),
        axis_name="rows",
    )(x),
    "softmax": lambda x: (jax.nn.softmax(x, 1), jax.nn.log_softmax(x, 2), jax.nn.softplus(x)),
}
SQUARES = np.random.default_rng(6).normal(size=(3, 4, 4))
NEAR_SINGULAR = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [4.0, -3.0, 8.0]])
OF_MATRICES = {
    "factors": lambda a: jnp.linalg.cholesky(a @ jnp.swapaxes(a, 1, 2) + jnp.eye(4, dtype=a.dtype)),
    "no factor": lambda a: jnp.linalg.cholesky(a),
    "of a triangle": lambda a: jax.scipy.linalg.cholesky(a[0] @ a[0].T, lower=False),
    "solves": lambda a: (
        jnp.linalg.solve(a[0], a[1]),
        jnp.linalg.solve(a[0], a[1, 0]),
        jnp.linalg.solve(a, a[::-1]),
        jnp.linalg.inv(a),
    ),
    "triangles": lambda a: [
        lax.linalg.triangular_solve(
            a[0], b, left_side=left, lower=lower, transpose_a=transposed, unit_diagonal=unit
        )
        for b, left in ((a[1, :, :3], True), (a[1, :3], False))
        for lower in (True, False)
        for transposed in (True, False)
        for unit in (True, False)
    ],
    "a batch of triangles": lambda a: (
        jax.scipy.linalg.solve_triangular(a, a[::-1], lower=True),
        jax.scipy.linalg.cho_solve((a[0] + 3 * jnp.eye(4, dtype=a.dtype), True), a[1, 0]),
    ),
    "lu": lambda a: (*lax.linalg.lu(a), *lax.linalg.lu(jnp.asarray(NEAR_SINGULAR, a.dtype))),
    "determinants": lambda a: (jnp.linalg.det(a), *jnp.linalg.slogdet(a)),
    "singular": lambda a: (
        *jnp.linalg.slogdet(a * jnp.array([1, 0, 1, 1], a.dtype)),
        jnp.linalg.det(a * jnp.array([1, 1, 1, 0], a.dtype)),
        *lax.linalg.lu(jnp.ones_like(a)),
        jnp.linalg.det(jnp.zeros((9, 9), a.dtype)),
    ),
    "one row": lambda a: (
        jnp.linalg.solve(a[:, :1, :1], a[:, :1]),
        jnp.linalg.cholesky(a[:, :1, :1]),
    ),
    "derivatives": lambda a: (
        jax.grad(lambda a: jnp.linalg.slogdet(a)[1].sum())(a),
        jax.grad(lambda a: jnp.linalg.cholesky(a[0] @ a[0].T).sum())(a),
        jax.jvp(jnp.linalg.inv, (a,), (a[::-1],))[1],
        jax.grad(lambda a: jnp.linalg.solve(a[0], a[1]).sum())(a),
    ),
}
PLACES = np.array([-5, -1, 0, 2, 7, 3])
Y = np.random.default_rng(5).normal(size=(4, 3))
READS = {
    "rows": lambda x, i: x[i],
    "columns": lambda x, i: x[:, i],
    "clipped": lambda x, i: x.at[i].get(mode="clip"),
    "filled": lambda x, i: x.at[i].get(mode="fill", fill_value=3.0),
    "nan where there is none": lambda x, i: x.at[i].get(mode="fill"),
    "elements": lambda x, i: x[i, i],
    "a row": lambda x, i: (x[i[0]], x[i[3]], x[i[4]]),
    "a column": lambda x, i: (x[:, i[2]], x[:, i[1]], x[:, i[4]]),
    "an element": lambda x, i: (x[i[1], i[2]], x[i[3], i[3]]),
    "a row, filled": lambda x, i: (x.at[i[0]].get(mode="fill"), x.at[i[2]].get(mode="fill")),
    "along an axis": lambda x, i: jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1),
    "a grid": lambda x, i: x[i[:2, None], i[None, 2:4]],
    "after a slice": lambda x, i: x[1:, i[:2]],
    "by take": lambda x, i: jnp.take(x, i, axis=0),
    "known places": lambda x, i: (x[np.array([0, 2, 2])], x[:, np.array([-1, 0])]),
    "flags": lambda x, i: (x > 0)[i],
    "a window": lambda x, i: (
        lax.dynamic_slice(x, (i[0], i[1]), (2, 2)),
        lax.dynamic_slice(x, (i[4], i[1]), (1, 3)),
        lax.dynamic_slice(x, (i[2], i[3]), (3, 1)),
        lax.dynamic_index_in_dim(x, i[3]),
    ),
    "windows of rows": lambda x, i: jax.vmap(lambda r, j: lax.dynamic_slice(r, (j,), (2,)))(
        x, i[:4]
    ),
    "of each row": lambda x, i: jax.vmap(lambda r, j: r[j])(x, i[:4]),
    "small indices": lambda x, i: (x[i.astype("int8")], x[jnp.abs(i).astype("uint8")]),
    "windows in one": lambda x, i: jax.vmap(lambda j: lax.dynamic_slice(x, (j, 1), (2, 2)))(i),
}
WRITES = {
    "rows": lambda x, i: (x.at[i].set(1.0), x.at[i].add(x[:1]), x.at[i].subtract(x[:1])),
    "a row": lambda x, i: (x.at[i[0]].set(5.0), x.at[i[3]].set(5.0), x.at[i[4]].set(x[0])),
    "a row, added": lambda x, i: (x.at[i[3]].add(5.0), x.at[i[4]].add(5.0), x.at[i[0]].add(1.0)),
    "subtracted integers": lambda x, i: [
        jnp.arange(3, dtype=t).at[j].subtract(jnp.abs(j).astype(t))
        for t in ("int8", "uint64")
        for j in (i, i[3])
    ],
    "an element": lambda x, i: (x.at[i[1], i[2]].set(5.0), x.at[i[1], i[4]].set(5.0)),
    "an element, added": lambda x, i: (x.at[i[1], i[2]].add(5.0), x.at[i[4], i[2]].add(5.0)),
    "an element, combined": lambda x, i: (
        x.at[i[1], i[2]].max(5.0),
        x.at[i[1], i[2]].min(-5.0),
        x.at[i[1], i[2]].multiply(2.0),
        x.at[i[4]].max(5.0),
    ),
    "elements at several positions, combined": lambda x, i: (
        x.at[i].max(x[:1]),
        x.at[i].min(x[0, 0]),
        x.at[:, i].multiply(2.0),
        x.at[i, i].max(0.5, mode="clip"),
        jax.ops.segment_max(x[:, 0], jnp.abs(i[:4]) % 3, 3),
        jax.vmap(lambda r, j: r.at[jnp.stack([j, j, 0])].multiply(9.0))(x, i[:4]),
    ),
    "columns": lambda x, i: (x.at[:, i[:3]].set(7.0), x.at[:, i[3:]].add(7.0)),
    "elements": lambda x, i: (x.at[i[:3], i[3:]].add(2.0), x.at[i[:3], i[3:]].set(2.0)),
    "clipped": lambda x, i: (x.at[i[0]].set(1.0, mode="clip"), x.at[i[4:]].add(1.0, mode="clip")),
    "part of a column": lambda x, i: x.at[1:3, i[2]].set(2.0),
    "of each row": lambda x, i: (
        jax.vmap(lambda r, j: r.at[j].set(9.0))(x, i[:4]),
        jax.vmap(lambda r, j: r.at[j].add(9.0))(x, i[:4]),
    ),
    "known places": lambda x, i: x.at[np.array([0, 2])].set(1.0),
    "flags": lambda x, i: (x > 0).at[i[3]].set(True),
    "a window": lambda x, i: (
        lax.dynamic_update_slice(x, x[:2, :2] * 2, (i[4], i[3])),
        lax.dynamic_update_slice(x, x[:1], (i[2], i[0])),
        lax.dynamic_update_index_in_dim(x, x[0], i[1], 0),
    ),
    "windows of rows": lambda x, i: jax.vmap(
        lambda r, j: lax.dynamic_update_slice(r, jnp.full(2, j, r.dtype), (j,))
    )(x, i[:4]),
    "the derivative of a read": lambda x, i: jax.grad(lambda x: (x[i] ** 2).sum())(x),
    "the derivative of a subtraction": lambda x, i: jax.grad(
        lambda x: (x.at[i].subtract(2 * x[0]) ** 2).sum()
    )(x),
}
OF_KEYS = {
    "split": lambda k: jax.random.key_data(jax.random.split(k)),
    "split into many": lambda k: jax.random.key_data(jax.random.split(k, 5)),
    "fold in": lambda k: jax.random.key_data(jax.random.fold_in(k, 3)),
    "fold in, batches": lambda k: [
        jax.random.key_data(keys)
        for keys in (
            jax.vmap(jax.random.fold_in, (0, None))(jax.random.split(k, 3), 2),
            jax.vmap(jax.random.fold_in, (None, 0))(k, jnp.arange(3)),
            jax.vmap(jax.vmap(jax.random.fold_in, (0, None)))(
                jax.random.split(k, (2, 3)), jnp.arange(2)
            ),
        )
    ],
    "seed": lambda k: jax.random.key_data(jax.random.key(jax.random.bits(k).astype(int))),
    "bits": lambda k: [jax.random.bits(k, (3,), f"uint{n}") for n in (8, 16, 32, 64)],
    "uniform": lambda k: (jax.random.uniform(k), jax.random.uniform(k, (3,), jnp.float32)),
    "normal": lambda k: (jax.random.normal(k, (5,)), jax.random.normal(k, (), jnp.float32)),
    "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (4,)),
    "categorical": lambda k: jax.random.categorical(k, jnp.arange(4.0)),
    "randint": lambda k: jax.random.randint(k, (3,), -2, 10),
    "exponential": lambda k: jax.random.exponential(k),
    "choice": lambda k: jax.random.choice(k, 5),
    "permutation": lambda k: jax.random.permutation(k, 5),
    "cloned": lambda k: jax.random.normal(jax.random.clone(k)),
    "chosen": lambda k: jax.random.key_data(
        lax.select(jnp.array([True, False]), jax.random.split(k), jax.random.split(k, 3)[1:])
    ),
    "moved": lambda k: jax.random.key_data(jnp.broadcast_to(jax.random.split(k)[1], (2, 2))),
    "at a place": lambda k: jax.random.normal(jax.random.split(k, 4)[jax.random.bits(k) % 4]),
    "keys of a batch": lambda k: jax.vmap(jax.random.normal)(jax.random.split(k, 3)),
}


def _cases() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    cases: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    for t in FLOATS:
        cases |= {f"{name} of {t}": (f, (floats(t),)) for name, f in ONE_FLOAT.items()}
        cases |= {f"{name} of two {t}": (f, pairs(floats(t))) for name, f in TWO_FLOATS.items()}
    for t in INTEGERS:
        cases |= {f"{name} of {t}": (f, (integers(t),)) for name, f in ONE_INTEGER.items()}
        both = pairs(integers(t))
        cases |= {f"{name} of two {t}": (f, both) for name, f in TWO_INTEGERS.items()}
    flags = pairs(np.array([False, True]))
    cases |= {name: (f, flags) for name, f in FLAGS.items()}
    for t in FLOATS:
        cases |= {f"{name} of {t}": (f, (X.astype(t),)) for name, f in OF_ARRAYS.items()}
        cases |= {f"{name}, {t}": (f, (SQUARES.astype(t),)) for name, f in OF_MATRICES.items()}
        cases |= {f"read {name}, {t}": (f, (Y.astype(t), PLACES)) for name, f in READS.items()}
        cases |= {f"write {name}, {t}": (f, (Y.astype(t), PLACES)) for name, f in WRITES.items()}
    key = jax.random.key(3)
    return cases | {name: (f, (key,)) for name, f in OF_KEYS.items()}


CASES = _cases()


@pytest.mark.sampled(27)
@pytest.mark.parametrize("name", CASES)
def test_it_means_what_xla_computes(name: str) -> None:
    f, args = CASES[name]
    if name in OF_KEYS:
        args = (jax.random.key_data(args[0]),)
        of_key, f = f, lambda data: of_key(jax.random.wrap_key_data(data))
    assert_same(in_the_ir(f, *args), jax.jit(f)(*args), name)


def _some(functions: dict[str, Any], k: int) -> dict[str, Any]:
    """Every fourth function: a program of all would take minutes to compile."""
    return dict(list(functions.items())[k::4])


FAMILIES = {
    "floats": (ONE_FLOAT, (floats("float64"),)),
    "short floats": (ONE_FLOAT, (floats("float32"),)),
    "two floats": (TWO_FLOATS, pairs(floats("float64"))),
    **{f"{t} alone": (ONE_INTEGER, (integers(t),)) for t in INTEGERS},
    **{f"two {t}": (TWO_INTEGERS, pairs(integers(t))) for t in INTEGERS},
    "flags": (FLAGS, pairs(np.array([False, True]))),
    **{f"arrays {k}": (_some(OF_ARRAYS, k), (X,)) for k in range(4)},
    **{f"short arrays {k}": (_some(OF_ARRAYS, k), (X.astype("float32"),)) for k in range(4)},
    **{f"matrices {k}": (_some(OF_MATRICES, k), (SQUARES,)) for k in range(4)},
    "reads": (READS, (Y, PLACES)),
    "writes": (WRITES, (Y, PLACES)),
    "keys": (OF_KEYS, (jax.random.key(3),)),
}


@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "int8 alone")) for name in FAMILIES],
)
def test_native_code_computes_what_xla_computes(family: str) -> None:
    """All of a family in one step: one program is compiled."""
    functions, args = FAMILIES[family]
    assert_native_agrees(lambda *xs: [f(*xs) for f in functions.values()], *args)
