"""`kalman_smoother`: states of a linear Gaussian model given all observations, in a loop or at once.

Behind the last step the state is what the filter says. Before, given the state that follows, it is

    x[t] | x[t + 1] ~ N(gain x[t + 1] + offset, spread)

which hangs on the filter's mean and covariance at ``t`` alone. So what a stretch of steps does is of the
same form, and the loop backwards (Rauch, Tung and Striebel, 1965) may be an associative scan.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky, solve_triangular

from loopax.extensions.parallel.associative_scan import AssociativeScan
from loopax.extensions.parallel.filters.kalman import filtered, read_state_space
from loopax.extensions.parallel.filters.steps import for_all_steps, one_by_one, with_last


class KalmanSmoother(NamedTuple):
    """What `kalman_smoother` returns, for ``T`` steps and ``d`` states: tensor variables."""

    means: Variable  # (T, d) means of the states, given all observations
    covariances: Variable  # (T, d, d)
    log_likelihood: Variable  # () log density of all observations


def kalman_smoother(
    observations: Any,
    transition: Any,
    transition_covariance: Any,
    observation: Any,
    observation_covariance: Any,
    initial_mean: Any,
    initial_covariance: Any,
    *,
    parallel: bool = False,
) -> KalmanSmoother:
    """The smoothed states and the log-likelihood of a linear Gaussian state space model.

    Parameters
    ----------
    observations, transition, transition_covariance, observation, observation_covariance
        As for `kalman_filter`, of the same shapes.
    initial_mean, initial_covariance
        As for `kalman_filter`. The covariance of each state given the observations before it,
        ``transition C transition.T + transition_covariance``, has to be positive definite.
    parallel
        Whether both directions are associative scans, as for `kalman_filter`.

    Returns
    -------
    KalmanSmoother
        ``(means, covariances, log_likelihood)``.

    Raises
    ------
    LoopTypeError
        An argument has another rank than those of `kalman_filter`.

    Notes
    -----
    The parallel form is that of Särkkä and García-Fernández (2021), "Temporal parallelization of Bayesian
    smoothers", IEEE Transactions on Automatic Control 66. Covariances are sums of ``A C A.T``, which
    stay symmetric, and positive up to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import kalman_smoother
    >>> one = np.ones((1, 1))
    >>> found = kalman_smoother(np.array([[1.0], [2.0]]), one, one, one, one, np.zeros(1), one)
    >>> found.means.eval().round(3), found.covariances.eval().ravel().round(3)
    (array([[0.8],
           [1.4]]), array([0.4, 0.6]))
    """
    begun, y, model, each = read_state_space(
        "kalman_smoother",
        observations,
        transition,
        transition_covariance,
        observation,
        observation_covariance,
        initial_mean,
        initial_covariance,
    )
    forward = filtered(begun, y, model, each, parallel)
    form = _at_once if parallel else _one_by_one
    found = form(forward.means, forward.covariances, model[:2], each[:2])
    return KalmanSmoother(*found, forward.log_likelihood)


def _one_by_one(means: Any, covariances: Any, transitions: Any, each: Any) -> tuple[Any, Any]:
    def step(carry: Any, mean: Any, covariance: Any, f: Any, q: Any) -> Any:
        new = _before(*_element(mean, covariance, f, q), *carry)
        return new, new

    last, before = (means[-1], covariances[-1]), (means[:-1], covariances[:-1])
    _, smoothed = one_by_one(
        step,
        last,
        *before,
        *transitions,
        each=[True, True, *each],
        reverse=True,
        name="Kalman smoother",
    )
    return tuple(with_last(x, end) for x, end in zip(smoothed, last, strict=True))


def _at_once(means: Any, covariances: Any, transitions: Any, each: Any) -> tuple[Any, Any]:
    before = means[:-1], covariances[:-1]
    elements = for_all_steps(_element, *before, *transitions, each=[True, True, *each])
    last = means[-1], covariances[-1]
    ends = pt.zeros_like(last[1]), *last
    elements = [with_last(x, end) for x, end in zip(elements, ends, strict=True)]
    op = AssociativeScan.of(_combined, elements, reverse=True, name="Kalman smoother")
    _, smoothed, spreads = op.make_node(*elements).outputs
    return smoothed, spreads


def _element(mean: Any, covariance: Any, f: Any, q: Any) -> tuple[Any, Any, Any]:
    """The state of a step given the one that follows: gain, offset and spread."""
    root = cholesky(f @ covariance @ f.T + q)
    whitened = solve_triangular(root, f @ covariance, lower=True, b_ndim=2)
    gain = solve_triangular(root.T, whitened, lower=False, b_ndim=2).T
    rest = covariance - gain @ (f @ covariance)  # twice, from both sides: symmetric, and positive
    spread = rest - (rest @ f.T) @ gain.T + gain @ q @ gain.T
    return gain, mean - gain @ (f @ mean), spread


def _before(gain: Any, offset: Any, spread: Any, mean: Any, covariance: Any) -> tuple[Any, Any]:
    """The mean and covariance of a state from those of the one that follows."""
    return gain @ mean + offset, gain @ covariance @ gain.T + spread


def _combined(late: list[Any], early: list[Any]) -> list[Any]:
    """Two stretches of steps as one, the one before them in the end."""
    gain, offset, spread = early
    return [gain @ late[0], *_before(gain, offset, spread, late[1], late[2])]
