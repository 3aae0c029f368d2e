"""Reading and writing at arrays of integers and at masks, as NumPy does it."""

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopax import jaxify
from tests.numba_backend.agreement import assert_agrees
from tests.numba_backend.interpreted import interpreted, lowered

rng = np.random.default_rng(0)


def arrays(static: bool):
    def tensor(name, shape, dtype="float64"):
        return pt.tensor(name, shape=shape if static else (None,) * len(shape), dtype=dtype)

    A, C, v = tensor("A", (3, 4)), tensor("C", (2, 3, 4)), tensor("v", (5,))
    i, m = tensor("i", (3,), "int64"), tensor("m", (2, 2), "int32")
    return [A, C, v, i, m, pt.lscalar("k")]


def values(low=-2, high=2):
    return [
        rng.normal(size=(3, 4)),
        rng.normal(size=(2, 3, 4)),
        rng.normal(size=5),
        rng.integers(low, high, 3),
        rng.integers(low, high, (2, 2)),
        int(rng.integers(low, high)),
    ]


def reads(A, C, v, i, m, k):
    return [
        v[i],
        A[i],
        A[:, i],
        v[m],
        A[i, i],
        A[i, k],
        A[k, i],
        C[k, i],
        C[i, :, k],  # the slice between the two moves their axes to the front
        C[:, i, k],
        C[i, 1:, i],
        C[k, ::-1, i],
        C[m, m],
        A[[0, 2, -1]],
        A[[0, 1], [2, -3]],
        v[pt.abs(i).astype("uint64")],
        A[A > 0],
        C[:, A.sum(1) > 0],
        *(A > 0).nonzero(),
    ]


def writes(A, C, v, i, m, k):
    w = v[:3]
    return [
        pt.set_subtensor(v[i], w),
        pt.inc_subtensor(v[i], w),  # an index that comes twice counts twice
        pt.inc_subtensor(v[i], 1.5),
        pt.inc_subtensor(A[i], A),
        pt.set_subtensor(A[i, i], 7),
        pt.inc_subtensor(C[:, i, k], w),
        pt.inc_subtensor(C[i, :, k], A[:, :3]),
        pt.set_subtensor(v[v > 0], v[v > 0] * 2),
        pt.inc_subtensor(v[m], 2),
        pt.inc_subtensor(A[i, 1:], 1),
    ]


@pytest.mark.parametrize("static", [True, False])
def test_reads_and_writes(static):
    inputs = arrays(static)
    cases = [values() for _ in range(4)]
    assert_agrees(inputs, reads(*inputs), *cases, native=False)
    assert_agrees(inputs, writes(*inputs), *cases, native=False)


_v, _i = pt.dvector("v"), pt.lvector("i")
READ = interpreted(lowered([_v, _i], [_v[_i], pt.inc_subtensor(_v[_i], 1)]))


@settings(max_examples=40)
@given(st.lists(st.integers(-7, 7), max_size=4), st.integers(0, 6))
def test_an_index_out_of_bounds_is_an_error(at, n):
    v = np.arange(n, dtype=float)
    try:
        expected = v[at]
    except IndexError:
        with pytest.raises(IndexError, match="out of bounds"):
            READ(v, np.array(at, dtype=int))
        return
    np.testing.assert_array_equal(READ(v, np.array(at, dtype=int))[0], expected)


def test_masks_and_shapes_that_do_not_fit():
    v, b, i, j = pt.dvector("v"), pt.vector("b", dtype="bool"), pt.lvector("i"), pt.lvector("j")
    A = pt.dmatrix("A")
    run = interpreted(lowered([v, b], [v[b]]))
    with pytest.raises(IndexError, match="boolean index did not match"):
        run(np.ones(3), np.array([True, False]))
    run = interpreted(lowered([A, i, j], [A[i, j]]))
    with pytest.raises(IndexError, match="could not be broadcast"):
        run(np.ones((3, 3)), np.arange(2), np.arange(3))


@pytest.mark.slow
def test_reads_and_writes_compiled():
    inputs = arrays(False)
    assert_agrees(inputs, reads(*inputs), values())
    assert_agrees(inputs, writes(*inputs), values())


def test_some_compiled():
    v, i = pt.dvector("v"), pt.lvector("i")
    outputs = [v[i], pt.inc_subtensor(v[i], 1.5), v[v > 0]]
    run = assert_agrees([v, i], outputs, [rng.normal(size=4), [0, 2, -1, 0]])
    with pytest.raises(IndexError, match="out of bounds"):
        run([1.0], [3])


def test_a_constant_without_elements_beside_a_length_that_is_not_known():
    """It was made where it is read, behind what reads it."""
    m = pt.matrix("m")
    weights = np.zeros((0, 1))
    rows = m[5:-5:-3] * weights
    out = [rows, pt.grad(rows.sum(), m), pt.set_subtensor(m[5:-5:-3], weights)]
    values = np.arange(20.0).reshape(10, 2)
    got = jaxify([m], out, backend="numba")(values)
    assert got[0].shape == (0, 2)
    np.testing.assert_array_equal(got[1], np.zeros((10, 2)))
    np.testing.assert_array_equal(got[2], values)


# Of indices that are known there is nothing to check in the loop that reads.
KNOWN = np.arange(70) % 5 - 2


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("low", [0, -2])
def test_constant_indices_are_checked_before_the_loop(static, low):
    x, y = pt.tensor("x", dtype="float64", shape=(5 if static else None,)), pt.dvector("y")
    k = pt.constant(KNOWN - KNOWN.min() + low)
    outputs = [pt.exp(x[k]).sum(), x[k].inc(y), pt.set_subtensor(x[k], y)]
    case = [rng.normal(size=5), rng.normal(size=70)]
    text = assert_agrees([x, y], outputs, case, native=False).source
    inside = [line for line in text.splitlines() if "index(" in line and line.startswith(" " * 8)]
    assert bool(inside) == (low < 0 and not static), text


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("beyond", [5, -6])
def test_constant_indices_out_of_bounds_still_raise(static, beyond):
    x = pt.tensor("x", dtype="float64", shape=(5 if static else None,))
    k = np.append(KNOWN, beyond)
    run = interpreted(lowered([x], [pt.exp(x[k]).sum()]))
    with pytest.raises(IndexError, match="out of bounds"):
        run(np.ones(5))


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("mask", [KNOWN > 0, KNOWN > 9, np.array([True, False, True])])
def test_the_positions_of_a_constant_mask_are_known(static, mask):
    x = pt.tensor("x", dtype="float64", shape=(len(mask) if static else None,))
    y = pt.dvector("y")
    outputs = [x[mask].sum(), x[mask].inc(y), pt.set_subtensor(x[mask], y)]
    case = [rng.normal(size=len(mask)), rng.normal(size=mask.sum())]
    run = assert_agrees([x, y], outputs, case, native=False)
    assert "+= 1" not in run.source
    if not static:
        with pytest.raises(IndexError):
            run(np.ones(len(mask) + 1), np.ones(mask.sum()))
