"""Cotangents that a ``switch`` makes zero: their values, and how many switches they take."""

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors, toposort

from loopax.facts.elementwise import is_elementwise
from loopax.ir.derivatives.traversal import pull_back

X, Y, M = pt.dvector("x"), pt.dvector("y"), pt.dmatrix("m")
C, D = pt.vector("c", dtype="bool"), pt.vector("d", dtype="bool")
S = pt.scalar("s", dtype="int64")
INPUTS = [X, Y, M, C, D, S]


def values(seed):
    rng = np.random.default_rng(seed)
    return [
        rng.uniform(0.5, 2.0, 3),
        rng.uniform(0.5, 2.0, 3),
        rng.uniform(0.5, 2.0, (3, 3)),
        rng.random(3) < 0.5,
        rng.random(3) < 0.5,
        np.int64(rng.integers(2)),
    ]


PROGRAMS = {
    "one branch": pt.switch(C, pt.exp(X) * Y, 0.0),
    "both branches": pt.switch(C, pt.exp(X * Y), pt.log(X * Y)),
    "integer test": pt.switch(S, pt.exp(X), Y),
    "nested": pt.switch(C, pt.switch(D, X * Y, pt.sin(X * Y)), X),
    "shared by two switches": pt.switch(C, pt.exp(X), 0.0) + pt.switch(D, pt.exp(X), Y),
    "shared with a use outside": pt.switch(C, pt.exp(X), 0.0) * pt.exp(X),
    "rows of a test": pt.switch(C[:, None], pt.exp(X) * Y[:, None], M),
    "columns of a test": pt.switch(C, pt.exp(X)[:, None] * M, 0.0),
    "column that is broadcast": pt.switch(C[:, None] & D, pt.log(X)[:, None] + pt.exp(Y), M),
    "constant exponent": pt.switch(C[:, None], X**2 * Y[:, None] ** -1.5, 0.0),
    "sum": pt.switch(C, (pt.exp(M) * X).sum(axis=1), 0.0),
    "sum of all": pt.switch(S > 0, (pt.exp(M) * X).sum(), 1.0),
    "transposed": pt.switch(C[:, None], pt.exp(M * X).T, 0.0),
    "product of matrices": pt.switch(C[:, None], pt.dot(pt.exp(M), pt.sin(M)), 0.0),
    "product with a vector": pt.switch(C, pt.dot(pt.exp(M), pt.sin(X)), 0.0),
    "indexed": pt.switch(C, pt.exp(X)[np.array([2, 0, 2])], 0.0),
    "sliced": pt.switch(C[1:], pt.exp(X)[:-1], 0.0),
    "joined": pt.switch(pt.concatenate([C, D]), pt.concatenate([pt.exp(X), pt.log(Y)]), 1.0),
    "stacked": pt.switch(C, pt.stack([pt.exp(X[0]), Y[1] ** 2, X[2] * Y[0]]), 0.0),
    "written": pt.switch(C, pt.set_subtensor(pt.exp(X)[1], Y[0]), 0.0),
    "reshaped": pt.switch(C, pt.exp(M * X).reshape((9,))[:3], 0.0),
    "largest": pt.switch(C, pt.max(pt.exp(M) * X, axis=0), 0.0),
    "product": pt.switch(C, pt.prod(pt.exp(M) * X, axis=1), 0.0),
    "running sum": pt.switch(C[:, None], pt.cumsum(pt.exp(M), axis=1), 0.0),
    "solve": pt.switch(C, pt.linalg.solve(M + 3 * np.eye(3), pt.exp(X)), 0.0),
    "several outputs": pt.switch(S > 0, sum(pt.linalg.slogdet(M + 3 * np.eye(3))), X.sum()),
    "cast": pt.switch(C, pt.cast(pt.exp(pt.cast(X, "float32")), "float64"), Y),
    "integers in a branch": pt.switch(C, X * pt.cast(S, "float64"), S),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(3))
def test_cotangents_by_central_differences(name, seed):
    out = PROGRAMS[name]
    at = values(seed)
    weights = np.random.default_rng(99).normal(
        size=pytensor.function(INPUTS, out.shape, on_unused_input="ignore", mode="FAST_COMPILE")(
            *at
        )
    )
    slopes = pull_back([X, Y, M], [out], [pt.as_tensor(weights)])
    known = [k for k, g in enumerate(slopes) if g is not None]
    compiled = pytensor.function(
        INPUTS, [slopes[k] for k in known], on_unused_input="ignore", mode="FAST_COMPILE"
    )(*at)
    f = pytensor.function(
        INPUTS, (out * weights).sum(), on_unused_input="ignore", mode="FAST_COMPILE"
    )
    rng = np.random.default_rng(seed)
    by_position = dict(zip(known, compiled, strict=True))
    for k in range(3):
        step = 1e-5 * rng.normal(size=at[k].shape)
        up, down = ([*at[:k], at[k] + sign * step, *at[k + 1 :]] for sign in (1, -1))
        expected = (f(*up) - f(*down)) / 2
        actual = np.sum(by_position[k] * step) if k in by_position else 0.0
        tolerance = {"cast": 1e-2}.get(name, 1e-6)
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=1e-5 * tolerance)


def count_switches(out):
    (g,) = pull_back([X], [out], [pt.ones_like(out)])
    used = set(ancestors([g], blockers=[X, out])) - {out}
    return sum(is_elementwise(v.owner, ps.Switch) for v in used)


def test_a_chain_of_functions_takes_one_switch():
    assert count_switches(pt.switch(C, pt.tanh(pt.exp(pt.sin(X))), 0.0)) == 1


def test_two_branches_take_one_switch():
    assert count_switches(pt.switch(C, pt.exp(X), pt.sin(X))) == 1


def test_a_sum_over_what_is_broadcast_is_masked_once():
    assert count_switches(pt.switch(C[:, None], pt.exp(pt.log(X).sum()) * M, 0.0)) == 2


def test_nested_switches_take_a_number_of_nodes_in_proportion_to_their_depth():
    def nodes(depth):
        y = X
        for k in range(depth):
            y = pt.switch(X > k, pt.sin(y) * Y[0], 0.0)
        return len(list(toposort(pull_back([X, Y], [y], [pt.ones_like(y)]))))

    assert nodes(40) < 2.2 * nodes(20)
