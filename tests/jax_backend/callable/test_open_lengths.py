"""Results of unknown length: a direct call gives arrays, and is compiled once for each bound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

import loopax
from loopax import PaddedArray, jaxify
from tests.support.compare import FAST_COMPILE

x, y = pt.dvector("x"), pt.dvector("y")
n = pt.lscalar("n")
ROWS = [np.array(v) for v in ([1.0, -1.0, 2.0], [3.0, 1.0, 2.0], [-1.0, -2.0, -3.0])]
FORMS = ["xla", "native"]


def stopped():
    return loopax.scan(lambda c, r: (c + r, c, c + r > 1.5), 0.0, x)[1]


LENGTHS = {
    "filter": lambda: loopax.filter(lambda r: r > 0, x),
    "filtered rows": lambda: loopax.filter(lambda r: r[0] > 0, pt.stack([x, 2 * x], axis=1)),
    "mask": lambda: x[x > 0] * 2 + 1,
    "places": lambda: pt.nonzero(x > 0)[0],
    "distinct": lambda: pt.unique(x),
    "slice": lambda: x[: (x > 0).sum()],
    "range": lambda: pt.arange(pt.minimum(pt.cast(x[0] + 2, "int64"), 5)),
    "reshaped": lambda: x[x > 0].reshape((1, -1)),
    "joined": lambda: pt.concatenate([x[x > 0], x]),
    "stopped": stopped,
    "both": lambda: [stopped(), x[x > 0]],
    "of a loop over it": lambda: loopax.scan(lambda c, r: (c + r, c), 0.0, x[x > 0])[1],
}


def tracings(f):
    """How many functions the calls so far have compiled."""
    whole = f._execution.whole
    return len(whole._kept) + whole._without_static.has_run


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LENGTHS)
def test_a_direct_call_gives_arrays_and_is_compiled_once(name, form):
    out = LENGTHS[name]()
    outs = out if isinstance(out, list) else [out]
    f = jaxify([x], outs, loops=form)
    run = pytensor.function([x], outs, mode=FAST_COMPILE)
    for rows in ROWS:
        actual = f(rows)
        assert tracings(f) == 1
        for a, b in zip(actual, run(rows), strict=True):
            assert isinstance(a, jax.Array) and a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    again = f(ROWS[0])
    for a, b in zip(again, run(ROWS[0]), strict=True):
        np.testing.assert_array_equal(a, b)
    padded = jax.jit(f)(ROWS[0])
    assert all(isinstance(p, PaddedArray) for p in padded)
    for p, b in zip(padded, run(ROWS[0]), strict=True):
        np.testing.assert_array_equal(np.asarray(p), b)


def test_nothing_else_is_compiled_for_a_length(caplog):
    f = jaxify([x], loopax.filter(lambda r: r > 0, x))
    with jax.log_compiles(True):
        assert f(ROWS[0]).shape == (2,)
        assert "Compiling" in caplog.text
        caplog.clear()
        assert f(ROWS[1]).shape == (3,) and f(ROWS[2]).shape == (0,)
        assert f(np.array([-1.0, -1.0, 5.0])).tolist() == [5.0]
    assert "Compiling" not in caplog.text


ERRORS = {
    "unequally many": (lambda: x[x > 0] + y, [ROWS[0], np.ones(3)], ValueError),
    "two masks": (lambda: x[x > 0] * y[y > 0], [ROWS[0], np.ones(3)], ValueError),
    "an index": (lambda: x[x > 0][2], [ROWS[0], np.ones(3)], IndexError),
    "an empty maximum": (lambda: x[x > 0].max(), [ROWS[2], np.ones(3)], ValueError),
    "written": (lambda: pt.set_subtensor(y[: (x > 0).sum()], x), [ROWS[0], np.ones(3)], ValueError),
}
LEGAL = [ROWS[1], np.ones(3)]


@pytest.mark.parametrize("name", ERRORS)
def test_what_does_not_fit_is_raised(name):
    """No number would be all that a program of JAX could say: the call is done once more."""
    make, at, error = ERRORS[name]
    out = make()
    f = jaxify([x, y], out, loops="xla")
    run = pytensor.function([x, y], out, mode=FAST_COMPILE, on_unused_input="ignore")
    np.testing.assert_array_equal(f(*LEGAL), run(*LEGAL))
    with pytest.raises((error, TypeError)):
        f(*at)
    with pytest.raises(error):
        run(*at)
    np.testing.assert_array_equal(f(*LEGAL), run(*LEGAL))


def test_a_check_of_the_program_is_raised_as_it_is():
    out = Assert("no row above 5")(x[x > 0], x.max() < 5)
    f = jaxify([x], out, loops="xla")
    assert f(ROWS[0]).tolist() == [1.0, 2.0]
    with pytest.raises(AssertionError, match="no row above 5"):
        f(np.array([6.0, -1.0]))
    assert f(ROWS[1]).tolist() == [3.0, 1.0, 2.0] and tracings(f) == 1


def test_where_no_bound_is_known_each_value_is_compiled():
    f = jaxify([x, n], [x[x > 0], pt.arange(n) * 2])
    for k, rows in ((1, ROWS[0]), (2, ROWS[1]), (2, ROWS[2])):
        actual = f(rows, k)
        np.testing.assert_array_equal(actual[0], rows[rows > 0])
        np.testing.assert_array_equal(actual[1], np.arange(k) * 2)
    # With n static, and the lengths of the mask left open; the first trace finds that out.
    assert (
        sum(key[1] for key in f._execution.whole._kept) <= 3 and len(f._execution.whole._kept) <= 4
    )


def test_numbers_known_in_a_trace_of_the_callers_make_known_lengths():
    f = jaxify([x], x[x > 0])
    actual = jax.jit(lambda: f(ROWS[0]).sum() + f(ROWS[0]).shape[0])()
    assert float(actual) == 5.0


def test_batches_and_derivatives_are_as_before():
    f = jaxify([x], x[x > 0])
    assert f(ROWS[0]).shape == (2,)
    batch = jax.vmap(f)(jnp.stack(ROWS))
    assert isinstance(batch, PaddedArray) and batch.length.tolist() == [2, 3, 0]
    g = jaxify([x], (x[x > 0] ** 2).sum())
    np.testing.assert_array_equal(jax.grad(g)(ROWS[0]), [2.0, 0.0, 4.0])


@pytest.mark.parametrize("options", [{"checks": "ignore"}, {"checks": "raise"}, {"jit": False}])
@pytest.mark.filterwarnings("ignore:.*compiled again for each new value:UserWarning")
def test_without_a_flag_values_are_static_and_results_are_arrays(options):
    f = jaxify([x], [x[x > 0], stopped()], **options)
    for rows in ROWS[:2]:
        masked, trace = f(rows)
        assert isinstance(masked, jax.Array) and not isinstance(trace, PaddedArray)
        np.testing.assert_array_equal(masked, rows[rows > 0])


def test_an_update_and_a_shared_variable():
    total = pytensor.shared(np.array([1.0, -1.0, 2.0]), name="total")
    f = jaxify([n], total[total > 0][:n])
    assert f(1).tolist() == [1.0] and f(2).tolist() == [1.0, 2.0]
    total.set_value(np.array([-1.0, -1.0, 2.0]))
    assert f(2).tolist() == [2.0]


@pytest.mark.parametrize("n_steps", [2, 50])
@pytest.mark.parametrize("form", FORMS)
def test_a_write_at_a_mask_of_the_carry(form, n_steps):
    """No argument makes the length static: a direct call refused what ran under jit."""
    out = pytensor.scan(
        lambda s: pt.set_subtensor(s[s > 1], s[s > 1] / 2),
        outputs_info=x,
        n_steps=n_steps,
        return_updates=False,
    )
    f, run = jaxify([x], out, loops=form), pytensor.function([x], out, mode=FAST_COMPILE)
    for rows in ROWS:
        np.testing.assert_array_equal(f(rows), run(rows))
        np.testing.assert_array_equal(jax.jit(f)(rows), run(rows))
