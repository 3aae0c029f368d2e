"""Statements with transformations of JAX inside, with a user's rules, with matrices and with draws."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import lax

from tests.frontend.from_jaxpr.random_functions.arrays import Value, one_of, pick


@jax.custom_jvp
def _clipped(x: Value) -> Value:
    return jnp.clip(x, -1, 1)


@_clipped.defjvp
def _clipped_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return _clipped(x), t * jnp.exp(-x * x)


@jax.custom_vjp
def _scaled(x: Value, n: Value) -> Value:
    return x * (1 + n % 3)


_scaled.defvjp(
    lambda x, n: (_scaled(x, n), (x, n)),
    lambda saved, ct: (ct * jnp.cos(saved[0]), np.zeros(jnp.shape(saved[1]), jax.dtypes.float0)),
)


def _root(a: Value) -> Value:
    """The root of x**3 + x = a by Newton's method, which differentiates its own function."""

    def f(x: Value) -> Value:
        return x**3 + x - a

    return lax.fori_loop(0, 4, lambda _, x: x - f(x) / jax.grad(f)(x), 0.5 * a)


def transformed(rng: np.random.Generator, values: list[Value]) -> Value:
    """A derivative or a batch inside the function, or a function with a user's derivative rule."""
    x, a = pick(rng, values, "f", 1), pick(rng, values, "f", 0)
    i = jnp.sum(pick(rng, values, "i", 0))
    x, a = jnp.clip(jnp.ravel(x), -3, 3), jnp.clip(jnp.sum(a), -3, 3)

    def energy(x: Value) -> Value:
        return jnp.sum(jnp.sin(x) * a) + jnp.sum(x) ** 2 / 4

    def drift(c: Value, r: Value) -> Any:
        return jnp.tanh(c + a * r), c * r

    return one_of(
        rng,
        [
            lambda: jax.grad(energy)(x),
            lambda: jax.jvp(energy, (x,), (jnp.cos(x),))[1],
            lambda: jax.hessian(energy)(x) if x.size else x,
            lambda: jax.jacfwd(jnp.cumsum)(x) if x.size else x,
            lambda: jax.jacrev(lambda y: jnp.outer(y, y).sum(0))(x) if x.size else x,
            lambda: jax.vmap(lambda y: jnp.where(y > 0, y * a, jnp.sin(y)))(x) if x.size else x,
            lambda: jax.vmap(_root)(x) if x.size else x,
            lambda: jax.vmap(lambda y: lax.cond(y > a, jnp.sin, jnp.cos, y))(x) if x.size else x,
            lambda: (
                jax.vmap(lambda y: lax.while_loop(lambda s: s < 2, lambda s: s + 1, y))(x)
                if x.size
                else x
            ),
            lambda: jax.jit(energy)(x),
            lambda: jax.checkpoint(energy)(x),
            lambda: jax.value_and_grad(lambda y: lax.scan(drift, y, x)[0])(a)[1],
            lambda: jax.grad(lambda y: lax.scan(drift, a, y)[1].sum())(x),
            lambda: jax.jvp(lambda y: lax.scan(drift, y, x)[1], (a,), (a * 0 + 1,))[1],
            lambda: jax.linearize(jnp.tanh, x)[1](x),
            lambda: jax.vjp(jnp.tanh, x)[1](x)[0],
            lambda: _clipped(2 * x),
            lambda: _scaled(x, i),
            lambda: _root(a),
            lambda: lax.scan(lambda c, r: (_clipped(c + r), _scaled(c, i)), a, x)[1],
            lambda: lax.scan(lambda c, r: (_scaled(c, i) / 3 + r, jax.nn.relu(c)), a, x)[0],
            lambda: lax.map(lambda r: jax.nn.gelu(r) + jax.nn.silu(a), x),
            lambda: (
                lax.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (x, x))[1]
                if x.size
                else x
            ),
            lambda: jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos),
            lambda: lax.custom_root(
                lambda y: y**3 + y - a,
                0.3 * a,
                lambda f, y: lax.fori_loop(0, 30, lambda _, y: y - f(y) / (3 * y**2 + 1), y),
                lambda g, b: b / g(jnp.ones_like(b)),
            ),
        ],
    )()


def matrices(rng: np.random.Generator, values: list[Value]) -> Value:
    """A factorization, a solve or a function of a matrix far from singular, with at most two axes."""
    x = jnp.ravel(pick(rng, values, "f"))
    x = jnp.tanh(jnp.resize(x, (3, 3)) if x.size else jnp.zeros((3, 3), x.dtype))
    a = x + 0.1 * jnp.arange(9, dtype=x.dtype).reshape(3, 3) + 4 * jnp.eye(3, dtype=x.dtype)
    s = a @ a.T + jnp.diag(jnp.arange(3, dtype=x.dtype))
    b = jnp.cos(x)
    flags = [bool(rng.integers(2)) for _ in range(4)]
    return one_of(
        rng,
        [
            lambda: lax.linalg.triangular_solve(
                a,
                b,
                left_side=flags[0],
                lower=flags[1],
                transpose_a=flags[2],
                unit_diagonal=flags[3],
            ),
            lambda: jsp.linalg.solve_triangular(
                a, b[0], lower=flags[1], trans=int(flags[2]), unit_diagonal=flags[3]
            ),
            lambda: jsp.linalg.cho_solve((a, flags[0]), b),
            lambda: jsp.linalg.cho_solve(jsp.linalg.cho_factor(s, lower=flags[0]), b),
            lambda: jsp.linalg.lu_solve(jsp.linalg.lu_factor(a), b[0], trans=int(flags[0])),
            lambda: jsp.linalg.lu(a)[1 + flags[0]],
            lambda: jnp.abs(jnp.linalg.qr(a)[flags[0]]),
            lambda: jnp.linalg.eigvalsh(s, "U" if flags[0] else "L"),
            lambda: jnp.abs(jnp.linalg.eigh(s)[1][:, 0]),
            lambda: jnp.linalg.svd(a, compute_uv=False),
            lambda: jnp.linalg.det(a / 4),
            lambda: jnp.linalg.slogdet(-a)[flags[0]],
            lambda: jnp.linalg.inv(a),
            lambda: jnp.linalg.solve(jnp.stack([a, s]), b[0])[flags[0] + 0],
            lambda: jnp.linalg.solve(a, jnp.stack([b, 2 * b]))[1],
            lambda: jnp.linalg.cholesky(jnp.stack([s, 2 * s]))[1],
            lambda: jnp.linalg.cholesky(s, upper=flags[0]),
            lambda: jsp.linalg.expm(x),
            lambda: jnp.linalg.matrix_power(x, 3),
            lambda: jnp.linalg.norm(a, axis=int(flags[0])),
            lambda: jnp.linalg.pinv(a),
            lambda: jnp.linalg.lstsq(a, b[0])[0],
            lambda: jnp.linalg.multi_dot([x, b, x]),
            lambda: jsp.linalg.block_diag(x, b[:1])[2:, 2:],
            lambda: jsp.linalg.toeplitz(x[0]) @ b,
            lambda: lax.linalg.tridiagonal_solve(x[0], a[0] + 5, x[1], b),
        ],
    )()


def draws(rng: np.random.Generator, values: list[Value]) -> Value:
    """Draws, whose key an integer of the function determines, with parameters that have derivatives."""
    i, a = jnp.sum(pick(rng, values, "i", 0)), jnp.clip(jnp.sum(pick(rng, values, "f", 0)), -3, 3)
    key = jax.random.fold_in(jax.random.key(7), i.astype("uint32"))
    first, second = jax.random.split(key)
    return one_of(
        rng,
        [
            lambda: a + jax.random.normal(first, (3,), a.dtype),
            lambda: jax.random.uniform(second, (2, 2), a.dtype, minval=-1) * a,
            lambda: jax.random.exponential(first, dtype=a.dtype) * a,
            lambda: jax.random.categorical(first, jnp.stack([a, 0 * a, -a])).astype(a.dtype),
            lambda: jax.random.bernoulli(first, jax.nn.sigmoid(a), (3,)).astype(a.dtype),
            lambda: jax.random.randint(second, (3,), -5, 9),
            lambda: jax.random.permutation(first, jnp.arange(4)) * a,
            lambda: jax.random.choice(first, jnp.arange(3.0).astype(a.dtype), (2,)) + a,
            lambda: jax.random.gumbel(second, (2,), a.dtype) + a,
            lambda: jax.random.bits(first, (2,), "uint8").astype(i.dtype),
            lambda: jax.random.key_data(second).astype(i.dtype) % 1000,
            lambda: jax.random.normal(
                lax.scan(lambda k, _: tuple(jax.random.split(k)), first, length=2)[0], dtype=a.dtype
            ),
            lambda: lax.scan(
                lambda c, k: (c + jax.random.normal(k, (), a.dtype) * a, c),
                a,
                jax.random.split(first, 3),
            )[1],
            lambda: lax.fori_loop(
                0,
                3,
                lambda t, c: c + jax.random.uniform(jax.random.fold_in(first, t), (), a.dtype) * a,
                a,
            ),
            lambda: jax.random.t(first, 5.0, (2,), a.dtype) + a,
            lambda: jax.random.laplace(second, (2,), a.dtype) * a,
            lambda: jax.random.truncated_normal(second, -1.0, 1.0, (2,), a.dtype) * a,
            lambda: jax.random.poisson(first, jnp.exp(a), (2,)),
            lambda: jax.random.gamma(first, jnp.exp(a), (2,), a.dtype),
            lambda: jax.random.beta(second, 1.5, jnp.exp(a), dtype=a.dtype),
            lambda: jax.random.multivariate_normal(
                first, jnp.stack([a, -a]), jnp.eye(2, dtype=a.dtype) + 0.5
            ),
        ],
    )()
