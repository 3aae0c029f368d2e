"""All states of a loop as the solution of one equation, by any method, with its derivative.

``s[t] = f(s[t - 1], x[t])`` for all ``t`` is one equation ``s = F(s)`` for the whole trajectory. The
derivative of its solution follows by the implicit function theorem: an affine recurrence with the Jacobians
of ``f`` along the trajectory. No derivative goes through the solver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.base.upstream.jax import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from loopax.extensions.parallel.loops.coordinates import Coordinates
from loopax.extensions.parallel.loops.recurrence import linear_recurrence, states_before
from loopax.extensions.parallel.loops.sample_values import compiled_for, sample_value
from loopax.numerics.manual_axes import in_shard_map, scan

Step = Callable[..., list[Any]]  # (row, states) -> next states


@dataclass(frozen=True, eq=False)
class Equation:
    """The equation ``s = F(s)``, with the step as a jaxpr of its constants, a row and a state vector."""

    jaxpr: Jaxpr  # ``(*row, vector) -> [next vector]``, with the constants as its ``constvars``
    at: Coordinates  # the states as vectors
    reverse: bool  # whether the steps are taken from the last row to the first
    selects: bool  # whether values that only a run tells decide which states a step reads

    @classmethod
    def of(
        cls, step: Step, row: Any, at: Coordinates, start: Any, reverse: bool, selects: bool
    ) -> tuple[Equation, list[Any]]:
        """Build the equation of ``step(row, states) -> next states``; also return its constants."""
        leaves, tree = jax.tree.flatten(row)

        def one(*inputs: Any) -> Any:
            return at.join(step(jax.tree.unflatten(tree, inputs[:-1]), at.split(inputs[-1])))

        traced = jax.make_jaxpr(one)(*leaves, start)
        return cls(traced.jaxpr, at, reverse, selects), traced.consts

    def step(self, parameters: Any, before: Any) -> Any:
        """Apply ``F`` to the states before each step; ``parameters`` are the constants and the rows."""
        consts, rows = parameters
        return jax.vmap(jaxpr_as_fun(ClosedJaxpr(self.jaxpr, consts)))(*rows, before)[0]

    def matrices(self, parameters: Any, before: Any) -> Any:
        """The Jacobians, ``(N, K, K, M)``."""
        consts, rows = parameters
        return jax.vmap(partial(self._matrix, consts, 1.0))(before, *rows)

    def reads(self, parameters: Any, before: Any) -> Any:
        """Which entries of the Jacobians the steps read, ``(N, K, K, M)``; None if they read all.

        NaN in a tangent reaches every result that reads it, through products with 0 too, but not through
        the selection of another value.
        """
        if not self.may_leave_out:
            return None
        consts, rows = parameters
        with jax.debug_nans(False):
            return jnp.isnan(jax.vmap(partial(self._matrix, consts, jnp.nan))(before, *rows))

    @cached_property
    def may_leave_out(self) -> bool:
        """Whether there may be entries of the Jacobians that a step does not read."""
        state: Any = self.jaxpr.invars[-1].aval
        if not jnp.issubdtype(state.dtype, jnp.inexact):  # there is no NaN
            return False
        if self.selects or self.at.size == 1:
            return self.selects
        if in_shard_map():  # operations of the step belong to a mesh
            return True
        # Only the step's structure decides now, so any values show it.
        *row, state = [sample_value(v.aval) for v in self.jaxpr.invars]
        samples = [sample_value(v.aval) for v in self.jaxpr.constvars], state, *row
        run = compiled_for(lambda consts, *point: self._matrix(consts, jnp.nan, *point), *samples)
        return not np.isnan(run(*samples)).all()

    def _matrix(self, consts: Any, unit: float, state: Any, *row: Any) -> Any:
        run = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, consts))

        def next_states(*states: Any) -> list[Any]:
            return self.at.split(run(*row, self.at.join(states))[0])

        return self.at.matrix(next_states, self.at.split(state), unit)

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
    matrices, reads = equation.matrices(parameters, before), equation.reads(parameters, before)
    dots = linear_recurrence(matrices, offsets, d_start, reads, equation.reverse)
    return (states, solved), (dots, jnp.zeros(solved.shape, jax.dtypes.float0))
