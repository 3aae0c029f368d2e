"""Read the arguments of `kalman_filter` and `kalman_smoother`, and refuse invalid models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from loopax.base.errors import LoopTypeError
from loopax.extensions.parallel.filters.diffuse import scale_of
from loopax.extensions.parallel.filters.state_space import StateSpace
from loopax.extensions.parallel.filters.steps import as_floats

# The axes of each argument, without the axis of the steps: d states, p observations.
_AXES = {
    "transition": "dd",
    "transition_offset": "d",
    "transition_covariance": "dd",
    "observation": "pd",
    "observation_offset": "p",
    "observation_covariance": "pp",
    "initial_mean": "d",
    "initial_covariance": "dd",
}


def read_state_space(
    what: str,
    observations: TensorLike,
    transition: TensorLike,
    transition_covariance: TensorLike,
    observation: TensorLike,
    observation_covariance: TensorLike,
    initial_mean: TensorLike | None,
    initial_covariance: TensorLike | None,
    *,
    transition_offset: TensorLike | None,
    observation_offset: TensorLike | None,
    diffuse: bool | Sequence[bool],
) -> StateSpace:
    """Read a model with the arguments of `kalman_filter`, for the function ``what``.

    Raises `LoopTypeError` if an argument has another rank, or sizes that do not match; a known covariance
    is invalid; the start of a state is missing.
    """
    y: Any = as_floats(observations, "observations", (2,), what)
    f: Any = as_floats(transition, "transition", (2, 3), what)
    d, zero = f.shape[-1], np.zeros(1, y.dtype)
    flags = _flags(what, diffuse, f.type.shape[-1])
    if flags is not True and (initial_mean is None or initial_covariance is None):
        raise LoopTypeError(
            f"{what} takes initial_mean and initial_covariance, the distribution of the first state "
            "before its observation. Leave them out only with diffuse=True, if nothing is known about "
            "any state."
        )
    args = {
        "transition": f,
        "transition_offset": zero if transition_offset is None else transition_offset,
        "transition_covariance": transition_covariance,
        "observation": observation,
        "observation_offset": zero if observation_offset is None else observation_offset,
        "observation_covariance": observation_covariance,
        "initial_mean": pt.zeros((d,), y.dtype) if initial_mean is None else initial_mean,
        "initial_covariance": (
            pt.zeros((d, d), y.dtype) if initial_covariance is None else initial_covariance
        ),
    }
    read: dict[str, Any] = {}
    for name, x in args.items():
        rank = len(_AXES[name])
        ranks = (rank,) if name.startswith("initial") else (rank, rank + 1)
        read[name] = as_floats(x, name, ranks, what)
    _check_sizes(what, read, y)
    dtype = ps.upcast(y.dtype, *(v.dtype for v in read.values()))
    for name, v in read.items():
        if name.endswith("covariance"):
            _check_covariance(what, name, v)
            v = (v + pt.swapaxes(v, -1, -2)) / 2  # so that its gradient is symmetric, too
        read[name] = v.astype(dtype)
    model = [
        read["transition"],
        pt.zeros((d,), dtype) + read["transition_offset"],
        read["transition_covariance"],
        read["observation"],
        read["observation_covariance"],
    ]
    changes = [v.type.ndim > rank for v, rank in zip(model, (2, 1, 2, 2, 2), strict=True)]
    y = y.astype(dtype) - read["observation_offset"]
    mean, covariance = read["initial_mean"], read["initial_covariance"]
    if flags is None:
        return StateSpace(y, model, changes, mean, covariance)
    scale = scale_of(model[2], model[4])
    directions: Any = pt.eye(d, dtype=dtype)
    if flags is True:
        covariance = scale * directions
    else:
        directions = directions[:, np.flatnonzero(flags)]
        known = np.where(flags, 0.0, 1.0).astype(dtype)
        covariance = covariance * np.outer(known, known) + scale * directions @ directions.T
    mean = pt.concatenate([mean[:, None], directions], axis=1)
    return StateSpace(y, model, changes, mean, covariance, scale)


def _flags(what: str, diffuse: bool | Sequence[bool], d: int | None) -> Any:
    """The states with a diffuse start: an array of flags, True for all, or None for none."""
    flags = np.asarray(diffuse)
    if flags.dtype != bool or flags.ndim > 1:
        raise LoopTypeError(
            f"{what} takes diffuse= as True, False, or a list with one flag for each state, got "
            f"{diffuse!r}. It is part of the model, not a variable."
        )
    if flags.ndim == 1 and d is not None and len(flags) != d:
        raise LoopTypeError(
            f"{what} takes one flag of diffuse= for each of the {d} states, got {diffuse!r}."
        )
    if flags.ndim == 0:
        return bool(flags) or None
    return flags if flags.any() else None


def _check_sizes(what: str, args: dict[str, Any], y: TensorVariable) -> None:
    """Refuse known sizes that do not match."""
    steps, p = y.type.shape
    sizes = {"p": p, "d": args["transition"].type.shape[-1]}
    for name, v in args.items():
        axes = _AXES[name]
        shape, wanted = v.type.shape, tuple(sizes[k] for k in axes)
        if len(shape) > len(axes):
            wanted = (steps, *wanted)
        is_one_for_all = name.endswith("offset") and shape[-1] == 1
        pairs = list(zip(shape, wanted, strict=True))[: -1 if is_one_for_all else None]
        if any(None not in pair and pair[0] != pair[1] for pair in pairs):
            raise LoopTypeError(
                f"{what} takes {name} of shape {_in_words(wanted)}, for observations of shape "
                f"{_in_words((steps, p))} and {sizes['d']} states, got one of shape {_in_words(shape)}."
            )


def _in_words(shape: Sequence[int | None]) -> str:
    return f"({', '.join('?' if n is None else str(n) for n in shape)}{',' if len(shape) == 1 else ''})"


def _check_covariance(what: str, name: str, x: TensorVariable) -> None:
    """Refuse a matrix that is known before the program runs and is not a covariance."""
    if not isinstance(x, Constant) or not np.isfinite(x.data).all() or not x.data.size:
        return
    most = np.abs(x.data).max()
    if np.abs(x.data - np.swapaxes(x.data, -1, -2)).max() > 1e-6 * most:
        raise LoopTypeError(
            f"{what} takes {name} as a covariance, but this matrix is not symmetric. Symmetrize it: (C "
            "+ C.T) / 2."
        )
    least = np.linalg.eigvalsh(x.data).min()
    if least < -1e-6 * most:
        raise LoopTypeError(
            f"{what} takes {name} as a covariance, but this matrix has the eigenvalue {least:.3g}. A "
            "covariance may be singular, but none of its eigenvalues is negative."
        )
