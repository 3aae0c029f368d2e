"""Linear recurrences in a semiring, in blocks like affine ones.

    s[t] = A[t] s[t - 1] + b[t]       with the semiring's sum and product, of vectors of K numbers

`semiring_forms` recognises such steps; the matrices are their values at unit vectors. If a step normalises
its carry, each matrix is known up to a factor, which suffices: the states before each step follow up to a
factor, and one more step, applied to all at once, is exact. Blelloch (1990), "Prefix sums and their
applications"; Hassan, Särkkä and García-Fernández (2021), "Temporal parallelization of inference in hidden
Markov models".

Products are sums over the exponentials of K x K x K numbers, without a common shift: no state is lost
because it is improbable now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.base.upstream.jax import Jaxpr
from loopax.extensions.parallel.loops.blocks import scan_in_blocks
from loopax.extensions.parallel.loops.flat_jaxpr import bound, flattened, replacing, values_in
from loopax.extensions.parallel.loops.forms import SEMIRINGS, ZEROS, Linear
from loopax.extensions.parallel.loops.sample_values import sample_value
from loopax.extensions.parallel.loops.semiring_forms import linear_in
from loopax.extensions.parallel.loops.trajectory import Equation, one_by_one
from loopax.jax_backend.staging.static import is_traced
from loopax.numerics.manual_axes import axes_of, cond, varying

WORDS = {
    "logs": "linear in logarithms",
    "max": "linear in maxima",
    "min": "linear in minima",
    "linear": "linear up to a factor",
}


@dataclass(frozen=True, eq=False)
class InSemiring:
    """A step that is linear in a semiring; ``linear`` describes it for a flat jaxpr."""

    linear: Linear
    flat: Jaxpr
    consts: tuple[Any, ...]
    size: int  # of the vectors

    @classmethod
    def of(
        cls, equation: Equation, consts: Sequence[Any], row: Sequence[Any], start: Any
    ) -> InSemiring | None:
        """The form of an equation's step; None if it is linear in no semiring."""
        closed = flattened(equation.jaxpr, consts, [*row, start])
        if any(map(is_traced, closed.consts)):
            return None
        known = [None if is_traced(x) else np.asarray(x) for x in (*closed.consts, *consts)]
        known += [None] * len(row)
        for semiring in SEMIRINGS:
            linear = linear_in(semiring, closed.jaxpr, known)
            if linear is not None and _keeps_zero(linear, closed.jaxpr, known):
                return cls(linear, closed.jaxpr, tuple(closed.consts), equation.at.size)
        return None

    @property
    def in_words(self) -> str:
        return f"{WORDS[self.linear.semiring]}, {self.size} x {self.size}"

    def __call__(self, equation: Equation, parameters: Any, start: Any) -> tuple[Any, Any]:
        consts, rows = parameters
        algebra = _Algebra(self.linear.semiring, self.linear.projective)
        selects = equation.may_leave_out

        def element_of(*row: Any) -> Any:
            return self._element(algebra, (*consts, *row), start, selects)

        elements, wrong = jax.vmap(element_of)(*rows)
        if self.linear.semiring == "linear":
            elements = algebra.scaled(elements[0])

        def at_once() -> Any:
            moved, combined = algebra.moved, algebra.combined
            behind = scan_in_blocks(combined, moved, elements, start, equation.reverse)
            return equation.step(parameters, equation.before(behind, start))

        if not self.linear.is_unsure:
            return at_once(), jnp.asarray(True)
        steps = partial(one_by_one, equation, parameters, start)
        return cond(wrong.any(), steps, at_once), jnp.asarray(True)

    def _element(
        self, algebra: _Algebra, parameters: Any, start: Any, selects: bool
    ) -> tuple[tuple[Any, Any, Any], Any]:
        """The matrix, the entries that a step reads, the offset, and whether nan occurred in them.

        Their shapes are ``(K, K, M)``, and ``(K, M)`` for the offset. A step that does not select states
        reads all entries; that is None. A handwritten logsumexp of minus
        infinities alone subtracts them from each other: such nan become zeros, if the step has no nan at
        positive numbers. Any other nan is the logarithm of a negative number.
        """
        size, none = start.shape[0], jnp.full_like(start, algebra.zero)
        is_own = np.eye(size, dtype=bool)[:, :, None]
        units = jnp.where(is_own, algebra.one, jnp.broadcast_to(none, (size, *none.shape)))
        units = varying(units, axes_of(start))
        offsets = self.linear.offsets
        zero = 0.0 if algebra.semiring == "logs" else algebra.zero
        apply = replacing(offsets, lambda x: jnp.full_like(x, zero))

        def at(states: Any, apply: Any) -> Any:
            value = values_in(self.flat, self.consts, [*parameters, states], apply)(self.linear.of)
            for eqn in self.linear.moves:
                value = bound(0, eqn, [value])[0]
            return value

        def columns(states: Any) -> Any:
            return jax.vmap(lambda s: at(s, apply), out_axes=1)(states)

        matrix = columns(units)
        whole = at(jnp.full_like(start, algebra.one), bound)
        offset = at(none, bound) if offsets else none
        ours = jnp.isnan(matrix) & ~jnp.isnan(whole)[:, None], jnp.isnan(offset) & ~jnp.isnan(whole)
        elements = [
            jnp.where(o, algebra.zero, x) for o, x in zip(ours, (matrix, offset), strict=True)
        ]
        reads = None
        if selects:
            with jax.debug_nans(False):  # an entry that the step reads passes nan on
                reads = jnp.isnan(columns(jnp.where(is_own, jnp.nan, units)))
        is_wrong = jnp.isnan(matrix).any() | jnp.isnan(offset).any()
        return (elements[0], reads, elements[1]), is_wrong


@dataclass(frozen=True)
class _Algebra:
    """Operations on elements: matrices and offsets, ``(K, K, ...)`` and ``(K, ...)``."""

    semiring: str
    projective: bool

    @property
    def zero(self) -> float:
        return ZEROS[self.semiring]

    @property
    def one(self) -> float:
        return 1.0 if self.semiring == "linear" else 0.0

    def total(self, reads: Any, x: Any) -> Any:
        """The sum of the semiring along axis 1, of the numbers that are read."""
        if reads is not None:
            x = jnp.where(reads, x, self.zero)
        if self.semiring in ("max", "min"):
            return getattr(jnp, self.semiring)(x, axis=1)
        most = jnp.max(x, axis=1, keepdims=True)
        most = jnp.where(jnp.isfinite(most), most, 0.0)
        return jnp.log(jnp.exp(x - most).sum(1)) + jnp.squeeze(most, 1)

    def plus(self, x: Any, y: Any) -> Any:
        return {"logs": jnp.logaddexp, "max": jnp.maximum, "min": jnp.minimum}[self.semiring](x, y)

    def combined(self, first: Any, second: Any) -> Any:
        """Combine two consecutive elements into one."""
        if self.semiring == "linear":
            return _scaled_product(first, second)
        (a, a_reads, b), (c, c_reads, d) = first, second
        reads = all_reads = None
        if c_reads is not None:
            reads = c_reads[:, :, None] & a_reads[None]
            all_reads = reads.any(1)
        product = self.total(reads, c[:, :, None] + a[None])
        if not self.projective:
            return product, all_reads, self.plus(self._times(c, c_reads, b), d)
        most = self._most(product)
        return product - most, all_reads, d

    def moved(self, element: Any, state: Any) -> Any:
        if self.semiring == "linear":
            part, logs = element
            most = _finite(jnp.max(jnp.where(state != 0, logs, -jnp.inf), axis=0))
            weights = jnp.where(state != 0, jnp.exp(logs - most), 0.0) * state
            total = (part * weights[None]).sum(1)
            return total / _nonzero(jnp.max(jnp.abs(total), axis=0))
        a, reads, b = element
        total = self._times(a, reads, state)
        return total - self._most(total[:, None])[0] if self.projective else self.plus(total, b)

    def scaled(self, matrices: Any) -> Any:
        """Convert matrices to elements: columns scaled to a largest entry of 1, and logs of the scale."""
        most = jnp.max(jnp.abs(matrices), axis=1)
        return matrices / _nonzero(most)[:, None], jnp.log(most)

    def _times(self, a: Any, reads: Any, x: Any) -> Any:
        return self.total(reads, a + x[None])

    def _most(self, x: Any) -> Any:
        """The factor of each matrix: its largest number."""
        ends = jnp.min if self.semiring == "min" else jnp.max
        return _finite(ends(x, axis=(0, 1), keepdims=True))


def _scaled_product(first: Any, second: Any) -> Any:
    """The product of matrices with a factor for each column, scaled to numbers of one magnitude."""
    (f, g), (f2, g2) = first, second
    leads = f != 0
    most = _finite(jnp.max(jnp.where(leads, g2[:, None], -jnp.inf), axis=0))
    through = f * jnp.where(leads, jnp.exp(jnp.minimum(g2[:, None] - most[None], 0.0)), 0.0)
    product = jnp.einsum("ij...,jk...->ik...", *jnp.broadcast_arrays(f2, through))
    size = jnp.max(jnp.abs(product), axis=0)
    return product / _nonzero(size)[None], g + most + jnp.log(size)


def _finite(x: Any) -> Any:
    return jnp.where(jnp.isfinite(x), x, 0.0)


def _nonzero(x: Any) -> Any:
    return jnp.where(x == 0, 1.0, x)


def _keeps_zero(linear: Linear, jaxpr: Jaxpr, known: Sequence[Any]) -> bool:
    """Whether a step that tests for infinity maps zero to zero, or to nan, as a linear one does.

    Unknown inputs are replaced by positive numbers, for which a restarting step returns nonzero values.
    """
    if not linear.asks_for_infinity:
        return True
    zero, before = ZEROS[linear.semiring], [*jaxpr.constvars, *jaxpr.invars[:-1]]
    inputs = [sample_value(v.aval) if x is None else x for v, x in zip(before, known, strict=True)]
    n = len(jaxpr.constvars)
    state: Any = jaxpr.invars[-1].aval

    def apply(k: int, eqn: Any, operands: list[Any]) -> Any:
        if eqn.primitive.name in ("pvary", "pcast"):  # on a mesh, and here there is none
            return operands
        if (j := linear.offsets.get(k)) is not None:
            operands[j] = jnp.full_like(operands[j], zero)
        return bound(k, eqn, operands)

    with jax.ensure_compile_time_eval():
        states = jnp.full(state.shape, zero, state.dtype)
        value = values_in(jaxpr, inputs[:n], [*inputs[n:], states], apply)
        out = np.asarray(value(jaxpr.outvars[0]))
    return bool(((out == zero) | np.isnan(out)).all())
