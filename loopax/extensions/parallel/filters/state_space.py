"""``StateSpace``: a linear Gaussian state space model and its observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from loopax.extensions.parallel.filters.steps import for_all_steps, with_first


@dataclass(eq=False)
class StateSpace:
    """A model and its observations.

    With a diffuse start the first state is ``mean[:, 0] + mean[:, 1:] delta + N(0, covariance)``, where
    ``delta`` is unknown, and all means have a column for each of its entries.
    """

    observations: Any  # (T, p) minus their offsets; nan if missing
    model: list[Any]  # transition, its offset and covariance, observation and its covariance
    changes: list[bool]  # whether each of these has a row for each step
    mean: Any  # (d,), or (d, 1 + q) with q diffuse states
    covariance: Any  # (d, d)
    scale: Any = None  # the value added to the variances of diffuse states: see `diffuse`

    @property
    def is_diffuse(self) -> bool:
        return self.scale is not None

    @property
    def first(self) -> list[Any]:
        return [v[0] if e else v for v, e in zip(self.model, self.changes, strict=True)]

    @property
    def later(self) -> list[Any]:
        """The model parameters of all steps but the first."""
        return [v[1:] if e else v for v, e in zip(self.model, self.changes, strict=True)]

    def predicted(self, means: TensorVariable, covariances: TensorVariable) -> tuple[Any, Any]:
        """Predict the mean and covariance of each step from the filtered ones of the previous step."""
        rows = means[:-1], covariances[:-1], *self.later[:3]
        later = for_all_steps(predicted, *rows, each=[True, True, *self.changes[:3]])
        first = self.mean, self.covariance
        later_means, later_covariances = later
        return with_first(first[0], later_means), with_first(first[1], later_covariances)

    def for_all_steps(self, step: Callable[..., Sequence[Any]], *rows: TensorVariable) -> Any:
        """Apply ``step(*rows, y, h, r)`` to all steps, with their observations and observation model."""
        args = *rows, self.observations, *self.model[3:]
        each = [True] * (len(rows) + 1) + self.changes[3:]
        return for_all_steps(step, *args, each=each)


def predicted(
    mean: TensorVariable,
    covariance: TensorVariable,
    f: TensorVariable,
    c: TensorVariable,
    q: TensorVariable,
) -> tuple[Any, Any]:
    """Predict the mean and covariance of the next state."""
    return f @ mean + in_columns(c, mean), f @ covariance @ f.T + q


def in_columns(x: TensorVariable, mean: TensorVariable) -> Any:
    """The vector ``x`` with as many columns as ``mean``, zero for ``delta``."""
    if mean.type.ndim == 1:
        return x
    others = pt.zeros((x.shape[0], mean.shape[1] - 1), dtype=x.dtype)
    return pt.concatenate([x[:, None], others], axis=1)
