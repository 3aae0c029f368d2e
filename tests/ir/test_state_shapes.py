"""States whose length a step changes: their readers see it; a start of another length is an error."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import LoopTypeError, jaxify
from loopax.ir import evaluate
from tests.support.compare import imported

x, rows, steps = pt.dvector("x"), pt.dmatrix("rows"), pt.dvector("steps")
XS, TWO = np.array([4.0, 0.0, 6.0, 0.0, 8.0]), np.zeros(2)


def where_not_zero(x):
    """Positions of entries that are not zero, twice: three of five, and then two of three."""
    return loopax.scan(lambda s, _: (pt.flatnonzero(s) * 1.0, s.sum()), x, steps)[0]


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda s: s, [1.0, 2.0]),
        (lambda s: s.shape[0], 2),
        (lambda s: pt.arange(s.shape[0]), [0, 1]),
        (lambda s: s + x[: s.shape[0]], [5.0, 2.0]),
        (lambda s: loopax.scan(lambda c, r: (c + r, c), 0.0, s)[1], [0.0, 1.0]),
        (
            lambda s: pytensor.scan(lambda r, c: r + c, [s], [x[0]], return_updates=False),
            [5.0, 7.0],
        ),
    ],
)
def test_readers_of_a_state_see_its_last_length(read, expected):
    y = read(where_not_zero(x))
    graph = imported([x, steps], [y]).graph
    for actual in (jaxify([x, steps], y, backend="numba")(XS, TWO), evaluate(graph, XS, TWO)[0]):
        np.testing.assert_array_equal(actual, expected)


def test_rows_that_are_the_next_state_have_its_length():
    trace = loopax.scan(lambda s, _: (pt.flatnonzero(s + 1) * 1.0,) * 2, x, steps)[1]
    y = [trace, trace.shape[1], pt.zeros_like(trace[0])]
    start = np.array([4.0, -1.0, 6.0])
    trace, length, zeros = jaxify([x, steps], y, backend="numba")(start, TWO)
    np.testing.assert_array_equal(trace, [[0.0, 2.0], [0.0, 1.0]])
    assert length == 2 and zeros.shape == (2,)


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize(
    "step",
    [
        lambda level, r: (r + 0 * level.sum(), level.sum()),
        lambda level, r: (pt.zeros(3) + r, level.sum()),
        lambda level, r: (pt.ones((3, 3))[0] * level.sum(), level.sum()),
    ],
)
def test_a_start_of_another_length_than_the_steps_is_an_error(step, n):
    final, sums = loopax.scan(step, x, rows)
    # The loop over the final state would read past its end, or leave out its last elements.
    total = loopax.scan(lambda c, r: (c + r, c), 0.0, final)[0]
    values = [np.ones(3), np.arange(6.0).reshape(2, 3)]
    expected = evaluate(imported([x, rows], [total]).graph, *values)[0]
    f = jaxify([x, rows], total, backend="numba")
    np.testing.assert_allclose(f(*values), expected)

    values[0] = np.ones(n)
    message = rf"level of a loop changes its shape from \({n},\) to \(3,\)"
    with pytest.raises(ValueError, match=message):
        f(*values)
    for y in (total, sums):
        with pytest.raises(LoopTypeError, match=message):
            evaluate(imported([x, rows], [y]).graph, *values)
    with pytest.raises(LoopTypeError, match=message):
        jaxify([x, rows], total, loops="xla")(*values)
