"""Other axes, diagonals, ranges, sorting, and what runs along an axis."""

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import permute_row_elements
from pytensor.tensor.extra_ops import fill_diagonal, fill_diagonal_offset
from pytensor.tensor.math import Max, Min, ProdWithoutZeros

import loopax
from loopax.ir import Call
from tests.numba_backend.agreement import assert_agrees
from tests.numba_backend.interpreted import interpreted, lowered

rng = np.random.default_rng(0)


def reshapes(A, C, v, k):
    return [
        A.reshape((4, 3)),
        A.flatten(),
        A.reshape((2, -1)),
        A.reshape((1, 3, 4)),
        A.reshape((3, k + 4)),
        A.reshape((k - 1, 2)),  # -1 that only the program knows
        A.T.reshape((12,)),
        A[1:].reshape((-1,)),
        (A * 2).reshape((2, 6)),
        A.reshape(A.T.shape),
        C.reshape((6, 4)),
        C.reshape((2, -1)),
        C.reshape((4, 6)),
        C.reshape((2, 3, 2, 2)),
        v.reshape((1, -1)),
        pt.join_dims(C, start_axis=0, n_axes=2),
        pt.split_dims(A, shape=(2, 2), axis=1),
    ]


def indexed(A, C, v, k):
    return [
        pt.eye(3, 4, k=-1),
        pt.eye(k + 3),
        *(pt.diagonal(A, offset=offset) for offset in (0, 1, -2)),
        pt.diagonal(C, offset=1, axis1=0, axis2=2),
        pt.diag(v),
        pt.tril(A),
        pt.arange(k + 3),
        pt.arange(0.0, k + 3.0, 0.3),
        pt.arange(5, k, -2),
        pt.arange(k + 5, dtype="int8"),
        pt.specify_shape(pt.arange(0, 6, 2, dtype="int8"), (3,)) * 2,
        pt.repeat(v, 3),
        pt.repeat(A, pt.arange(3) + k, axis=0),
        pt.tile(A, 2),
        fill_diagonal(A, 7.0),
        fill_diagonal(A[:, :2], 7.0),
        *(fill_diagonal_offset(A, 7.0, k + offset) for offset in (-1, 0, 2)),
    ]


def along(A, C, v, k):
    # What is only zeros has one product in PyTensor's Python, and another in its C and Numba.
    with_zeros = pt.maximum(A, 0)[0].set(2.0)[:, 0].set(3.0)
    return [
        *(pt.argmax(A, axis=axis) for axis in (None, 0, 1)),
        pt.argmin(A, axis=1),
        pt.argmax(C, axis=(0, 2)),
        *(pt.cumsum(A, axis=axis) for axis in (None, 0, 1)),
        pt.cumprod(A, axis=1),
        pt.cumsum(pt.isnan(v).astype("int8") + 20),
        *(f(A, axis=1) for f in (pt.special.softmax, pt.special.log_softmax)),
        pt.special.softmax(C, axis=(0, 2)),
        *(pt.sort(A, axis=axis) for axis in (None, 0, 1)),
        pt.argsort(A, axis=0, kind="stable"),
        *(pt.searchsorted(pt.sort(v), A[0], side=side) for side in ("left", "right")),
        *(
            permute_row_elements(A, pt.argsort(A, axis=1, kind="stable"), inverse)
            for inverse in (False, True)
        ),
        *(
            permute_row_elements(A, pt.argsort(A[0], kind="stable"), inverse)
            for inverse in (False, True)
        ),
        *(
            permute_row_elements(A[0], pt.argsort(A, axis=1, kind="stable"), inverse)
            for inverse in (False, True)
        ),
        *(ProdWithoutZeros(axis=axis)(with_zeros) for axis in (None, 0, 1)),
    ]


def test_the_extremes_of_bools():
    """Of PyTensor's own conversion the least is False, and the greatest True, whatever they are of."""
    b, c = pt.vector("b", dtype="bool"), pt.matrix("c", dtype="bool", shape=(2, 2))
    outputs = [pt.min(b), pt.max(b), pt.min(c, axis=0), pt.max(c, axis=1, keepdims=True)]
    outputs += [pt.max(c), pt.min(b[:, None] | c[0], axis=0)]
    some = np.array([True, False]), np.array([[True, True], [False, True]])
    every, none = (
        (np.ones(2, bool), np.ones((2, 2), bool)),
        (np.zeros(3, bool), ~np.ones((2, 2), bool)),
    )
    assert_agrees([b, c], outputs, some, every, none, native=False)
    assert_agrees([b, c], outputs, some, every, none)


def values(nan=0.0):
    def some(*shape):
        x = rng.normal(size=shape).round(1)  # so that there are ties
        return np.where(rng.uniform(size=shape) < nan, np.nan, x)

    return [some(3, 4), some(2, 3, 4), some(5), 0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("family", [reshapes, indexed, along])
def test_as_evaluated(family, static):
    shapes = {"A": (3, 4), "C": (2, 3, 4), "v": (5,)}
    inputs = [pt.tensor(x, shape=s if static else (None,) * len(s)) for x, s in shapes.items()]
    inputs.append(pt.lscalar("k"))
    assert_agrees(inputs, family(*inputs), values(), values(0.2), native=False)


_x, _p = pt.dvector("x"), pt.dvector("p")
SORTED = interpreted(
    lowered(
        [_x, _p], [pt.sort(_x), pt.argsort(_x, kind="stable"), pt.searchsorted(pt.sort(_x), _p)]
    )
)
NUMBERS = st.floats(width=16) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0])


@settings(max_examples=60)
@given(st.lists(NUMBERS, max_size=40), st.lists(NUMBERS, max_size=3))
def test_sorting(x, probes):
    """Runs of eight are merged: lists of more than one run, ties, and nan, which is the last."""
    x, probes = np.array(x, dtype=float), np.array(probes, dtype=float)
    in_order, order, places = SORTED(x, probes)
    np.testing.assert_array_equal(in_order, np.sort(x))
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(places, np.searchsorted(np.sort(x), probes))


def test_sizes_that_do_not_fit():
    A, k = pt.dmatrix("A"), pt.lvector("k")
    run = interpreted(lowered([A, k], [A.reshape(k, ndim=2)]))
    for wrong in ([5, 2], [-1, -1], [-1, 5], [-2, -6], [-1, 0]):
        with pytest.raises(ValueError, match="cannot reshape"):
            run(np.ones((3, 4)), np.array(wrong))
    assert run(np.ones((3, 4)), np.array([-1, 6]))[0].shape == (2, 6)
    assert run(np.ones((0, 4)), np.array([7, 0]))[0].shape == (7, 0)
    v, counts = pt.dvector("v"), pt.lvector("counts")
    run = interpreted(lowered([v, counts], [pt.repeat(v, counts)]))
    for wrong in ([1, -1], [1, 2, 3]):
        with pytest.raises(ValueError, match=r"negative|could not be broadcast"):
            run(np.ones(2), np.array(wrong))
    run = interpreted(lowered([A], [pt.argmax(A, axis=0)]))
    with pytest.raises(ValueError, match="zero-size"):
        run(np.ones((0, 2)))


def test_some_compiled():
    A, v = pt.dmatrix("A"), pt.dvector("v")
    outputs = [A.reshape((-1,)), pt.argmax(A, axis=1), pt.cumsum(v), pt.sort(v), pt.diagonal(A)]
    assert_agrees([A, v], outputs, [rng.normal(size=(3, 4)), rng.normal(size=20)])


@pytest.mark.parametrize("of", ["softmax", "log_softmax", "a call"])
def test_an_array_that_an_inner_graph_returns_is_computed_before_the_loop(of):
    """A loop reads a matrix of transitions at each step: it divides no entry there again."""
    t, a = pt.matrix("t", shape=(20, 20)), pt.vector("a", shape=(20,))
    rows = {
        "softmax": lambda: pt.special.softmax(t, axis=1),
        "log_softmax": lambda: pt.special.log_softmax(t, axis=1),
        "a call": lambda: Call.from_graph(FunctionGraph([t], [t / (2.0 + t[0])]))(t),
    }[of]()
    last, _ = loopax.scan(lambda s, _: (rows @ s, None), a, length=3)
    values = rng.normal(size=(20, 20)), rng.normal(size=20)
    run = assert_agrees([t, a], [last], values)
    step = run.source.split("in range(3):")[1]
    assert "matvec" in step and "for " not in step and " / " not in step


@pytest.mark.parametrize(("function", "least"), [(pt.exp, 12), (pt.log, 12), (pt.tanh, 5)])
def test_a_function_of_a_small_matrix_is_vector_code(function, least):
    """Also where the elements do not fill the last vector, and whatever is in the rest of it."""
    for shape in ((2, 2), (5, 1), (3, 3), (2, 5), (4, 3), (4, 4), (8, 8)):
        x, s = pt.matrix("x", shape=shape), pt.matrix("s", shape=shape)
        last, _ = loopax.scan(lambda s, _, x=x: (function(x * s), None), s, length=3)
        special = np.resize([np.nan, np.inf, -np.inf, -0.0, 0.0, 710.0, -746.0, 1e-310], shape)
        values = [rng.uniform(0.5, 2.0, size=shape), special]
        run = assert_agrees([x, s], [last], *[[v, np.ones(shape)] for v in values])
        vectors = -(-x.type.shape[0] * x.type.shape[1] // 8) * 8
        is_loop = f"in range({vectors}):" in run.source.split("in range(3):")[1]
        assert is_loop == (shape[0] * shape[1] >= least), run.source


@pytest.mark.slow
@pytest.mark.parametrize("family", [reshapes, indexed, along])
def test_compiled(family):
    inputs = [pt.dmatrix("A"), pt.dtensor3("C"), pt.dvector("v"), pt.lscalar("k")]
    assert_agrees(inputs, family(*inputs), values())


def test_a_transpose_that_drops_an_axis_is_no_view():
    """An array of three axes has no transpose that a product of matrices could read."""
    a = pt.tensor("a", shape=(9, 10, 1), dtype="float64")
    b = pt.tensor("b", shape=(9, 11), dtype="float64")
    product = (a * 2).dimshuffle(1, 0) @ b
    assert_agrees([a, b], [product], [rng.normal(size=(9, 10, 1)), rng.normal(size=(9, 11))])


def test_an_array_with_a_checked_length_is_returned_without_a_copy():
    n = pt.lscalar("n")
    made = pt.exp(pt.arange(n) * 0.1)
    checked = pt.specify_shape(made, 20)
    graph = lowered([n], [checked])
    assert interpreted(graph).source.count("empty(") == 1
    both = lowered([n], [made, checked])
    first, second = interpreted(both)(20)
    assert not np.shares_memory(first, second)


def test_an_array_that_is_read_before_its_length_is_checked_stays_as_it_is():
    x = pt.dvector("x")
    made = pt.exp(x)
    written = pt.set_subtensor(pt.specify_shape(made, 3)[0], 7.0)
    for outputs in ([written, made], [made, written], [written, made.sum()]):
        assert_agrees([x], outputs, [np.arange(3.0)])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_the_extremes_of_integers_are_loops_of_ours(dtype):
    """PyTensor's conversion is an opaque call at each step of a loop."""
    x = pt.matrix("x", dtype=dtype)
    limits = np.iinfo(dtype)
    values = np.array([[limits.min, 3, 7], [limits.max, limits.max, 2]], dtype=dtype)
    outputs = [pt.max(x, axis=axis) for axis in (0, 1)]
    outputs += [op([axis])(x) for op in (Max, Min) for axis in (0, 1)]
    run = assert_agrees([x], outputs, [values], [values[:1]])
    assert "op0" not in run.source


@pytest.mark.slow
def test_runs_of_elements_are_copied_as_a_whole():
    x = pt.tensor("x", shape=(4, 5), dtype="float64")
    rows = pt.tensor("rows", shape=(3, 4, 5), dtype="float64")
    k = pt.lscalar("k")
    twice = x * 2
    outputs = [
        pt.set_subtensor(rows[k], twice),
        pt.set_subtensor(rows[k, 1], twice[0]),
        pt.set_subtensor(rows[1:], twice),  # spread
        pt.set_subtensor(rows[:, 0], twice[:3]),  # no run
        pt.set_subtensor(rows[k], pt.full((4, 5), 3.0)),
        twice.dimshuffle("x", 0, 1),
        pt.full((6, 7), x[0, 0]),
        pt.full((6, 7), pt.gt(x[0, 0], 0)),
    ]
    values = rng.normal(size=(4, 5)), rng.normal(size=(3, 4, 5))
    assert_agrees([x, rows, k], outputs, [*values, 2], [*values, -3])


@pytest.mark.parametrize("shape", [(None, None), (2, 2)])
@pytest.mark.parametrize("axis", [-1, -2, 0, 1])
def test_parts_along_an_axis_from_the_end(axis, shape):
    """PyTensor 3.0 keeps -1 as it is written, of which a square matrix has other parts by columns."""
    A = pt.tensor("A", shape=shape)
    parts = pt.split(A * 2, [1, 1], axis=axis)
    joined = pt.join(axis, *reversed(parts))
    assert_agrees([A], [*parts, joined], [rng.normal(size=(2, 2))])
