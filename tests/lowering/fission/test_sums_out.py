"""What only adds up leaves a loop as the sum of a trace, where what it adds can leave too."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import scan
from loopax.lowering import lower
from loopax.lowering.fission.sums_out import sums_out
from tests.support.compare import loops
from tests.support.kept import rewritten

x, s, p, v = pt.dvector("x"), pt.dscalar("s"), pt.dscalar("p"), pt.dvector("v")


def after(outputs, lengths=(0, 1, 4)):
    """The graph after the pass, at some numbers of steps."""
    rng = np.random.default_rng(0)
    cases = [[rng.normal(size=n), 0.6, 0.3, np.array([0.2, -0.4])] for n in lengths]
    graph = FunctionGraph([x, s, p, v], list(outputs), clone=True)
    return rewritten(graph, sums_out, *cases, rtol=1e-12, atol=1e-14)


def states(outputs):
    """How many states the only loop has after the pass."""
    (node,) = loops(after(outputs))
    return node.op.n_states


def summing(next_total, total=s * 2, **options):
    """The last values of a state, and of one that ``next_total`` computes of it, the row, and the state."""

    def step(carry, r):
        c, t = carry
        return (pt.tanh(c + r), next_total(t, c, r)), None

    return scan(step, (s, total), x, **options)[0]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "next_total",
    [
        lambda t, c, r: t + c * r,
        lambda t, c, r: t - pt.exp(c),
        lambda t, c, r: (t + c) - r * p + 1.0,
    ],
    ids=["added", "taken away", "several"],
)
def test_a_number_that_adds_up(next_total, reverse):
    assert states(summing(next_total, reverse=reverse)) == 1


def test_a_few_numbers_to_some_of_which_is_added():
    total = pt.specify_shape(v, (2,))
    assert states(summing(lambda t, c, r: t[0].inc(c * r)[1].inc(c), total)) == 1


@pytest.mark.parametrize(
    "next_total",
    [
        lambda t, c, r: t + t * c,
        lambda t, c, r: c - t,
        lambda t, c, r: t,
        lambda t, c, r: 2 * t + c,
        lambda t, c, r: t + pt.sqrt(pt.abs(t)) * r,
    ],
    ids=["read again", "taken from", "kept", "twice", "a function of it"],
)
def test_what_does_more_than_add_stays(next_total):
    assert states(summing(next_total)) == 2


def test_what_somebody_reads_stays():
    def step(carry, r):
        c, t = carry
        return (pt.tanh(c + r), t + c * r), t

    (final, total), ys = scan(step, (s, s), x)
    assert states([final, total, ys]) == 2
    (_, total), _ = scan(lambda c, r: ((pt.tanh(c[0] + c[1]), c[1] + c[0] * r), None), (s, s), x)
    assert states([total]) == 2


def test_what_is_added_must_be_able_to_leave():
    """A vector of each step is more to keep than a number; checkpoints keep less than all steps."""

    def step(carry, r):
        c, t = carry
        return (pt.tanh(c + r), t + (c * r).sum()), None

    assert states(scan(step, (pt.specify_shape(v, (2,)), s), x)[0]) == 2
    assert states(summing(lambda t, c, r: t + c, checkpoint="sqrt")) == 2


def test_gradients_by_constants_are_no_states():
    errors = scan(lambda e, r: ((new := r - s * e - p), new), p, x)[1]
    gradients = pytensor.grad((errors**2).sum(), [s, p])
    graph = FunctionGraph([x, s, p, v], gradients, clone=True)
    at = [np.linspace(-1.0, 1.0, 5), 0.6, 0.3, np.zeros(2)]
    graph = rewritten(graph, lower, at, rtol=1e-12, idempotent=False)
    assert sorted(node.op.n_states for node in loops(graph)) == [1, 1]
