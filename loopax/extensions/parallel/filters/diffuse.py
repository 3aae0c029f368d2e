"""Exact diffuse start of a state space model, whose first state is completely unknown.

The first state is ``a + D delta + N(0, C)`` with ``delta ~ N(0, k I)``, and ``k`` goes to infinity. Given
``delta`` the model is an ordinary one, and its means are affine in it: ``b + A delta``. So a filter whose
means have a column for each entry of ``delta`` suffices (de Jong, 1991, "The diffuse Kalman filter", Annals
of Statistics 19): the likelihood of ``delta`` given the observations is ``exp(eta' delta - delta' J delta /
2)``, and the limit is

    mean           b + A J+ eta
    covariance     C + A J+ A'  +  k A N A'
    log density    that for delta = 0, + eta' J+ eta / 2 - log pdet(J) / 2  (+ rank(J) log(k) / 2, left out)

with the pseudo-inverse ``J+``, the projector ``N`` on the directions not observed yet, and the product
``pdet`` of the nonzero eigenvalues. These are the numbers of Durbin and Koopman (2012, chapter 5), and of
statsmodels.

The columns of ``D`` are unit vectors. If an observation has no noise the filter would begin with a variance
of 0. So a part ``scale D D'`` of the covariance of ``D delta`` is included in ``C``, and subtracted in the
end. The results do not depend on the scale, so no derivative goes through it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.variable import TensorVariable

_ROUNDS = 6  # moves eigenvalues of 0.1 and 0.9 to 0 and 1


def scale_of(*covariances: TensorVariable) -> Any:
    """A variance of the magnitude of the model's variances, or 1 if these are 0."""
    most: Any = pt.max(pt.stack([pt.max(pt.abs(x)) for x in covariances]))
    return disconnected_grad(pt.switch(most > 0, most, 1.0))


class Delta(NamedTuple):
    """The posterior of ``delta``: its mean, covariance and log density."""

    mean: Any  # J+ eta
    covariance: Any  # J+
    unknown: Any  # N
    log_density: Any  # its contribution to the log density of the observations


def delta_from(information: TensorVariable, eta: TensorVariable) -> Delta:
    """The posterior of ``delta`` under ``exp(eta' delta - delta' information delta / 2)``.

    ``N`` is computed by a polynomial iteration, not from eigenvectors: its derivatives, of any order, are
    the derivatives of the limit, even where eigenvalues are equal. The eigenvalues belong to the matrix
    scaled to a diagonal of ones, since otherwise the units of the states would matter.
    """
    dtype = information.dtype
    eps = float(np.finfo(dtype).eps)
    one = pt.eye(information.shape[0], dtype=dtype)
    most: Any = pt.max(pt.diagonal(information))
    size = disconnected_grad(pt.switch(most > 0, most, 1.0))
    variances = disconnected_grad(pt.diagonal(information)) / size
    stretch = pt.switch(variances > eps**1.5, variances, 1.0) ** -0.5
    scaled = stretch[:, None] * (information / size) * stretch[None, :]
    least = np.asarray(eps ** (2 / 3), dtype)
    null = least * pt.linalg.inv(scaled + least * one)
    for _ in range(_ROUNDS):  # eigenvalues to 0 and 1 (McWeeny, 1960)
        null = null @ null @ (3 * one - 2 * null)
    null = (null + null.T) / 2
    basis = stretch[:, None] * null
    unknown = basis @ pt.linalg.inv(basis.T @ basis + one - null) @ basis.T
    inverse = stretch[:, None] * (pt.linalg.inv(scaled + null) - null) * stretch[None, :] / size
    known = one - unknown
    covariance = known @ inverse @ known
    covariance = (covariance + covariance.T) / 2
    mean = covariance @ eta
    root = cholesky(information / size + unknown)
    rank = pt.sum(pt.diagonal(known))
    log_density = (
        (eta * mean).sum() - 2 * pt.log(pt.diagonal(root)).sum() - rank * pt.log(size)
    ) / 2
    return Delta(mean, covariance, unknown, log_density)


def with_delta(
    mean: TensorVariable, covariance: TensorVariable, delta: Delta, scale: TensorVariable
) -> tuple[Any, Any, Any]:
    """The mean, covariance and diffuse covariance of a state, whose mean has columns for ``delta``."""
    of_delta = mean[:, 1:]
    diffuse = of_delta @ delta.unknown @ of_delta.T
    known = covariance + of_delta @ delta.covariance @ of_delta.T - scale * diffuse
    return mean[:, 0] + of_delta @ delta.mean, known, diffuse
