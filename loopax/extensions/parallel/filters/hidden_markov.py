"""`hmm_forward` and `hmm_smoother`: hidden Markov models, step by step or as associative scans."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from loopax.extensions.parallel.associative_scan import AssociativeScan
from loopax.extensions.parallel.filters.steps import (
    as_floats,
    for_all_steps,
    one_by_one,
    with_first,
)


class HmmForward(NamedTuple):
    """The result of `hmm_forward` for ``T`` steps and ``K`` states, as tensor variables."""

    log_filtered: Variable  # (T, K) log probabilities of the states, given the observations so far
    log_likelihood: Variable  # () log density of all observations


class HmmSmoother(NamedTuple):
    """The result of `hmm_smoother` for ``T`` steps and ``K`` states, as tensor variables."""

    log_smoothed: Variable  # (T, K) log probabilities of the states, given all observations
    log_likelihood: Variable  # () log density of all observations


def hmm_forward(
    log_initial: TensorLike,
    log_transition: TensorLike,
    log_likelihoods: TensorLike,
    *,
    parallel: bool = False,
) -> HmmForward:
    """Compute the filtered states and the log-likelihood of a hidden Markov model.

    Parameters
    ----------
    log_initial
        ``(K,)``: log probabilities of the first state; minus infinity for a state in which it cannot
        begin.
    log_transition
        ``(K, K)``, or ``(T, K, K)`` if they change over time; the matrix of step 0 is then not used.
        Rows are the current state, columns the next one; minus infinity for an impossible transition.
    log_likelihoods
        ``(T, K)``: the log density of each observation, given each state; ``T`` is at least 1. Use
        zeros for a missing observation.
    parallel
        Whether to take all steps at once, as an associative scan, in about ``log T`` sequential steps
        and about ``K`` times the work: for long series on an accelerator. Native code runs it as a loop
        over elements, which takes several times as long.

    Returns
    -------
    HmmForward
        ``(log_filtered, log_likelihood)``.

    Raises
    ------
    LoopTypeError
        An argument has another rank than described above.

    Notes
    -----
    The parallel form follows Hassan, Särkkä and García-Fernández (2021), "Temporal parallelization of
    inference in hidden Markov models", IEEE Transactions on Signal Processing 69. Its elements are
    scaled probabilities: a state that, many steps on, is 1e308 times less probable than another has
    probability 0 there, before the observation of the step is seen. The loop is in logarithms
    throughout.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import hmm_forward
    >>> stay = np.log([[0.9, 0.1], [0.2, 0.8]])
    >>> result = hmm_forward(np.log([0.5, 0.5]), stay, np.log([[0.7, 0.1], [0.6, 0.3]]))
    >>> np.exp(result.log_filtered.eval()).round(3), round(float(result.log_likelihood.eval()), 3)
    (array([[0.875, 0.125],
           [0.897, 0.103]]), -1.526)
    """
    model = _read("hmm_forward", log_initial, log_transition, log_likelihoods)
    return _forward_at_once(*model)[0] if parallel else _forward(*model)


def hmm_smoother(
    log_initial: TensorLike,
    log_transition: TensorLike,
    log_likelihoods: TensorLike,
    *,
    parallel: bool = False,
) -> HmmSmoother:
    """Compute the smoothed states, or posterior marginals, of a hidden Markov model, forward and
    backward.

    Parameters
    ----------
    log_initial, log_transition, log_likelihoods, parallel
        As for `hmm_forward`. The associative scans of both directions use the same elements.

    Returns
    -------
    HmmSmoother
        ``(log_smoothed, log_likelihood)``.

    Raises
    ------
    LoopTypeError
        An argument has another rank than in `hmm_forward`.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import hmm_smoother
    >>> stay = np.log([[0.9, 0.1], [0.2, 0.8]])
    >>> result = hmm_smoother(np.log([0.5, 0.5]), stay, np.log([[0.7, 0.1], [0.6, 0.3]]))
    >>> np.exp(result.log_smoothed.eval()).round(3)
    array([[0.917, 0.083],
           [0.897, 0.103]])
    """
    log_filtered: Any
    model = _read("hmm_smoother", log_initial, log_transition, log_likelihoods)
    if parallel:
        (log_filtered, log_likelihood), elements = _forward_at_once(*model)
        op = AssociativeScan.of(
            lambda late, early: _combined(early, late), elements, True, "HMM backward pass"
        )
        # A stretch of steps informs about the state before it by the log density of its observations.
        backward: Any = op.make_node(*elements).outputs[1]
    else:
        log_filtered, log_likelihood = _forward(*model)
        backward = _backward(*model)
    smoothed = log_filtered + pt.concatenate([backward, pt.zeros_like(log_filtered[:1])])
    return HmmSmoother(smoothed - _log_sum(smoothed, 1)[:, None], log_likelihood)


def _read(
    what: str, log_initial: TensorLike, log_transition: TensorLike, log_likelihoods: TensorLike
) -> Any:
    """The state after the first step, and the transitions and likelihoods of the other steps."""
    initial = as_floats(log_initial, "log_initial", (1,), what)
    p: Any = as_floats(log_transition, "log_transition", (2, 3), what)
    likelihoods: Any = as_floats(log_likelihoods, "log_likelihoods", (2,), what)
    changes = p.type.ndim == 3
    begun = _normalized(initial + likelihoods[0])
    return begun, p[1:] if changes else p, likelihoods[1:], changes


def _forward(
    begun: tuple[TensorVariable, ...], p: TensorVariable, likelihoods: TensorVariable, changes: bool
) -> HmmForward:
    def step(
        carry: tuple[TensorVariable, ...], likelihoods: TensorVariable, p: TensorVariable
    ) -> Any:
        filtered, total = carry
        filtered, term = _step(filtered, p, likelihoods)
        return (filtered, total + term), filtered

    each = [True, changes]
    final, filtered = one_by_one(step, begun, likelihoods, p, each=each, name="HMM forward pass")
    return HmmForward(with_first(begun[0], filtered), final[1])


def _backward(
    begun: tuple[TensorVariable, ...], p: TensorVariable, likelihoods: TensorVariable, changes: bool
) -> Any:
    """The likelihood of later observations given the state of each step but the last, up to a factor."""

    def step(after: TensorVariable, likelihoods: TensorVariable, p: TensorVariable) -> Any:
        before, _ = _normalized(_log_sum(p + (likelihoods + after)[None, :], 1))
        return before, before

    none, each, name = pt.zeros_like(begun[0]), [True, changes], "HMM backward pass"
    return one_by_one(step, none, likelihoods, p, each=each, reverse=True, name=name)[1]


def _forward_at_once(
    begun: tuple[TensorVariable, ...], p: TensorVariable, likelihoods: TensorVariable, changes: bool
) -> tuple[HmmForward, list[Any]]:
    """The forward pass by an associative scan: its result, and the elements of all steps but the first."""
    filtered, term = begun
    of_steps = for_all_steps(_element, p, likelihoods, each=[changes, True])
    count = filtered.shape[0]
    first = [
        pt.exp(filtered)[None, :] * pt.ones((count, 1), dtype=filtered.dtype),
        pt.zeros((count,), dtype=filtered.dtype),
    ]
    elements = [with_first(x, later) for x, later in zip(first, of_steps, strict=True)]
    op = AssociativeScan.of(_combined, elements, name="HMM forward pass")
    prefixes: Any = op.make_node(*elements).outputs[0]
    # The rows are equal whatever the first state. The last step in logarithms is as exact as the loop's.
    before = prefixes[:-1, 0]
    possible = before > 0
    before = pt.switch(possible, pt.log(pt.switch(possible, before, 1.0)), -np.inf)
    later, terms = for_all_steps(_step, before, p, likelihoods, each=[True, changes, True])
    return HmmForward(with_first(filtered, later), term + terms.sum()), of_steps


def _log_sum(x: TensorVariable, axis: int) -> Any:
    """Compute ``logsumexp`` with a gradient of 0, not nan, if all are minus infinity."""
    # The result does not depend on this shift, so no gradient passes through it.
    most = disconnected_grad(pt.max(x, axis=axis, keepdims=True))
    most = pt.switch(most > -np.inf, most, 0.0)
    total = pt.exp(x - most).sum(axis=axis)
    possible = total > 0
    logs = pt.log(pt.switch(possible, total, 1.0)) + pt.squeeze(most, axis=axis)
    return pt.switch(possible, logs, -np.inf)


def _normalized(x: TensorVariable) -> tuple[Any, Any]:
    """Normalize log probabilities; also return the log of the normalizing constant."""
    total = _log_sum(x, 0)
    return x - total, total


def _step(
    filtered: TensorVariable, p: TensorVariable, likelihood: TensorVariable
) -> tuple[Any, Any]:
    return _normalized(_log_sum(filtered[:, None] + p, 0) + likelihood)


def _element(p: TensorVariable, likelihood: TensorVariable) -> list[Any]:
    """The element of a step: transition probabilities from each state, and log densities."""
    both = p + likelihood[None, :]
    total = _log_sum(both, 1)
    return [pt.exp(both - pt.switch(total > -np.inf, total, 0.0)[:, None]), total]


def _combined(first: list[Any], second: list[Any]) -> list[Any]:
    """Combine two consecutive stretches of steps into one."""
    (f, g), (f2, g2) = first, second
    leads = f > 0
    most = disconnected_grad(pt.max(pt.switch(leads, g2[None, :], -np.inf), axis=1))
    most = pt.switch(most > -np.inf, most, 0.0)
    through = f * pt.exp(pt.switch(leads, g2[None, :] - most[:, None], 0.0))
    total = through.sum(axis=1)
    possible = total > 0
    safe = pt.switch(possible, total, 1.0)
    return [(through / safe[:, None]) @ f2, pt.switch(possible, g + pt.log(safe) + most, -np.inf)]
