"""Batches by ``vectorize_graph`` of rows as long as their values say: of one length, as in PyTensor."""

import warnings

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from loopax import jaxify
from tests.support.compare import FAST_COMPILE

X, N = pt.matrix("X"), pt.lvector("n")
V, K, MASK = pt.vector("v"), pt.lscalar("k"), pt.vector("mask", dtype="bool")
MASKS = pt.matrix("masks", dtype="bool")
ROWS = np.array([[1.0, -2.0, 3.0, 0.5], [-1.0, 2.0, 0.25, 4.0], [2.0, 1.0, 5.0, -3.0]])
EQUAL_MASKS = np.array([[True, False, True, False], [False, True, True, False]])


def _traced(step, stop=None):
    return pytensor.scan(
        lambda v, s: step(v, s) if stop is None else (step(v, s), until(stop(step(v, s)))),
        sequences=V,
        outputs_info=pt.zeros(()),
        return_updates=False,
    )


def _of_graph(make):
    """An op with an inner graph, of a row and an integer that is the same in all rows."""
    return OpFromGraph([V, K], [make(V, K)])(V, K)


STOPPED = _traced(
    lambda v, s: s + abs(v), lambda s: s > 2.5
)  # after two steps, in each of `ROWS[:2]`
GROWN = pytensor.scan(
    lambda i, s: s + V[:i].sum(),
    sequences=pt.arange(1, 4),
    outputs_info=pt.zeros(()),
    return_updates=False,
)
TRACE = _traced(lambda v, s: 0.5 * s + v)
JACOBIAN = pytensor.gradient.jacobian(_traced(lambda v, s: pt.sin(s * v)), V, vectorize=True)
BATCHES = {
    "trace": (STOPPED, {V: X}, [ROWS[:2]]),
    "sum of a trace": (STOPPED.sum(), {V: X}, [ROWS[:2]]),
    "slice of a trace": (STOPPED[:2], {V: X}, [ROWS[:2]]),
    "rows of a mask": (V[V > 0].sum(), {V: X}, [ROWS]),
    "masks": (V[MASK].sum(), {MASK: MASKS}, [ROWS[0], EQUAL_MASKS]),
    "slices": (V[K : K + 2], {K: N}, [ROWS[0], np.array([0, 2, 1])]),
    "gradient of slices in a loop": (pytensor.grad(GROWN[-1], V), {V: X}, [ROWS]),
    "gradient of a trace": (pytensor.grad((TRACE**2).sum(), V), {V: X}, [ROWS]),
    "gradient of a jacobian": (pytensor.grad((JACOBIAN**2).sum(), V), {V: X}, [ROWS]),
}
OF_A_COUNT = {
    "zeros": lambda v, k: pt.zeros(k) + v[0],
    "arange": lambda v, k: pt.arange(k) * v[0],
    "slice": lambda v, k: v[:k],
}


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:The assertion:UserWarning")
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["direct", "jit"])
@pytest.mark.parametrize("name", BATCHES)
def test_rows_of_equal_lengths_are_stacked(name, wrap):
    out, rows, args = BATCHES[name]
    inputs = [
        rows.get(v, v) for v in (V, K, MASK) if v in pytensor.graph.traversal.ancestors([out])
    ]
    function = pytensor.function(inputs, vectorize_graph(out, rows), mode=FAST_COMPILE)
    actual = np.asarray(wrap(jaxify(function))(*args))
    expected = function(*args)
    np.testing.assert_allclose(actual, expected)
    assert actual.dtype == expected.dtype


@pytest.mark.parametrize("name", OF_A_COUNT)
def test_a_count_that_all_rows_share_makes_their_length(name):
    out = vectorize_graph(_of_graph(OF_A_COUNT[name]), {V: X})
    function = pytensor.function([X, K], out, mode=FAST_COMPILE)
    f = jaxify(function)
    for k in (2, 3):
        np.testing.assert_allclose(f(ROWS, k), function(ROWS, k))
        actual = jax.jit(f, static_argnums=1)(ROWS, k)
        np.testing.assert_allclose(actual, function(ROWS, k))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The assertion:UserWarning")
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["direct", "jit"])
@pytest.mark.parametrize(
    "read",
    [lambda u: u[-1], lambda u: u.sum(), lambda u: (u[:2] * u[-1]).sum()],
    ids=["last", "sum", "rows"],
)
def test_gradients_of_rows_that_stop_together(read, wrap):
    # A graph of its own: PyTensor 3.0 rewrites the step of a loop that it compiles, in place.
    stopped = _traced(lambda v, s: s + v**2, lambda s: s > 2.5)
    gradient = vectorize_graph(pytensor.grad(read(stopped), V), {V: X})
    function = pytensor.function([X], gradient, mode=FAST_COMPILE)
    f = jaxify(function)
    for rows in (
        ROWS[:2],
        np.array([[1.0, 1.0, 1.0, 9.0], [0.5, -1.0, 1.5, 9.0]]),
    ):  # 2 and 3 steps
        np.testing.assert_allclose(f(rows), function(rows))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("out", "shape"),
    [
        (TRACE, (0, 4)),
        (pytensor.grad((TRACE**2).sum(), V), (0, 4)),
        (pt.diag(V), (0, 4, 4)),
        (V.reshape((2, 2)), (0, 2, 2)),
        (pt.tile(V, 2), (0, 8)),
    ],
    ids=["trace", "gradient", "diagonal", "reshape", "tile"],
)
def test_a_batch_of_no_rows_has_the_shape_of_a_row(out, shape):
    f = jaxify([X], vectorize_graph(out, {V: X}))
    assert f(ROWS[:0]).shape == jax.jit(f)(ROWS[:0]).shape == shape
    assert f(ROWS).shape == (3, *shape[1:])


def test_rows_of_several_lengths_have_no_numbers():
    function = pytensor.function([X], vectorize_graph(V[V > 0].sum(), {V: X}), mode=FAST_COMPILE)
    rows = np.array([[1.0, 2.0], [1.0, -1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert np.isnan(jaxify(function)(rows)).all()


def test_one_compiled_function_for_all_masks():
    function = pytensor.function([X], vectorize_graph(V[V > 0].sum(), {V: X}), mode=FAST_COMPILE)
    f = jaxify(function)
    f(ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (ROWS + 0.125, ROWS * 2):
            np.testing.assert_allclose(f(rows), function(rows))
