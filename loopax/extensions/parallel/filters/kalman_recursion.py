"""The recursion of a Kalman filter, as a loop or an associative scan: states after each step.

If means have columns (`StateSpace`), all but the first are coefficients of ``delta``, and the columns of
the whitened innovations are the information of the observations on it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.variable import TensorVariable

from loopax.extensions.parallel.associative_scan import AssociativeScan
from loopax.extensions.parallel.filters.state_space import StateSpace, in_columns, predicted
from loopax.extensions.parallel.filters.steps import for_all_steps, one_by_one, with_first


class Information(NamedTuple):
    """The information of observations on ``delta``: ``exp(eta' delta - delta' matrix delta / 2)``."""

    matrix: Any
    eta: Any


class Filtered(NamedTuple):
    """Results of the recursion for ``T`` steps, including ``delta`` if the start is diffuse."""

    means: Any  # (T, d), or (T, d, 1 + q)
    covariances: Any  # (T, d, d)
    terms: Any  # (T,) log densities of the observations, for delta = 0
    total: Any  # their sum
    information: Information | None  # after each step
    last: Information | None  # after the last step


class Observed(NamedTuple):
    """The information of an observation on a state."""

    root: Any  # (p, p) Cholesky factor of the covariance of the innovation
    whitened: Any  # (p,), or (p, 1 + q): the inverse root times the innovation
    observation: Any  # (p, d): the inverse root times the matrix of the observation
    log_density: Any


def one_after_another(space: StateSpace) -> Filtered:
    mean, covariance, term, *of_delta = _updated(
        space.mean, space.covariance, space.observations[0], *space.first[3:]
    )

    def step(carry: tuple[TensorVariable, ...], y: TensorVariable, *model: TensorVariable) -> Any:
        mean, covariance, total, *before = carry
        mean, covariance, term, *of_delta = _step(mean, covariance, y, *model)
        of_delta = [x + z for x, z in zip(before, of_delta, strict=True)]
        return (mean, covariance, total + term, *of_delta), (mean, covariance, term, *of_delta)

    begin, each = (mean, covariance, term, *of_delta), [True, *space.changes]
    final, rows = one_by_one(
        step, begin, space.observations[1:], *space.later, each=each, name="Kalman filter"
    )
    means, covariances, terms, *information = map(with_first, begin, rows)
    if not space.is_diffuse:
        return Filtered(means, covariances, terms, final[2], None, None)
    known = Information(*information), Information(*final[3:])
    return Filtered(means, covariances, terms, final[2], *known)


def at_once(space: StateSpace) -> Filtered:
    """Run the recursion as an associative scan, which starts from ``delta`` if the start is diffuse."""
    mean, covariance = space.mean, space.covariance
    q: Any = mean.shape[1] - 1 if space.is_diffuse else 0
    f: Any = pt.zeros_like(covariance)
    if space.is_diffuse:
        f, mean = pt.set_subtensor(f[:, :q], mean[:, 1:]), mean[:, 0]
    y = space.observations
    first = _element(y[0], f, mean, covariance, *space.first[3:])
    later = for_all_steps(_element, y[1:], *space.later, each=[True, *space.changes])
    elements = [with_first(x, rows) for x, rows in zip(first, later, strict=True)]
    op = AssociativeScan.of(_combined, elements, name="Kalman filter")
    outs: Any = op.make_node(*elements).outputs
    shares, means, covariances, etas, matrices = outs
    begun = _updated(mean, covariance, y[0], *space.first[3:])
    terms = for_all_steps(
        lambda *args: [_step(*args)[2]],
        means[:-1],
        covariances[:-1],
        y[1:],
        *space.later,
        each=[True, True, True, *space.changes],
    )
    terms = with_first(begun[2], terms[0])
    if not space.is_diffuse:
        return Filtered(means, covariances, terms, terms.sum(), None, None)
    means = pt.concatenate([means[:, :, None], shares[:, :, :q]], axis=2)
    known = Information(matrices[:, :q, :q], etas[:, :q])
    last = Information(known.matrix[-1], known.eta[-1])
    return Filtered(means, covariances, terms, terms.sum(), known, last)


def observed(
    mean: TensorVariable,
    covariance: TensorVariable,
    y: TensorVariable,
    h: TensorVariable,
    r: TensorVariable,
) -> Observed:
    """The information of the non-NaN entries of an observation on a predicted state."""
    seen, y, h, r = _seen(y, h, r)
    root = _root(h @ covariance @ h.T + r)
    innovation = in_columns(y, mean) - h @ mean
    whitened = solve_triangular(root, innovation, lower=True, b_ndim=mean.type.ndim)
    own = whitened if mean.type.ndim == 1 else whitened[:, 0]
    log_density = -0.5 * (
        (own**2).sum()
        + 2 * pt.log(pt.diagonal(root)).sum()
        + seen.sum().astype(mean.dtype) * np.asarray(np.log(2 * np.pi), mean.dtype)
    )
    matrix = solve_triangular(root, h, lower=True, b_ndim=2)
    return Observed(root, whitened, matrix, log_density)


def _seen(y: TensorVariable, h: TensorVariable, r: TensorVariable) -> Any:
    """The mask of observed entries, and the arguments with missing entries made pure noise."""
    seen = ~pt.isnan(y)
    one = pt.eye(y.shape[0], dtype=r.dtype)
    return (
        seen,
        pt.switch(seen, y, 0.0),
        pt.switch(seen[:, None], h, 0.0),
        pt.switch(seen[:, None] & seen[None, :], r, one),
    )


def _root(x: TensorVariable) -> Any:
    """The Cholesky factor; nan if a pivot is 0 up to rounding, so that the factor would be arbitrary."""
    root = cholesky(x)
    least = 8 * float(np.finfo(x.dtype).eps)
    is_regular = pt.all(pt.diagonal(root) ** 2 > least * pt.diagonal(x))
    return pt.switch(is_regular, root, np.asarray(np.nan, x.dtype))


def _step(
    mean: TensorVariable,
    covariance: TensorVariable,
    y: TensorVariable,
    f: TensorVariable,
    c: TensorVariable,
    q: TensorVariable,
    h: TensorVariable,
    r: TensorVariable,
) -> Any:
    """The next mean and covariance, the log density of the observation, its information on ``delta``."""
    return _updated(*predicted(mean, covariance, f, c, q), y, h, r)


def _updated(
    mean: TensorVariable,
    covariance: TensorVariable,
    y: TensorVariable,
    h: TensorVariable,
    r: TensorVariable,
) -> Any:
    """The update from a predicted mean and covariance."""
    seen = observed(mean, covariance, y, h, r)
    gain, whitened = seen.observation @ covariance, seen.whitened
    new = mean + gain.T @ whitened, covariance - gain.T @ gain, seen.log_density
    if mean.type.ndim == 1:
        return new
    share = whitened[:, 1:]  # minus the part of the prediction that depends on delta
    return *new, share.T @ share, -share.T @ whitened[:, 0]


def _element(
    y: TensorVariable,
    f: TensorVariable,
    c: TensorVariable,
    q: TensorVariable,
    h: TensorVariable,
    r: TensorVariable,
) -> list[Any]:
    """The element of a step: the next state is ``N(A x + b, C)`` given the previous one, ``x``.

    The information of the observation on ``x`` is ``eta`` and ``J``.
    """
    seen = observed(c, q, y, h, r)
    gain, ahead = seen.observation @ q, seen.observation @ f
    return [
        f - gain.T @ ahead,
        c + gain.T @ seen.whitened,
        q - gain.T @ gain,
        ahead.T @ seen.whitened,
        ahead.T @ ahead,
    ]


def _combined(first: list[Any], second: list[Any]) -> list[Any]:
    """Combine two consecutive stretches of steps into one."""
    a, b, c, eta, j = first
    a2, b2, c2, eta2, j2 = second
    one = pt.eye(a.shape[0], dtype=a.dtype)
    inside: Any = pt.linalg.inv(one + c @ j2)
    forth, back = a2 @ inside, a.T @ inside.T
    return [
        forth @ a,
        forth @ (b + c @ eta2) + b2,
        forth @ c @ a2.T + c2,
        back @ (eta2 - j2 @ b) + eta,
        back @ j2 @ a + j,
    ]
