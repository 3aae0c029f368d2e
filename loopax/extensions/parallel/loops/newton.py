"""A trajectory by Newton's method on all of its steps at once.

``s[t] = f(s[t - 1], x[t])`` for all ``t`` is one equation ``s = F(s)`` for the whole trajectory. A step of
Newton's method is an affine recurrence with the Jacobians of ``f`` along the current trajectory,

    s'[t] = f(s[t - 1]) + (1 - d) J[t] (s'[t - 1] - s[t - 1])

that is Lim et al. (2024), "Parallelizing non-linear sequential models over the sequence length" (DEER).
Where the current trajectory is unstable the recurrence overflows, so ``d`` damps the Jacobians, in place of
the trust region of Gonzalez et al. (2024), "Towards scalable and stable parallelization of nonlinear RNNs"
(ELK). It grows if a step does not reduce the residual, and shrinks if it does. ``d = 1`` is Picard's
iteration, which makes one more step of the loop exact each time.

A residual may grow for some undamped steps before it vanishes, so a number of them are tried, and discarded
for the best trajectory so far if none of them is better. Of 43 loops of 1000 steps (logistic maps,
recurrent networks, oscillators, of which 26 pendulums) damping with such trials converged for 33 in 150
iterations, without them for 10, whole steps alone for 31, and a trust region, Levenberg and Marquardt's
with a radius that follows the residual, for 17.

The derivative of the solution is defined in `trajectory`: an affine recurrence with the undamped Jacobians.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from loopax.base.errors import ConvergenceError
from loopax.extensions.parallel.loops.recurrence import linear_recurrence
from loopax.extensions.parallel.loops.trajectory import Equation, one_by_one, tolerance, trajectory
from loopax.ir.ops.calling_convention import Newton
from loopax.jax_backend.staging.checked import Failure, checked
from loopax.jax_backend.staging.evaluate import Site
from loopax.numerics.manual_axes import cond, while_loop

_LEAST_DAMPING = 0.05  # less counts as none
_TRIALS = 32  # successive undamped steps that may increase the residual


def newton(site: Site, method: Newton, equation: Equation, parameters: Any, start: Any) -> Any:
    """The states after each step, ``(N, K, M)``, by ``method``.

    Parameters
    ----------
    site
        The `Site` of the loop.
    equation, parameters
        The equation that the states solve, with the constants and the rows of its step.
    start
        The states before the first step, ``(K, M)``.
    """
    if method.tol is None:
        method = method._replace(tol=tolerance(start.dtype))
    states, converged = trajectory(_Solver(method), equation, parameters, start)
    if method.otherwise == "sequential":
        return states
    failure = Failure(
        ConvergenceError,
        f"{site.op}, with parallel='newton', did not converge in {method.max_iters} iterations: its "
        f"{len(states)} steps do not come to within tol={method.tol} of one trajectory. A loop that "
        "forgets its past converges in few iterations, a chaotic one does not. Give it more "
        "(max_iters=), or let it take its steps one by one where that happens, "
        "otherwise='sequential', or always, without parallel='newton'.",
    )
    site.context.failures.add(failure)
    return checked(states, converged, failure, raises=True)


@dataclass(frozen=True)
class _Solver:
    """Newton's method, with sequential steps as a fallback if that is requested."""

    method: Newton

    def __call__(self, equation: Equation, parameters: Any, start: Any) -> tuple[Any, Any]:
        states, converged = _iterated(equation, self.method, parameters, start)
        if self.method.otherwise == "sequential":
            states = cond(
                converged, lambda: states, partial(one_by_one, equation, parameters, start)
            )
        return states, converged


def _iterated(equation: Equation, method: Newton, parameters: Any, start: Any) -> tuple[Any, Any]:
    """The last iterate, and whether it is a solution."""
    tol, most = method.tol, method.max_iters
    assert tol is not None  # `newton` chooses one

    def residual(states: Any, following: Any) -> Any:
        return jnp.sqrt(jnp.mean(jnp.abs(following - states) ** 2))

    def goes_on(carry: Any) -> Any:
        count, converged = carry[0], carry[1]
        return (count < most) & ~converged

    def iterate(carry: Any) -> Any:
        count, _, damping, tries, (states, following), best, best_error = carry
        before = equation.before(states, start)
        matrices = (1 - damping) * equation.matrices(parameters, before)
        offsets = following - (matrices * before[:, None]).sum(2)
        new_states = linear_recurrence(matrices, offsets, start, None, equation.reverse)
        after = equation.step(parameters, equation.before(new_states, start))
        error = residual(new_states, after)
        scale = 1 + jnp.max(jnp.abs(new_states))
        moved = jnp.max(jnp.abs(new_states - states))
        finite, whole = jnp.isfinite(error), damping == 0
        # After so small an undamped step of Newton's method, the error is about the square of the step.
        converged = finite & whole & (moved <= tol * scale)
        better = finite & ((error < best_error) | (error <= tol * scale) | (damping == 1))
        trial = finite & whole & ~better & (tries < _TRIALS)
        new, is_accepted = (new_states, after), better | trial | converged
        best = _chosen(better, new, best)
        states = _chosen(is_accepted, new, best)
        less = jnp.where(damping < _LEAST_DAMPING, 0.0, damping / 2)
        more = jnp.where(damping > 1 - _LEAST_DAMPING, 1.0, (1 + damping) / 2)
        damping = jnp.where(better, less, jnp.where(trial, 0.0, more)).astype(damping.dtype)
        tries = jnp.where(better, 0, jnp.where(whole, jnp.where(trial, tries + 1, _TRIALS), tries))
        best_error = jnp.where(better, error, best_error)
        return count + 1, converged, damping, tries, states, best, best_error

    rows = jax.tree.leaves(parameters[1])[0].shape[0]
    guess = jnp.broadcast_to(start, (rows, *start.shape))
    following = equation.step(parameters, equation.before(guess, start))
    error = residual(guess, following)
    first = guess, following
    begin = (0, jnp.asarray(False), jnp.zeros((), error.dtype), 0, first, first, error)
    _, converged, _, _, (states, _), _, _ = while_loop(goes_on, iterate, begin)
    return states, converged


def _chosen(which: Any, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(which, x, y), a, b)
