"""Steps that look back and ahead: against NumPy, and against the taps of `pytensor.scan`."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import LoopTypeError, jaxify, lag, lead, map, reduce, scan, while_loop
from loopax.ir import Scan
from loopax.ir.windows import WIDEST_REGISTERS
from tests.support.compare import assert_agrees, value

XS = np.array([0.5, -1.0, 2.0, 3.0, 0.25])
x = pt.dvector("x")
x0 = pt.dvector("x0")
FAR = WIDEST_REGISTERS + 3


def combined(past, row):
    return 0.5 * past[0] - 0.25 * past[-1] + row


def step(past, row):
    new = combined(past, row)
    return new, new


def by_numpy(start, lags, rows):
    """The final window and all new values, in the order of the steps."""
    known = [*start]
    for row in rows:
        known.append(combined([known[-k] for k in lags], row))
    size = max(lags)
    return np.array(known[-size:]), np.array(known[len(start) :])


# -- lag -----------------------------------------------------------------------------------------------


@pytest.mark.sampled(39)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("lags", [[1], [1, 2], [3, 1], [2], [1, 1], [1, FAR], [FAR]])
def test_a_lag_is_past_values(lags, n, reverse):
    size = max(lags)
    start = np.cos(np.arange(size))
    final, ys = scan(step, lag(x0, lags), x, reverse=reverse)
    actual = value([final, ys], [x0, x], [start, XS[:n]])
    order = slice(None, None, -1 if reverse else 1)
    expected_final, expected = by_numpy(start, lags, XS[:n][order])
    np.testing.assert_allclose(actual[0], expected_final, rtol=1e-12)
    np.testing.assert_allclose(actual[1], expected[order], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("lags", [[1, 3], [2, FAR]])
def test_everywhere_with_gradients(lags):
    start = np.cos(np.arange(max(lags)))
    final, ys = scan(step, lag(x0, lags), x)
    actual = assert_agrees([x0, x], [final, ys], [start, XS], grad_wrt=[x0, x], vmap=[1])
    np.testing.assert_allclose(actual[0], by_numpy(start, lags, XS)[0], rtol=1e-12)
    taps = pytensor.scan(
        lambda row, *past: combined(past, row),
        sequences=[x],
        outputs_info=[{"initial": x0, "taps": [-k for k in lags]}],
        return_updates=False,
    )
    np.testing.assert_allclose(actual[1], value(taps, [x0, x], [start, XS]), rtol=1e-12)


@pytest.mark.parametrize(("widest", "states"), [(WIDEST_REGISTERS, WIDEST_REGISTERS), (FAR, 1)])
def test_few_values_are_states_and_many_are_a_ring(widest, states):
    final, ys = scan(step, lag(x0, [1, widest]), x)
    op = ys.owner.op
    assert isinstance(op, Scan) and op.n_states == states
    assert final.type.ndim == 1


def test_a_loop_in_two_parts_is_one_loop():
    for lags in ([1, 3], [1, FAR]):
        start = np.cos(np.arange(max(lags)))
        whole, ys = scan(step, lag(x0, lags), x)
        half, first = scan(step, lag(x0, lags), x[:2])
        end, second = scan(step, lag(half, lags), x[2:])
        actual = value([whole, ys, end, pt.concatenate([first, second])], [x0, x], [start, XS])
        np.testing.assert_allclose(actual[0], actual[2])
        np.testing.assert_allclose(actual[1], actual[3])


def test_a_lag_among_other_leaves_and_of_rows_that_are_matrices():
    start = np.arange(12.0).reshape(3, 2, 2)

    def both(carry, row):
        m, (last, third) = carry["n"], carry["past"]
        return {"n": m + 1, "past": last @ third * row}, third.sum()

    final, ys = scan(both, {"n": 0, "past": lag(start, [1, 3])}, x)
    n, window, sums = value([final["n"], final["past"], ys], [x], [XS])
    known = [*start]
    expected = []
    for row in XS:
        expected.append(known[-3].sum())
        known.append(known[-1] @ known[-3] * row)
    assert n == 5
    np.testing.assert_allclose(window, known[-3:])
    np.testing.assert_allclose(sums, expected)


@pytest.mark.parametrize("far", [2, FAR])
def test_a_loop_that_stops_returns_the_last_values_it_made(far):
    def stopping(past, row):
        new = combined(past, row)
        return new, new, new > 1

    start = np.zeros(far)
    final, ys, stopped = scan(stopping, lag(x0, [1, far]), x)
    actual = value([final, ys, stopped], [x0, x], [start, XS])
    expected_final, expected = by_numpy(start, [1, far], XS[:3])
    assert actual[2]
    np.testing.assert_allclose(actual[0], expected_final)
    np.testing.assert_allclose(actual[1], expected)


@pytest.mark.parametrize("far", [2, FAR])
def test_while_and_reduce_take_lags(far):
    start = np.arange(far)
    final = while_loop(
        lambda past: past[0] < 200, lambda past: past[0] + past[1], lag(start, [1, far])
    )
    actual = jaxify([x], final + x[0].astype("int64"))(XS)
    known = [*start]
    while known[-1] < 200:
        known.append(known[-1] + known[-far])
    np.testing.assert_array_equal(actual, known[-far:])
    done = while_loop(
        lambda past: past[0] < 1, lambda past: past[0] + past[1], lag(start, [1, far])
    )
    np.testing.assert_array_equal(value(done), start if start[-1] >= 1 else done)
    total = reduce(combined, lag(x0, [1, far]), x)
    actual = value(total, [x0, x], [np.ones(far), XS])
    np.testing.assert_allclose(actual, by_numpy(np.ones(far), [1, far], XS)[0])


def test_the_types_of_a_lag_settle_like_those_of_a_carry():
    final, _ = scan(step, lag(np.array([1, 2]), [1, 2]), x)
    assert final.type.dtype == "float64"
    actual = value(final, [x], [XS[:1]])
    np.testing.assert_allclose(actual, [2.0, 0.5 * 2 - 0.25 + 0.5])
    whole = pt.lvector("whole")
    with pytest.raises(LoopTypeError, match=r"carry\['s'\] is Scalar\(int64.*"):
        scan(lambda c, r: ({"s": c["s"][0] * r}, None), {"s": lag(whole, [1, 2])}, x)
    wide, _ = scan(
        lambda c, r: (pt.concatenate([c[0], c[1]]), None), lag(np.ones((2, 1)), [1, 2]), x
    )
    assert wide.type.shape == (2, None)


def test_a_lag_of_the_wrong_number_of_rows():
    with pytest.raises(
        LoopTypeError, match=r"looks back 4 steps, but x0 has 3 rows(.|\n)*x0\[-4:\]"
    ):
        scan(step, lag(np.zeros(3), [1, 4]), x)
    for lags in ([1, 4], [1, FAR]):
        final, _ = scan(step, lag(x0, lags), x)
        for rows in (3, max(lags) + 1):
            with pytest.raises(AssertionError, match=rf"lag\(x0, .*x0 must have {max(lags)} rows"):
                value(final, [x0, x], [np.zeros(rows), XS])
            with pytest.raises(AssertionError, match=f"x0 must have {max(lags)} rows"):
                jaxify([x0, x], final)(np.zeros(rows), XS)
    with pytest.raises(LoopTypeError, match="carry is a lag of 'a' of type Scalar.*leading axis"):
        scan(step, lag(pt.dscalar("a"), [1]), x)


@pytest.mark.parametrize("lags", [[], [0], [-1], [1.0], [True], 1, None, "1"])
def test_lags_are_positive_integers(lags):
    with pytest.raises(
        LoopTypeError, match=r"lag\(..., .*list of integers from 1 on.*lag\(x, \[1, 2\]"
    ):
        lag(x0, lags)


# -- lead ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("offsets", [[0], [0, 1], [1], [2, 0], [3, 3]])
def test_a_lead_is_rows_ahead(offsets, n, reverse):
    _, ys = scan(lambda c, r: (c, pt.stack(r)), None, lead(x, offsets), reverse=reverse)
    actual = value(ys, [x], [XS[:n]])
    steps = max(n - max(offsets), 0)
    expected = [[XS[t + k] for k in offsets] for t in range(steps)]
    np.testing.assert_array_equal(actual, np.reshape(expected, (steps, len(offsets))))


def test_a_lead_is_the_taps_of_pytensor():
    y = pt.dvector("y")
    out = map(lambda r: r["x"][0] * r["x"][1] + r["y"], {"x": lead(x, [0, 2]), "y": y})
    actual = assert_agrees([x, y], out, [XS, XS[:3]], grad_wrt=[x, y])
    legacy = pytensor.scan(
        lambda now, ahead, y: now * ahead + y,
        sequences=[{"input": x, "taps": [0, 2]}, y],
        return_updates=False,
    )
    np.testing.assert_allclose(actual, value(legacy, [x, y], [XS, XS[:3]]), rtol=1e-12)


def test_a_lead_counts_its_rows():
    with pytest.raises(
        LoopTypeError, match=r"- xs\[0\]: 3\n  - xs\[1\]: 5\n(.|\n)*lead needs as many"
    ):
        map(lambda r: r[1], (lead(np.zeros(5), [0, 2]), np.zeros(5)))
    assert value(map(lambda r: r[0], lead(np.zeros(5), [0, 2]), length=3)).shape == (3,)
    assert value(map(lambda r: r[0], lead(np.zeros(1), [0, 2]))).shape == (0,)


@pytest.mark.parametrize("offsets", [[], [-1, 0], [0.5], 1])
def test_leads_are_integers_from_zero_on(offsets):
    with pytest.raises(LoopTypeError, match=r"lead\(..., .*from 0 on.*lead\(x, \[0, 1\]"):
        lead(x, offsets)


def test_a_lead_is_no_carry():
    with pytest.raises(LoopTypeError, match=r"carry is lead\(x, \[0, 1\]\) of type Lead"):
        scan(step, lead(x, [0, 1]), x)
    with pytest.raises(LoopTypeError, match=r"xs is lag\(x, \[1\]\) of type Lag"):
        scan(step, x0[0], lag(x, [1]))
