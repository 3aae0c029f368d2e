"""`kalman_filter`: linear Gaussian state space models, step by step or as an associative scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from loopax.extensions.parallel.filters.diffuse import Delta, delta_from, with_delta
from loopax.extensions.parallel.filters.kalman_recursion import (
    Filtered,
    Information,
    at_once,
    one_after_another,
)
from loopax.extensions.parallel.filters.reading import read_state_space
from loopax.extensions.parallel.filters.state_space import StateSpace
from loopax.extensions.parallel.filters.steps import for_all_steps, with_first


class KalmanFilter(NamedTuple):
    """The result of `kalman_filter` for ``T`` steps, ``d`` states and ``p`` observations, as variables.

    A diffuse covariance is the part that grows without bound with the variance of the start: the
    covariance of a state is ``k * diffuse + finite`` for a start of variance ``k`` that goes to
    infinity. It is 0 once the observations determine the state, and always if no state starts diffuse.
    """

    means: Variable  # (T, d) means of the states, given the observations up to each
    covariances: Variable  # (T, d, d)
    log_likelihood: Variable  # () log density of all observations
    log_likelihoods: Variable  # (T,) of each observation, given the previous ones
    predicted_means: Variable  # (T, d) means of the states, given the observations before each
    predicted_covariances: Variable  # (T, d, d)
    innovations: Variable  # (T, p) observations minus predictions; nan if missing
    innovation_covariances: Variable  # (T, p, p)
    diffuse_covariances: Variable  # (T, d, d), beside `covariances`
    predicted_diffuse_covariances: Variable  # (T, d, d), beside `predicted_covariances`


def kalman_filter(
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
) -> KalmanFilter:
    """Compute the filtered states and the log-likelihood of a linear Gaussian state space model.

    ::

        x[0] ~ N(initial_mean, initial_covariance)
        x[t] = transition[t] x[t - 1] + transition_offset[t] + N(0, transition_covariance[t])
        y[t] = observation[t] x[t] + observation_offset[t] + N(0, observation_covariance[t])

    Parameters
    ----------
    observations
        ``y``, of shape ``(T, p)``, with ``T`` at least 1. A NaN is a missing entry: it contributes
        nothing, and a step without any entries is only predicted.
    transition, transition_covariance
        ``(d, d)``, or ``(T, d, d)`` if they change over time; the matrices of step 0 are then not used.
        The covariance may be singular.
    observation
        ``(p, d)`` or ``(T, p, d)``.
    observation_covariance
        ``(p, p)`` or ``(T, p, p)``. It may be singular, or 0, if the covariance of the innovation,
        ``observation C observation.T + observation_covariance``, is positive definite; with
        ``parallel`` the same must hold with ``transition_covariance`` in place of ``C``. Otherwise, the
        results are NaN from that step on, and so is the log-likelihood; `diagnose` names the step.
    initial_mean, initial_covariance
        ``(d,)`` and ``(d, d)``: the distribution of the first state, before its observation. Optional
        with ``diffuse=True``.
    transition_offset, observation_offset
        ``(d,)`` and ``(p,)``, or with a row for each step; zeros by default.
    diffuse
        The states about which nothing is known at the start: True for all, or a flag for each. Their
        entries of ``initial_covariance`` are not used. This is the exact diffuse start, the limit as
        the variances go to infinity, and ``log_likelihood`` is the diffuse one, equal to statsmodels'
        with ``use_exact_diffuse=True``. For an approximate diffuse start write
        ``initial_covariance=1e6 * np.eye(d)``, and sum ``log_likelihoods`` without the first ones.
    parallel
        Whether to take all steps at once, as an associative scan, in about ``log T`` sequential steps
        and several times the work: for long series on an accelerator. Native code runs it as a loop
        over elements, which takes several times as long, and minutes to compile with a gradient.

    Returns
    -------
    KalmanFilter
        Fields that nothing reads are not computed.

    Raises
    ------
    LoopTypeError
        An argument has another rank than described above, or a size that does not match; or a
        covariance known before the program runs has a negative eigenvalue.

    Notes
    -----
    The parallel form follows Särkkä and García-Fernández (2021), "Temporal parallelization of Bayesian
    smoothers", IEEE Transactions on Automatic Control 66, the diffuse start de Jong (1991), "The
    diffuse Kalman filter", Annals of Statistics 19. The log-likelihood is computed from the filtered
    states by the same lines in both forms, and has the same gradients.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import kalman_filter
    >>> one = np.ones((1, 1))
    >>> result = kalman_filter(np.array([[1.0], [2.0]]), one, one, one, one, np.zeros(1), one)
    >>> result.means.eval().round(3), round(float(result.log_likelihood.eval()), 3)
    (array([[0.5],
           [1.4]]), -3.343)
    >>> level = kalman_filter(np.array([[1.0], [2.0]]), one, one, one, one, diffuse=True)
    >>> level.means.eval().round(3), round(float(level.log_likelihood.eval()), 3)
    (array([[1.   ],
           [1.667]]), -2.554)
    """
    space = read_state_space(
        "kalman_filter",
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
    result = filtered(space, parallel)
    columns = result.means, result.covariances
    predictions = space.predicted(*columns)
    if not space.is_diffuse:
        zeros = pt.zeros_like(result.covariances)
        behind, before = (*columns, zeros), (*predictions, zeros)
        terms = result.terms
    else:
        deltas = _deltas(result)
        now, then = Delta(*(x[1:] for x in deltas)), Delta(*(x[:-1] for x in deltas))
        behind, before = (
            _known(space, *rows, of) for rows, of in ((columns, now), (predictions, then))
        )
        terms = result.terms + now.log_density - then.log_density
    innovations = space.for_all_steps(lambda mean, y, h, r: [y - h @ mean], before[0])[0]
    spreads = space.for_all_steps(lambda c, y, h, r: [h @ c @ h.T + r], before[1])[0]
    return KalmanFilter(
        *behind[:2],
        log_likelihood(result),
        terms,
        *before[:2],
        innovations,
        spreads,
        behind[2],
        before[2],
    )


def filtered(space: StateSpace, parallel: bool) -> Filtered:
    """Run the recursion in the requested form."""
    return at_once(space) if parallel else one_after_another(space)


def log_likelihood(result: Filtered) -> Any:
    return (
        result.total if result.last is None else result.total + delta_from(*result.last).log_density
    )


def _deltas(result: Filtered) -> Any:
    """The posterior of ``delta`` before the first step and after each: one row more than steps."""
    assert result.information is not None
    rows = Information(*(with_first(pt.zeros_like(x[0]), x) for x in result.information))
    return for_all_steps(delta_from, *rows, each=[True, True])


def _known(
    space: StateSpace, means: TensorVariable, covariances: TensorVariable, deltas: Delta
) -> Any:
    """Extract means, covariances and diffuse covariances from means with columns for ``delta``."""

    def known(mean: TensorVariable, covariance: TensorVariable, *delta: TensorVariable) -> Any:
        return with_delta(mean, covariance, Delta(*delta), space.scale)

    rows = means, covariances, *deltas
    return for_all_steps(known, *rows, each=[True] * len(rows))
