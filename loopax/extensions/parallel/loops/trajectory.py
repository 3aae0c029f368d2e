"""All states of a loop as the solution of one equation, by any method, with its derivative.

``s[t] = f(s[t - 1], x[t])`` for all ``t`` is one equation ``s = F(s)`` for the whole trajectory. The
derivative of its solution follows by the implicit function theorem: an affine recurrence with the Jacobians
of ``f`` along the trajectory. No derivative goes through the solver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from loopax.base.upstream.jax import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from loopax.extensions.parallel.loops.coordinates import Coordinates
from loopax.extensions.parallel.loops.recurrence import linear_recurrence, states_before
from loopax.numerics.manual_axes import scan


@dataclass(frozen=True, eq=False)
class Equation:
    """The equation ``s = F(s)``, with the step as a jaxpr of its constants, a row and a state vector."""

    jaxpr: Jaxpr  # ``(*row, vector) -> [next vector]``, with the constants as its ``constvars``
    at: Coordinates  # the states as vectors
    reverse: bool  # whether the steps are taken from the last row to the first

    @classmethod
    def of(
        cls, step: Callable[..., list[Any]], row: Any, at: Coordinates, start: Any, reverse: bool
    ) -> tuple[Equation, list[Any]]:
        """Build the equation of ``step(row, states) -> next states``; also return its constants."""
        leaves, tree = jax.tree.flatten(row)

        def one(*inputs: Any) -> Any:
            return at.join(step(jax.tree.unflatten(tree, inputs[:-1]), at.split(inputs[-1])))

        traced = jax.make_jaxpr(one)(*leaves, start)
        return cls(traced.jaxpr, at, reverse), traced.consts

    def step(self, parameters: Any, before: Any) -> Any:
        """Apply ``F`` to the states before each step; ``parameters`` are the constants and the rows."""
        consts, rows = parameters
        return jax.vmap(jaxpr_as_fun(ClosedJaxpr(self.jaxpr, consts)))(*rows, before)[0]

    def matrices(self, parameters: Any, before: Any) -> Any:
        """The Jacobians, ``(N, K, K, M)``."""
        consts, rows = parameters
        run = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, consts))

        def one(state: Any, *row: Any) -> Any:
            def next_states(*states: Any) -> list[Any]:
                return self.at.split(run(*row, self.at.join(states))[0])

            return self.at.matrix(next_states, self.at.split(state))

        return jax.vmap(one)(before, *rows)

    def before(self, states: Any, start: Any) -> Any:
        return states_before(states, start, self.reverse)


def one_by_one(equation: Equation, parameters: Any, start: Any) -> Any:
    """Solve the equation step by step."""
    consts, rows = parameters
    run = jaxpr_as_fun(ClosedJaxpr(equation.jaxpr, consts))

    def body(state: Any, row: Any) -> Any:
        return (run(*row, state)[0],) * 2

    return scan(body, start, rows, reverse=equation.reverse)[1]


def tolerance(dtype: Any) -> float:
    """The relative error below which a trajectory counts as a solution."""
    return 1e-10 if dtype.itemsize > 4 else 1e-4


Solver = Callable[[Equation, Any, Any], tuple[Any, Any]]


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def trajectory(solver: Solver, equation: Equation, parameters: Any, start: Any) -> tuple[Any, Any]:
    """The solution that ``solver`` finds, ``(N, K, M)``, and whether it has converged."""
    return solver(equation, parameters, start)


@trajectory.defjvp
def _jvp(solver: Solver, equation: Equation, primals: Any, tangents: Any) -> Any:
    parameters, start = primals
    d_given, d_start = tangents
    states, solved = trajectory(solver, equation, parameters, start)
    before = equation.before(states, start)
    _, offsets = jax.jvp(lambda x: equation.step(x, before), (parameters,), (d_given,))
    dots = linear_recurrence(
        equation.matrices(parameters, before), offsets, d_start, equation.reverse
    )
    return (states, solved), (dots, jnp.zeros(solved.shape, jax.dtypes.float0))
