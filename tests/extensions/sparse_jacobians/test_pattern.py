"""Patterns of Jacobians: no entry is missing, and those of what only moves, joins and loops are exact."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from scipy import sparse

from loopax import cond, scan, while_loop
from loopax.extensions.sparse_jacobians.known import UnknownStructure
from loopax.extensions.sparse_jacobians.pattern import jacobian_pattern
from loopax.importer.import_graph import import_graph
from loopax.ir import evaluate
from loopax.ir.derivatives.graph_derivatives import jacobian
from tests.facts.test_new_ops import CubeSum, Roll, softsign

N = 6
x = pt.tensor("x", shape=(N,), dtype="float64")
data = pt.dvector("data")
k = pt.tensor("k", shape=(3,), dtype="int64")
flag = pt.scalar("flag", dtype="bool")
GIVEN = {data: np.linspace(1.0, 2.0, N), k: np.array([2, 0, 2]), flag: np.asarray(True)}
BAND = np.diag(np.ones(N)) - np.diag(np.ones(N - 1), -1)


def two_states(c, r):
    last, total = c
    return (r, total + (r - last) ** 2), last * r


def cumulated(c, r):
    return c + r, c


def legacy(v):
    return pytensor.scan(
        lambda r, before: r * before, sequences=[v], outputs_info=[v[0]], return_updates=False
    )


def with_taps(v):
    """Each element follows from the two before it."""
    return pytensor.scan(
        lambda r, b: pt.sin(r) * b, sequences=[{"input": v, "taps": [0, -1]}], return_updates=False
    )


def gram(v):
    m = v.reshape((2, 3))
    return m @ m.T


# A function of x, and whether its pattern has no entry that is zero for all values.
EXACT = {
    "elementwise": lambda v: pt.exp(v) * data,
    "slices": lambda v: v[1:] * v[:-1] - v[::-1][1:],
    "differences": lambda v: pt.diff(v, 2),
    "steps": lambda v: v[::2] - 3.0,
    "known rows": lambda v: v[np.array([4, 0, 4])] * 2,
    "written": lambda v: pt.set_subtensor(v[2:4], v[:2] ** 2),
    "written twice": lambda v: pt.zeros(3)[np.array([1, 1, 0])].inc(v[:3]),
    "added": lambda v: pt.inc_subtensor(pt.ones(N)[2:4], v[:2]),
    "added at one": lambda v: pt.zeros(N)[3].inc(v[0]),
    "sum": lambda v: v.reshape((2, 3)).sum(axis=1),
    "maximum": lambda v: v.reshape((2, 3)).max(axis=0),
    "cumulated": lambda v: pt.cumsum(v),
    "softmax": lambda v: pt.special.softmax(v.reshape((2, 3)), axis=1),
    "band": lambda v: pt.constant(BAND) @ v,
    "matrices": gram,
    "joined": lambda v: pt.concatenate([v[3:], pt.zeros(2), v[:1]]),
    "stacked": lambda v: pt.stack([v[0], v[2] * v[3]]),
    "masked": lambda v: v * np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0]),
    "switch": lambda v: pt.switch(np.arange(N) > 2, v, v[0]),
    "of values": lambda v: pt.switch(v > 1.5, v, data),
    "shape only": lambda v: pt.second(v, 1.0) * v[2] + v.shape[0],
    "cut": lambda v: pytensor.gradient.disconnected_grad(v[::-1]) * v,
    "integers": lambda v: (v > 1).astype("float64") + v[0],
    "repeated": lambda v: pt.repeat(v[:2], 2),
    "diagonal": lambda v: pt.diag(pt.outer(v, v)),
    "batch": lambda v: pt.linalg.det(pt.stack([v[:4], v[2:]]).reshape((2, 2, 2))),
    "trace": lambda v: scan(two_states, (pt.constant(0.0), pt.constant(0.0)), v)[1],
    "final": lambda v: scan(two_states, (v[0], v[1]), v[2:])[0][0],
    "along": lambda v: scan(cumulated, pt.constant(0.0), v)[1],
    "backwards": lambda v: scan(cumulated, pt.constant(0.0), v, reverse=True)[1],
    "branches": lambda v: cond(flag, lambda: v[:2] * 2, lambda: v[1:3]),
    "legacy": legacy,
    "taps": with_taps,
}
MORE = {
    "rows of values": lambda v: v[k] ** 2,
    "sorted": lambda v: pt.sort(v)[::2],
    "cholesky": lambda v: pt.linalg.cholesky(pt.diag(v) + 0.1 * pt.outer(v, v)),
    "zeros that cancel": lambda v: v[1:] - v[1:] + v[:-1],
}
# What a gradient has: the pattern of a Hessian.
COSTS = {
    "walk": lambda v: (pt.diff(v) ** 2).sum() + pt.exp(v).sum(),
    "slices": lambda v: ((v[1:] - v[:-1]) ** 2).sum() + (data * pt.log(v)).sum(),
    "loop": lambda v: scan(two_states, (pt.constant(0.0), pt.constant(0.0)), v)[0][1],
    "second differences": lambda v: (pt.diff(v, 2) ** 4).sum(),
    "legacy": lambda v: (with_taps(v) ** 2).sum(),
}
HALF_WIDTHS = {"walk": 1, "slices": 1, "loop": 1, "second differences": 2, "legacy": 1}


def imported(outputs):
    graph = FunctionGraph([x, *GIVEN], outputs, clone=True)
    import_graph(graph)
    return graph


def pattern_of(outputs):
    graph = imported(outputs)
    actual = jacobian_pattern(graph.inputs[:1], graph.outputs)
    assert all(isinstance(p, sparse.csr_matrix) and p.dtype == bool for p in actual)
    return sparse.vstack(actual).toarray()


def entries_of(outputs):
    """Where the Jacobian is other than zero at one of some points."""
    graph = imported(outputs)
    blocks = [block for (block,) in jacobian(graph.inputs[:1], graph.outputs)]
    both = FunctionGraph(graph.inputs, blocks, clone=False)
    actual = False
    for seed in range(3):
        at = np.random.default_rng(seed).uniform(0.5, 2.5, N)
        made = evaluate(both, at, *GIVEN.values())
        actual = actual | (np.concatenate([m.reshape(-1, N) for m in made]) != 0)
    return actual


@pytest.mark.sampled(34)
@pytest.mark.parametrize("name", [*EXACT, *MORE])
def test_no_entry_is_missing(name):
    y = {**EXACT, **MORE}[name](x)
    actual, entries = pattern_of([y]), entries_of([y])
    assert actual.shape == entries.shape
    assert not np.any(entries & ~actual)
    if name in EXACT:
        # Of a maximum, a condition on values or a branch the points show one side each.
        assert actual.sum() - entries.sum() <= (3 if name == "branches" else 0), actual.astype(int)


@pytest.mark.parametrize("name", COSTS)
def test_gradients_of_bands_are_bands(name):
    slope = pytensor.grad(COSTS[name](x), x)
    actual = pattern_of([slope])
    i, j = np.nonzero(actual)
    assert np.abs(i - j).max() == HALF_WIDTHS[name]
    assert not np.any(entries_of([slope]) & ~actual)


def test_several_outputs_and_variables():
    y = pt.tensor("y", shape=(2, 3), dtype="float64")
    first, second = jacobian_pattern([x, y], [x.reshape((2, 3)) * y, y.sum(axis=0) + x[0]])
    both = np.concatenate([np.eye(6), np.eye(6)], axis=1)
    np.testing.assert_array_equal(first.toarray(), both != 0)
    at_zero = np.zeros((3, 6))
    at_zero[:, 0] = 1
    np.testing.assert_array_equal(
        second.toarray(), np.concatenate([at_zero, np.tile(np.eye(3), (1, 2))], axis=1) != 0
    )


def test_what_has_no_elements():
    none = pt.tensor("none", shape=(0,), dtype="float64")
    (actual,) = jacobian_pattern([none], [2 * none])
    assert actual.shape == (0, 0)
    assert pattern_of([scan(cumulated, x[0], x[:0])[1]]).shape == (0, N)


@pytest.mark.parametrize(
    ("outputs", "match"),
    [
        (lambda: pt.dvector("open") * 2, "with an unknown length|a length is unknown"),
        (lambda: while_loop(lambda c: c < 3.0, lambda c: c + x[0], 0.1 * x[1]), "which stops"),
        (
            lambda: scan(lambda c, _: (c * x[0], c), x[1], length=pt.lscalar("n"))[1],
            "number of steps",
        ),
    ],
)
def test_what_is_not_known_is_said(outputs, match):
    y = outputs()
    wrt = [y.owner.inputs[0]] if match.startswith("a length") else [x]
    with pytest.raises(UnknownStructure, match=match):
        jacobian_pattern(wrt, [y])


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda v: softsign(v) * data, np.eye(N)),
        (lambda v: CubeSum((1,))(v.reshape((2, 3))), np.kron(np.eye(2), np.ones(3))),
        (lambda v: CubeSum((0,))(v.reshape((2, 3))), np.tile(np.eye(3), 2)),
        # Its record says that an element follows from those along the axis, not from which of them.
        (lambda v: Roll(1)(v.reshape((2, 3))), np.kron(np.eye(2), np.ones((3, 3)))),
        (lambda v: Roll(0)(v.reshape((2, 3)).T), np.kron(np.ones((3, 3)), np.eye(2))),
    ],
)
def test_an_op_that_a_record_describes(function, wanted):
    y = function(x)
    actual = pattern_of([y])
    if y.ndim == 2 and y.owner.op == Roll(0):
        actual = actual[:, np.arange(N).reshape(2, 3).T.ravel()]  # columns in the order of the rows
    np.testing.assert_array_equal(actual, wanted)
