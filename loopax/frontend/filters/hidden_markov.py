"""`hmm_forward`: the forward pass of a hidden Markov model, step by step or as an associative scan."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from loopax.frontend.filters.batch_of_steps import as_floats, for_all_steps, with_first
from loopax.frontend.loops.scan import scan
from loopax.ir.associative_scan import AssociativeScan


class HmmForward(NamedTuple):
    """What `hmm_forward` returns, for ``T`` steps and ``K`` states: tensor variables."""

    log_filtered: Variable  # (T, K) log probabilities of the states, given the observations so far
    log_likelihood: Variable  # () log density of all observations


def hmm_forward(
    log_initial: Any, log_transition: Any, log_likelihoods: Any, *, parallel: bool = False
) -> HmmForward:
    """The filtered states and the log-likelihood of a hidden Markov model.

    Parameters
    ----------
    log_initial
        ``(K,)``: log probabilities of the first state.
    log_transition
        ``(K, K)``, or ``(T, K, K)`` where they change; then those of step 0 are not used. Rows are the
        state before, columns the one that follows.
    log_likelihoods
        ``(T, K)``: the log density of each observation, given each state; ``T`` 1 or more. Zeros for an
        observation that is missing.
    parallel
        Whether all steps are taken at once, as an associative scan, in about ``log T`` steps one after
        another and about ``K`` times the work: for long series on an accelerator. Native code has it as a
        loop over elements, which takes several times as long.

    Returns
    -------
    HmmForward
        ``(log_filtered, log_likelihood)``.

    Raises
    ------
    LoopTypeError
        An argument has another rank than those above.

    Notes
    -----
    The parallel form is that of Hassan, Särkkä and García-Fernández (2021), "Temporal parallelization of
    inference in hidden Markov models", IEEE Transactions on Signal Processing 69. Its elements are scaled
    probabilities: a state that, many steps on, is 1e308 times less probable than another has probability
    0 there, before the observation of the step is seen. The loop is in logarithms throughout.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import hmm_forward
    >>> stay = np.log([[0.9, 0.1], [0.2, 0.8]])
    >>> found = hmm_forward(np.log([0.5, 0.5]), stay, np.log([[0.7, 0.1], [0.6, 0.3]]))
    >>> np.exp(found.log_filtered.eval()).round(3), round(float(found.log_likelihood.eval()), 3)
    (array([[0.875, 0.125],
           [0.897, 0.103]]), -1.526)
    """
    what = "hmm_forward"
    initial = as_floats(log_initial, "log_initial", (1,), what)
    p: Any = as_floats(log_transition, "log_transition", (2, 3), what)
    likelihoods: Any = as_floats(log_likelihoods, "log_likelihoods", (2,), what)
    changes = p.type.ndim == 3
    begun = _normalized(initial + likelihoods[0])
    form = _at_once if parallel else _one_by_one
    return form(begun, p[1:] if changes else p, likelihoods[1:], changes)


def _one_by_one(begun: Any, p: Any, likelihoods: Any, changes: bool) -> HmmForward:
    def step(carry: Any, row: Any) -> Any:
        filtered, total = carry
        filtered, term = _step(filtered, row[1] if changes else p, row[0])
        return (filtered, total + term), filtered

    rows = (likelihoods, p) if changes else (likelihoods,)
    final, filtered = scan(step, begun, rows, name="HMM forward pass")
    return HmmForward(with_first(begun[0], filtered), final[1])


def _at_once(begun: Any, p: Any, likelihoods: Any, changes: bool) -> HmmForward:
    filtered, term = begun
    elements = for_all_steps(_element, p, likelihoods, each=[changes, True])
    count = filtered.shape[0]
    first = [
        pt.exp(filtered)[None, :] * pt.ones((count, 1), dtype=filtered.dtype),
        pt.zeros((count,), dtype=filtered.dtype),
    ]
    elements = [with_first(x, rest) for x, rest in zip(first, elements, strict=True)]
    op = AssociativeScan.of(_combined, elements, name="HMM forward pass")
    prefixes: Any = op.make_node(*elements).outputs[0]
    # Wherever it began, all rows are one. The last step in logarithms is as exact as the loop's.
    before = pt.log(prefixes[:-1, 0])
    rest, terms = for_all_steps(_step, before, p, likelihoods, each=[True, changes, True])
    return HmmForward(with_first(filtered, rest), term + terms.sum())


def _normalized(x: Any) -> tuple[Any, Any]:
    """Log probabilities, and the logarithm of what they have been divided by."""
    total = pt.logsumexp(x)
    return x - total, total


def _step(filtered: Any, p: Any, likelihood: Any) -> tuple[Any, Any]:
    return _normalized(pt.logsumexp(filtered[:, None] + p, axis=0) + likelihood)


def _element(p: Any, likelihood: Any) -> list[Any]:
    """What one step does: where it leads from each state, and the log density of what is seen then."""
    both = p + likelihood[None, :]
    total = pt.logsumexp(both, axis=1)
    return [pt.exp(both - total[:, None]), total]


def _combined(first: list[Any], second: list[Any]) -> list[Any]:
    """Two stretches of steps as one, the second behind the first."""
    (f, g), (f2, g2) = first, second
    most = pt.max(g2)
    through = f * pt.exp(g2 - most)[None, :]
    total = through.sum(axis=1)
    return [(through / total[:, None]) @ f2, g + pt.log(total) + most]
