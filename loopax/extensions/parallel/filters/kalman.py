"""`kalman_filter`: linear Gaussian state space models, step by step or as an associative scan."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky, solve_triangular

from loopax.extensions.parallel.associative_scan import AssociativeScan
from loopax.extensions.parallel.filters.steps import (
    as_floats,
    for_all_steps,
    one_by_one,
    with_first,
)


class KalmanFilter(NamedTuple):
    """What `kalman_filter` returns, for ``T`` steps and ``d`` states: tensor variables."""

    means: Variable  # (T, d) means of the states, given the observations up to each
    covariances: Variable  # (T, d, d)
    log_likelihood: Variable  # () log density of all observations


def kalman_filter(
    observations: Any,
    transition: Any,
    transition_covariance: Any,
    observation: Any,
    observation_covariance: Any,
    initial_mean: Any,
    initial_covariance: Any,
    *,
    parallel: bool = False,
) -> KalmanFilter:
    """The filtered states and the log-likelihood of a linear Gaussian state space model.

    ::

        x[0] ~ N(initial_mean, initial_covariance)
        x[t] = transition[t] x[t - 1] + N(0, transition_covariance[t])
        y[t] = observation[t] x[t] + N(0, observation_covariance[t])

    Parameters
    ----------
    observations
        ``y``, of shape ``(T, p)``, ``T`` 1 or more. A step whose observations are all nan is one without:
        its state is predicted only, and it counts nothing in the likelihood.
    transition, transition_covariance
        ``(d, d)``, or ``(T, d, d)`` where they change; then those of step 0 are not used.
    observation
        ``(p, d)`` or ``(T, p, d)``.
    observation_covariance
        ``(p, p)`` or ``(T, p, p)``, positive definite.
    initial_mean, initial_covariance
        ``(d,)`` and ``(d, d)``: of the first state, before its observation.
    parallel
        Whether all steps are taken at once, as an associative scan, in about ``log T`` steps one after
        another and several times the work: for long series on an accelerator. Native code has it as a
        loop over elements, which takes several times as long, and minutes to compile with a gradient.

    Returns
    -------
    KalmanFilter
        ``(means, covariances, log_likelihood)``.

    Raises
    ------
    LoopTypeError
        An argument has another rank than those above.

    Notes
    -----
    The parallel form is that of Särkkä and García-Fernández (2021), "Temporal parallelization of Bayesian
    smoothers", IEEE Transactions on Automatic Control 66. The log-likelihood is computed from the
    filtered states by the same lines in both forms, and has the same gradients.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import kalman_filter
    >>> one = np.ones((1, 1))
    >>> found = kalman_filter(np.array([[1.0], [2.0]]), one, one, one, one, np.zeros(1), one)
    >>> found.means.eval().round(3), round(float(found.log_likelihood.eval()), 3)
    (array([[0.5],
           [1.4]]), -3.343)
    """
    state_space = read_state_space(
        "kalman_filter",
        observations,
        transition,
        transition_covariance,
        observation,
        observation_covariance,
        initial_mean,
        initial_covariance,
    )
    return filtered(*state_space, parallel)


def read_state_space(
    what: str, observations: Any, f: Any, q: Any, h: Any, r: Any, mean: Any, covariance: Any
) -> tuple[Any, Any, list[Any], list[bool]]:
    """A model as `kalman_filter` takes it, for the function ``what``.

    Returns
    -------
    The mean, covariance and log density behind the first observation; of the other steps the observations
    and the matrices of transition and observation; and for each of these whether it changes.

    Raises
    ------
    LoopTypeError
        An argument has another rank.
    """
    y: Any = as_floats(observations, "observations", (2,), what)
    f = as_floats(f, "transition", (2, 3), what)
    q = _symmetric(as_floats(q, "transition_covariance", (2, 3), what))
    h = as_floats(h, "observation", (2, 3), what)
    r = _symmetric(as_floats(r, "observation_covariance", (2, 3), what))
    mean = as_floats(mean, "initial_mean", (1,), what)
    covariance = _symmetric(as_floats(covariance, "initial_covariance", (2,), what))
    model = [f, q, h, r]
    each = [v.type.ndim == 3 for v in model]
    first = [v[0] if e else v for v, e in zip(model, each, strict=True)]
    begun = _updated(mean, covariance, y[0], *first[2:])
    return begun, y[1:], [v[1:] if e else v for v, e in zip(model, each, strict=True)], each


def filtered(begun: Any, y: Any, model: Any, each: Any, parallel: bool) -> KalmanFilter:
    """What `kalman_filter` gives, of what `read_state_space` does."""
    return (_at_once if parallel else _one_by_one)(begun, y, model, each)


def _symmetric(x: Any) -> Any:
    """A covariance, so that a gradient by one is the same in both forms, and symmetric too."""
    return (x + pt.swapaxes(x, -1, -2)) / 2


def _one_by_one(begun: Any, y: Any, model: Any, each: Any) -> KalmanFilter:
    def step(carry: Any, y: Any, *matrices: Any) -> Any:
        mean, covariance, total = carry
        mean, covariance, term = _step(mean, covariance, y, *matrices)
        return (mean, covariance, total + term), (mean, covariance)

    final, (means, covariances) = one_by_one(
        step, begun, y, *model, each=[True, *each], name="Kalman filter"
    )
    mean, covariance, _ = begun
    return KalmanFilter(with_first(mean, means), with_first(covariance, covariances), final[2])


def _at_once(begun: Any, y: Any, model: Any, each: Any) -> KalmanFilter:
    mean, covariance, term = begun
    elements = for_all_steps(_element, y, *model, each=[True, *each])
    zero = pt.zeros_like(covariance)
    first = [zero, mean, covariance, pt.zeros_like(mean), zero]
    elements = [with_first(x, rest) for x, rest in zip(first, elements, strict=True)]
    op = AssociativeScan.of(_combined, elements, name="Kalman filter")
    _, means, covariances, _, _ = op.make_node(*elements).outputs
    terms = for_all_steps(
        lambda *args: _step(*args)[2:],
        means[:-1],  # type: ignore[index]
        covariances[:-1],  # type: ignore[index]
        y,
        *model,
        each=[True, True, True, *each],
    )
    return KalmanFilter(means, covariances, term + terms[0].sum())


def _step(mean: Any, covariance: Any, y: Any, f: Any, q: Any, h: Any, r: Any) -> Any:
    """The next mean and covariance, and the log density of the observation."""
    return _updated(f @ mean, f @ covariance @ f.T + q, y, h, r)


def _observation(y: Any) -> tuple[Any, Any]:
    """Whether there is an observation, and the observation, or zeros."""
    seen = ~pt.all(pt.isnan(y))
    return seen, pt.switch(seen, y, pt.zeros_like(y))


def _updated(mean: Any, covariance: Any, y: Any, h: Any, r: Any) -> Any:
    """The update from a predicted mean and covariance."""
    seen, y = _observation(y)
    root = cholesky(h @ covariance @ h.T + r)
    whitened = solve_triangular(root, y - h @ mean, lower=True, b_ndim=1)
    gain = solve_triangular(root, h @ covariance, lower=True, b_ndim=2)
    term = -0.5 * (
        (whitened**2).sum()
        + 2 * pt.log(pt.diagonal(root)).sum()
        + y.shape[0].astype(mean.dtype) * np.asarray(np.log(2 * np.pi), mean.dtype)
    )
    return (
        pt.switch(seen, mean + gain.T @ whitened, mean),
        pt.switch(seen, covariance - gain.T @ gain, covariance),
        pt.switch(seen, term, 0.0),
    )


def _element(y: Any, f: Any, q: Any, h: Any, r: Any) -> list[Any]:
    """What one step does: the state behind it is ``N(A x + b, C)`` given ``x``, the one before.

    And the observation says of ``x`` what ``eta`` and ``J``, its information, do.
    """
    seen, y = _observation(y)
    h = pt.switch(seen, h, pt.zeros_like(h))  # what is not seen says nothing
    root = cholesky(h @ q @ h.T + r)
    gain = solve_triangular(root, h @ q, lower=True, b_ndim=2)
    ahead = solve_triangular(root, h @ f, lower=True, b_ndim=2)
    whitened = solve_triangular(root, y, lower=True, b_ndim=1)
    return [
        f - gain.T @ ahead,
        gain.T @ whitened,
        q - gain.T @ gain,
        ahead.T @ whitened,
        ahead.T @ ahead,
    ]


def _combined(first: list[Any], second: list[Any]) -> list[Any]:
    """Two stretches of steps as one, the second behind the first."""
    a, b, c, eta, j = first
    a2, b2, c2, eta2, j2 = second
    one = pt.eye(a.shape[0], dtype=a.dtype)
    inside = pt.linalg.inv(one + c @ j2)
    forth, back = a2 @ inside, a.T @ inside.T
    return [
        forth @ a,
        forth @ (b + c @ eta2) + b2,
        forth @ c @ a2.T + c2,
        back @ (eta2 - j2 @ b) + eta,
        back @ j2 @ a + j,
    ]
