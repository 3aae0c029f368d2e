"""A state that is a place in a row of pointers: all steps at once, by composed maps."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify, scan

pointers, start = pt.lmatrix("pointers"), pt.lscalar("start")
N, S = 70, 5
ROWS = np.random.default_rng(3).integers(0, S, (N, S))


def way(reverse, first=start, rows=pointers):
    def step(k, row):
        return row[k], k

    return list(scan(step, first, rows, reverse=reverse))


def in_both(inputs, outputs):
    return [jaxify(inputs, outputs, parallel=p, loops="xla") for p in (True, False)]


def by_hand(rows, k, reverse):
    seen = []
    for row in rows[:: -1 if reverse else 1]:
        seen.append(k)
        k = row[k]
    return k, np.array(seen[:: -1 if reverse else 1])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 33, N])
def test_the_way_over_pointers(reverse, n):
    at_once, one_by_one = in_both([pointers, start], way(reverse))
    for k in (0, 3):
        actual = at_once(ROWS[:n], k)
        for a, b, c in zip(
            actual, one_by_one(ROWS[:n], k), by_hand(ROWS[:n], k, reverse), strict=True
        ):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)
    if n > 1:
        assert any(f"in parallel: state 0 by maps of {S} places" in r for r in at_once.remarks)
        # No loop over the steps is left, but those inside of blocks and over their number.
        text = str(jax.make_jaxpr(at_once)(ROWS[:n], 0))
        assert n < 33 or f"length={n}" not in text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_of_other_dtypes_from_the_end_and_in_a_batch(dtype):
    rows, first = pt.matrix("rows", dtype=dtype), pt.scalar("first", dtype=dtype)
    at_once, one_by_one = in_both([rows, first], way(True, first, rows))
    given = (ROWS - S * (ROWS % 2)).astype(dtype)  # some of them negative: from the end
    for k in (0, -1):
        for a, b in zip(at_once(given, k), one_by_one(given, k), strict=True):
            np.testing.assert_array_equal(a, b)
    starts = np.arange(S, dtype=dtype)
    batches = [jax.jit(jax.vmap(f, (None, 0)))(given, starts) for f in (at_once, one_by_one)]
    for a, b in zip(*batches, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_place_beyond_the_row_is_none_in_either_form():
    at_once, one_by_one = in_both([pointers, start], way(False))
    rows = ROWS.copy()
    rows[40] = S  # no place
    for f in (at_once, one_by_one):
        final, seen = jax.jit(f)(rows, 0)
        assert int(final) < -S and int(seen[41]) == S and (np.asarray(seen)[42:] < -S).all()
        np.testing.assert_array_equal(np.asarray(seen)[:41], by_hand(rows[:41], 0, False)[1][:41])


def test_viterbi_forwards_and_back():
    logs, chances = pt.dmatrix("logs"), pt.dmatrix("chances")

    def forward(a, row):
        u = a[:, None] + chances
        return pt.max(u, axis=0) + row, pt.argmax(u, axis=0)

    best, back = scan(forward, logs[0], logs[1:])
    first, path = way(True, pt.argmax(best), back)
    at_once, one_by_one = in_both([logs, chances], [first, path, best])
    rng = np.random.default_rng(5)
    given = rng.normal(size=(N, 3)), np.log(rng.dirichlet(np.ones(3), 3))
    for a, b in zip(at_once(*given), one_by_one(*given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    said = "\n".join(at_once.remarks)
    assert "linear in maxima" in said and "by maps of 3 places" in said
    native = jaxify([logs, chances], [first, path], backend="numba")
    for a, b in zip(native(*given), one_by_one(*given), strict=False):
        np.testing.assert_array_equal(a, b)


def test_one_row_for_all_steps_and_states_beside_it():
    row = pt.lvector("row")

    def step(carry, r):
        k, total = carry
        return (row[k], total + r), k

    (k, total), seen = scan(step, (start, 0), pt.arange(N))
    at_once, one_by_one = in_both([row, start], [k, total, seen])
    for a, b in zip(at_once(ROWS[0], 2), one_by_one(ROWS[0], 2), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any("by maps of 5 places" in r for r in at_once.remarks)


def test_what_is_no_place_alone_is_none():
    final, _ = scan(lambda k, row: (row[k] + 1, None), start, pointers)
    with pytest.warns(UserWarning, match="one by one"):
        f = jaxify([pointers, start], final % S, parallel=True, loops="xla")
        f(ROWS % (S - 1), 0)
    assert loopax.explain(f) is not None


@pytest.mark.filterwarnings("ignore:.*takes its steps one by one")
def test_more_places_than_the_dtype_numbers():
    """In int8 place 150 of 200 is -50."""
    rows, first = pt.matrix("rows", dtype="int8"), pt.scalar("first", dtype="int8")
    places = np.random.default_rng(5).integers(-100, 100, (40, 200)).astype("int8")
    for f in in_both([rows, first], way(False, first, rows)):
        for a, b in zip(f(places, np.int8(3)), by_hand(places, 3, False), strict=True):
            np.testing.assert_array_equal(a, b)
