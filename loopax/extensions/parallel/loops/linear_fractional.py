"""Steps that are linear-fractional in one matrix, such as the covariance of a Kalman filter, in blocks.

    P[t] = C[t] + A[t] P[t - 1] (I + J[t] P[t - 1])^-1 A[t]'     of symmetric matrices

Such maps compose (the star product of Redheffer (1960), "On a certain linear fractional transformation").
For a Kalman filter, ``A``, ``C`` and ``J`` are as in the elements of Särkkä and García-Fernández
(2021), "Temporal parallelization of Bayesian smoothers", which stay as small as covariances do. The
discrete Riccati equation of optimal control has this form too, and so has, for numbers, a Beverton-Holt
population.

No textbook form is matched. The derivatives of the step at ``P = 0`` determine the coefficients:

    C = f(0)      f'(0)[X] = A X A'      f''(0)[X, Y] = -A (X J Y + Y J X) A'

and the step is linear-fractional if it equals that map at other matrices: a step is a rational function,
and two rational functions that agree at random points are equal. The program tests its result too: it
applies one more step to all matrices at once, and if that changes one, for example because the start is not
symmetric, it runs the steps sequentially.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import isqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from loopax.base.upstream.jax import ClosedJaxpr, jaxpr_as_fun
from loopax.extensions.parallel.loops.blocks import scan_in_blocks
from loopax.extensions.parallel.loops.sample_values import compiled_for, sample_value
from loopax.extensions.parallel.loops.trajectory import Equation, one_by_one, tolerance
from loopax.jax_backend.staging.static import is_traced
from loopax.numerics.manual_axes import axes_of, cond, in_shard_map, varying, zeros_like

Matrix = jax.Array  # (k, k, M), or (k, k, M, blocks)
Step = Callable[[Matrix], Matrix]


class Element(NamedTuple):
    """The map ``P -> C + A P (I + J P)^-1 A'``; each is ``(k, k, M)``. For numbers, 1 replaces A'."""

    a: Matrix
    c: Matrix
    j: Matrix


@dataclass(frozen=True)
class LinearFractional:
    """A step that is linear-fractional in one matrix ``(k, k)``, or in ``M``; solves trajectories."""

    size: int  # k

    @classmethod
    def of(
        cls, equation: Equation, consts: Sequence[Any], row: Sequence[Any], start: Any
    ) -> LinearFractional | None:
        """The form of an equation's step; None if it is not linear-fractional."""
        at = equation.at
        size = isqrt(at.size)
        mixed = [n for k, n in enumerate(at.shapes[0]) if k not in at.batch]
        is_matrix = mixed == [size, size] or at.size == 1
        is_real = jnp.issubdtype(start.dtype, jnp.floating)
        # In a `shard_map` the step cannot be evaluated on samples: its operations belong to a mesh.
        if len(at.shapes) > 1 or not is_matrix or not is_real or in_shard_map():
            return None
        solver = cls(size)
        return solver if solver._agrees(equation, consts, row, start) else None

    @property
    def in_words(self) -> str:
        return f"linear-fractional, {self.size} x {self.size}"

    def __call__(self, equation: Equation, parameters: Any, start: Any) -> tuple[Any, Any]:
        consts, rows = parameters

        def element_of(*row: Any) -> Element:
            return element(self._step(equation, consts, row), self._matrix(zeros_like(start)))

        elements = jax.vmap(element_of)(*rows)
        behind = scan_in_blocks(combined, applied, elements, self._matrix(start), equation.reverse)
        behind = behind.reshape(len(behind), *start.shape)
        after = equation.step(parameters, equation.before(behind, start))
        moved = jnp.abs(after - behind).max((1, 2))
        is_solution = jnp.all(moved <= tolerance(start.dtype) * jnp.abs(after).max((1, 2)))
        steps = partial(one_by_one, equation, parameters, start)
        return cond(is_solution, lambda: after, steps), jnp.asarray(True)

    def _matrix(self, vector: Any) -> Matrix:
        return vector.reshape(self.size, self.size, -1)

    def _step(self, equation: Equation, consts: Sequence[Any], row: Sequence[Any]) -> Step:
        run = jaxpr_as_fun(ClosedJaxpr(equation.jaxpr, list(consts)))

        def step(matrix: Matrix) -> Matrix:
            return self._matrix(run(*row, matrix.reshape(self.size**2, -1))[0])

        return step

    def _agrees(
        self, equation: Equation, consts: Sequence[Any], row: Sequence[Any], start: Any
    ) -> bool:
        """Whether the step equals the map of its derivatives at random matrices.

        Inputs that are unknown while JAX traces are random too.
        """

        def both(samples: list[Any], matrix: Any) -> Any:
            step = self._step(equation, samples[: len(consts)], samples[len(consts) :])
            matrix = jnp.broadcast_to(matrix[:, :, None], (*matrix.shape, start.shape[1]))
            return step(matrix), applied(element(step, jnp.zeros_like(matrix)), matrix)

        like = jax.ShapeDtypeStruct((self.size, self.size), start.dtype)
        rtol = float(np.sqrt(np.finfo(start.dtype).eps))
        scales = (0.1, 1.0, 10.0)  # several, to reach several branches of the step
        compiled = None
        for (seed, scale), matrix_scale in product(enumerate(scales), scales):
            samples = [sample_value(x, seed, scale) if is_traced(x) else x for x in (*consts, *row)]
            args = samples, sample_value(like, seed + len(scales), matrix_scale)
            compiled = compiled or compiled_for(both, *args)
            x, y = compiled(*args)
            if not np.max(np.abs(x - y)) <= rtol * np.max(np.abs(y)):
                return False
        return True


def element(step: Step, zero: Matrix) -> Element:
    """The coefficients of a linear-fractional step; for any other step they are meaningless."""
    return _of_numbers(step, zero) if len(zero) == 1 else _of_matrices(step, zero)


def _of_numbers(step: Step, zero: Matrix) -> Element:
    one = jnp.ones_like(zero)

    def slope(x: Matrix) -> Matrix:
        return jax.jvp(step, (x,), (one,))[1]

    a, curvature = jax.jvp(slope, (zero,), (one,))
    return Element(a, step(zero), _over(-curvature, 2 * a))


def _of_matrices(step: Step, zero: Matrix) -> Element:
    """The coefficients, from derivatives along symmetric matrices.

    ``p`` is the unit vector of the longest column of ``A``. Along ``X[j] = e[j] p' + p e[j]'`` the first
    derivative is ``a[j] a[p]' + a[p] a[j]'``, which gives the columns of ``A`` up to one sign for all. The
    second derivative along two of them, with ``u = a[p] / |a[p]|^2`` from both sides, is
    ``-2 w[j]' J w[k]`` with ``w[j] = e[j] + (u' a[j]) p``.
    """
    size = len(zero)
    eye = varying(jnp.eye(size, dtype=zero.dtype), axes_of(zero))

    def along(x: Matrix) -> Matrix:
        return jax.jvp(step, (zero,), (x,))[1]

    units = jnp.broadcast_to(eye[:, :, None], (size, *zero.shape[1:]))  # (j, k, M)
    squares = jax.vmap(lambda e: along(e[:, None] * e[None]))(units)
    lengths = jnp.einsum("jiim->jm", squares)
    p = jax.nn.one_hot(jnp.argmax(lengths, 0), size, axis=0, dtype=zero.dtype)
    square = jnp.einsum("jikm,jm->ikm", squares, p)
    longest = jnp.argmax(jnp.einsum("iim->im", square), 0)
    q = jax.nn.one_hot(longest, size, axis=0, dtype=zero.dtype)
    column = jnp.einsum("ikm,km->im", square, q)
    a_p = _over(column, jnp.sqrt((column * q).sum(0)))
    u = _over(a_p, (a_p**2).sum(0))

    pairs = units[:, :, None] * p[None, None] + p[None, :, None] * units[:, None]  # X
    seen = jnp.einsum("jikm,km->jim", jax.vmap(along)(pairs), u)
    shares = jnp.einsum("jim,im->jm", seen, u) / 2  # u' a[j]
    a = jnp.moveaxis(seen - a_p * shares[:, None], 0, 1)

    def curvature(x: Matrix, y: Matrix) -> Any:
        def slope(matrix: Matrix) -> Any:
            return jnp.einsum("im,ikm,km->m", u, jax.jvp(step, (matrix,), (x,))[1], u)

        return jax.jvp(slope, (zero,), (y,))[1]

    curvatures = jax.vmap(lambda x: jax.vmap(partial(curvature, x))(pairs))(pairs)
    # The matrix with the rows w' is I + shares p'; this is its inverse, since u' a[p] = 1.
    inverse = eye[:, :, None] - shares[:, None] * p[None] / 2
    j = jnp.einsum("ijm,jkm,lkm->ilm", inverse, -curvatures / 2, inverse)
    return Element(a, step(zero), j)


def combined(first: Element, second: Element) -> Element:
    """Compose two maps, the first one first."""
    a, c, j = first
    a2, c2, j2 = second
    inside_a, inside_c = _solved(_product(c, j2), a, c)  # (I + C J')^-1 A, and C
    return Element(
        _product(a2, inside_a),
        c2 + _product(_product(a2, inside_c), _right(a2)),
        j + _product(_product(_right(a), j2), inside_a),
    )


def applied(element: Element, matrix: Matrix) -> Matrix:
    """Apply the map to a matrix."""
    a, c, j = element
    (inside,) = _solved(_product(matrix, j), matrix)
    return c + _product(_product(a, inside), _right(a))


def _product(a: Matrix, b: Matrix) -> Matrix:
    # One operation: compiling it takes XLA half as long as the elementwise form of `recurrence`.
    return (a[:, :, None] * b[None]).sum(1)


def _right(a: Matrix) -> Matrix:
    return jnp.ones_like(a) if len(a) == 1 else jnp.swapaxes(a, 0, 1)


def _solved(x: Matrix, *rights: Matrix) -> list[Matrix]:
    """Compute ``(I + x)^-1`` times each of ``rights``."""
    if len(x) == 1:
        return [right / (1 + x) for right in rights]
    x = jnp.moveaxis(x, (0, 1), (-2, -1))
    one = jnp.eye(x.shape[-1], dtype=x.dtype)
    columns = jnp.concatenate([jnp.moveaxis(r, (0, 1), (-2, -1)) for r in rights], axis=-1)
    solutions = jnp.split(jnp.linalg.solve(one + x, columns), len(rights), axis=-1)
    return [jnp.moveaxis(y, (-2, -1), (0, 1)) for y in solutions]


def _over(x: Any, y: Any) -> Any:
    """The quotient; 0 where the denominator is 0, for a step that forgets the matrix."""
    return jnp.where(y == 0, 0.0, x / jnp.where(y == 0, 1.0, y))
