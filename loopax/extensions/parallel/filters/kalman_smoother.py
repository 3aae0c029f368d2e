"""`kalman_smoother`: states of a linear Gaussian model given all observations, in a loop or at once.

The information of the observations from a step on, beyond the earlier ones, on its state is a vector ``r``
and a matrix ``N``, computed backwards from the next step (Bryson and Frazier, 1963; de Jong, 1989):

    r[t] = H' v + G r[t + 1]           mean        a + P r[t]
    N[t] = H' H + G N[t + 1] G'        covariance  P - P N[t] P

with the predicted mean ``a`` and covariance ``P``, the whitened innovation ``v``, the observation matrix
``H`` whitened by the same root, and ``G = (1 - P H' H)' F'``, where ``F`` is the transition to the next
step. No covariance of states is inverted: it may be singular. A stretch of steps has the same form as a
step, so that the backward loop may be an associative scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from loopax.extensions.parallel.associative_scan import AssociativeScan
from loopax.extensions.parallel.filters.diffuse import delta_from, with_delta
from loopax.extensions.parallel.filters.kalman import filtered, log_likelihood
from loopax.extensions.parallel.filters.kalman_recursion import observed
from loopax.extensions.parallel.filters.reading import read_state_space
from loopax.extensions.parallel.filters.state_space import StateSpace
from loopax.extensions.parallel.filters.steps import for_all_steps, one_by_one


class KalmanSmoother(NamedTuple):
    """The result of `kalman_smoother` for ``T`` steps and ``d`` states, as tensor variables."""

    means: Variable  # (T, d) means of the states, given all observations
    covariances: Variable  # (T, d, d)
    log_likelihood: Variable  # () log density of all observations
    diffuse_covariances: (
        Variable  # (T, d, d), as those of a `KalmanFilter`: 0 where all is determined
    )


def kalman_smoother(
    observations: TensorLike,
    transition: TensorLike,
    transition_covariance: TensorLike,
    observation: TensorLike,
    observation_covariance: TensorLike,
    initial_mean: TensorLike | None = None,
    initial_covariance: TensorLike | None = None,
    *,
    transition_offset: TensorLike | None = None,
    observation_offset: TensorLike | None = None,
    diffuse: bool | Sequence[bool] = False,
    parallel: bool = False,
) -> KalmanSmoother:
    """Compute the smoothed states and the log-likelihood of a linear Gaussian state space model.

    Parameters
    ----------
    observations, transition, transition_covariance, observation, observation_covariance
        As for `kalman_filter`, with the same shapes.
    initial_mean, initial_covariance, transition_offset, observation_offset, diffuse
        As for `kalman_filter`.
    parallel
        Whether both directions are associative scans, as for `kalman_filter`.

    Returns
    -------
    KalmanSmoother
        Fields that nothing reads are not computed.

    Raises
    ------
    LoopTypeError
        As for `kalman_filter`.

    Notes
    -----
    The parallel form follows Särkkä and García-Fernández (2021), "Temporal parallelization of Bayesian
    smoothers", IEEE Transactions on Automatic Control 66, with the backward pass of de Jong (1989),
    "Smoothing and interpolation with the state-space model", JASA 84. It inverts no covariance of
    states, so these may be singular.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import kalman_smoother
    >>> one = np.ones((1, 1))
    >>> result = kalman_smoother(np.array([[1.0], [2.0]]), one, one, one, one, np.zeros(1), one)
    >>> result.means.eval().round(3), result.covariances.eval().ravel().round(3)
    (array([[0.8],
           [1.4]]), array([0.4, 0.6]))
    """
    space = read_state_space(
        "kalman_smoother",
        observations,
        transition,
        transition_covariance,
        observation,
        observation_covariance,
        initial_mean,
        initial_covariance,
        transition_offset=transition_offset,
        observation_offset=observation_offset,
        diffuse=diffuse,
    )
    forward = filtered(space, parallel)
    predictions = space.predicted(forward.means, forward.covariances)
    backward = (_at_once if parallel else _one_by_one)(space, *predictions)
    rows = *predictions, *backward
    means, covariances = for_all_steps(_smoothed, *rows, each=[True] * 4)
    density = log_likelihood(forward)
    if forward.last is None:
        return KalmanSmoother(means, covariances, density, pt.zeros_like(covariances))
    delta = delta_from(*forward.last)

    def known(mean: TensorVariable, covariance: TensorVariable) -> Any:
        return with_delta(mean, covariance, delta, space.scale)

    means, covariances, diffuse_ones = for_all_steps(known, means, covariances, each=[True, True])
    return KalmanSmoother(means, covariances, density, diffuse_ones)


def _smoothed(
    mean: TensorVariable, covariance: TensorVariable, r: TensorVariable, n: TensorVariable
) -> tuple[Any, Any]:
    return mean + covariance @ r, covariance - covariance @ n @ covariance


def _one_by_one(space: StateSpace, means: TensorVariable, covariances: TensorVariable) -> Any:
    def step(carry: tuple[TensorVariable, ...], *row: TensorVariable) -> Any:
        new = tuple(_before(*_element(*row), *carry))
        return new, new

    rows, each = _rows(space, means, covariances)
    nothing = pt.zeros_like(means[0]), pt.zeros_like(covariances[0])  # after the last observation
    name = "Kalman smoother"
    return one_by_one(step, nothing, *rows, each=each, reverse=True, name=name)[1]


def _at_once(space: StateSpace, means: TensorVariable, covariances: TensorVariable) -> Any:
    rows, each = _rows(space, means, covariances)
    elements = for_all_steps(_element, *rows, each=each)
    op = AssociativeScan.of(_combined, elements, reverse=True, name="Kalman smoother")
    outs: Any = op.make_node(*elements).outputs
    return outs[1:]


def _rows(
    space: StateSpace, means: TensorVariable, covariances: TensorVariable
) -> tuple[list[Any], list[bool]]:
    """The arguments of `_element`, with flags for those that have a row for each step."""
    f, changes = space.model[0], space.changes[0]
    if changes:  # to the next step; for the last step any transition will do
        f = pt.concatenate([f[1:], f[-1:]])
    rows = [means, covariances, space.observations, *space.model[3:], f]
    return rows, [True, True, True, *space.changes[3:], changes]


def _element(
    mean: TensorVariable,
    covariance: TensorVariable,
    y: TensorVariable,
    h: TensorVariable,
    r: TensorVariable,
    f: TensorVariable,
) -> list[Any]:
    """The element of a step, ``G``, ``H' v`` and ``H' H``; ``f`` is the transition to the next step."""
    seen = observed(mean, covariance, y, h, r)
    says = seen.observation.T @ seen.observation
    gain = f.T - says @ (covariance @ f.T)
    return [gain, seen.observation.T @ seen.whitened, says]


def _before(
    gain: TensorVariable,
    offset: TensorVariable,
    spread: TensorVariable,
    r: TensorVariable,
    n: TensorVariable,
) -> list[Any]:
    """Compute ``r`` and ``N`` of a step from ``r`` and ``N`` of the next one."""
    return [gain @ r + offset, gain @ n @ gain.T + spread]


def _combined(late: list[Any], early: list[Any]) -> list[Any]:
    """Combine two consecutive stretches of steps into one; the earlier one comes last."""
    gain, offset, spread = early
    return [gain @ late[0], *_before(gain, offset, spread, late[1], late[2])]
