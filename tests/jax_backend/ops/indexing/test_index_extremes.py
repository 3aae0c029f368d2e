"""Indices, slices and lengths at the ends of their types: never a number from another place."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import loopax
from loopax import jaxify
from tests.support.both_backends import NATIVE

X, M = pt.dvector("x"), pt.dmatrix("m")
K = pt.lscalar("k")
AT, ROWS = np.arange(1.0, 6.0), np.arange(6.0).reshape(3, 2)
FAR = [5, -6, 2**31, -(2**31) - 1, 2**32, 2**32 + 1, -(2**32), 2**62, -(2**63)]


def reads(k):
    """Each of them is out of range where ``k`` is."""
    return [
        X[k],
        M[0, k],
        M[k, 0],
        M[k].sum(),
        pt.take(X, k),
        X[pt.stack([k, k])].sum(),
        pt.set_subtensor(X[k], 0.0).sum(),
        pt.inc_subtensor(X[k], 1.0).sum(),
        pt.set_subtensor(M[1, k], 0.0).sum(),
    ]


@pytest.fixture(scope="module")
def jitted():
    f = jaxify([X, M, K], reads(K), loops="xla")
    return jax.jit(lambda k: f(AT, ROWS, k))


@pytest.mark.parametrize("k", FAR)
def test_a_traced_index_that_is_out_of_range_is_nan(jitted, k):
    assert np.isnan(jitted(jnp.int64(k))).all()


@pytest.mark.parametrize("dtype", ["uint32", "uint64", "int32", "int8"])
def test_other_dtypes(dtype):
    k = pt.scalar("k", dtype=dtype)
    f = jaxify([X, k], [X[k], pt.set_subtensor(X[k], 9.0)], loops="xla")
    for at in {3, np.iinfo(dtype).max, np.iinfo(dtype).max - 1, 2**7 - 1}:
        value, written = jax.jit(f)(AT, np.asarray(at, dtype))
        assert np.isnan(value) if at != 3 else value == 4.0
        assert np.isnan(written).any() if at != 3 else written[3] == 9.0


@pytest.mark.parametrize("k", [5, 2**32 + 1, -(2**63)])
def test_native_code_raises(k):
    for y in reads(K):
        with pytest.raises(IndexError):
            jaxify([X, M, K], y, backend=NATIVE)(AT, ROWS, k)


def test_an_unsigned_integer_is_not_counted_from_the_end():
    u = pt.scalar("u", dtype="uint64")
    us = pt.vector("us", dtype="uint64")
    for at in (2**64 - 1, 2**63, 5):
        with pytest.raises(IndexError):
            jaxify([X, u], X[u], backend=NATIVE)(AT, np.uint64(at))
        with pytest.raises(IndexError):
            jaxify([X, us], X[us], backend=NATIVE)(AT, np.array([1, at], "uint64"))


SLICES = [(None, None, 2**63 - 1), (None, None, -(2**63)), (2**62, None, 1), (-(2**62), 2**62, 3)]
SLICES += [(None, None, -7), (4, 0, -(2**40)), (1, 2**63 - 1, 2**50)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("bounds", SLICES, ids=str)
def test_a_slice_is_numpys(bounds):
    """What NumPy clips is clipped, whether the bounds are constants or arguments."""
    variables = [None if b is None else pt.lscalar() for b in bounds]
    given = [v for v in variables if v is not None]
    values = [b for b in bounds if b is not None]
    expected = AT[slice(*bounds)]
    constant = [None if b is None else np.int64(b) for b in bounds]
    for options in ({"loops": "xla"}, {"backend": NATIVE}):
        f = jaxify([X, *given], X[slice(*variables)], **options)
        np.testing.assert_array_equal(f(AT, *values), expected)
        g = jaxify([X], X[slice(*constant)], **options)
        np.testing.assert_array_equal(g(AT), expected)


LONG = np.arange(1.0, 301.0)


def parts(x, k):
    """Sums of slices that begin or end near ``k``, which wraps around at the ends of its type."""
    above = x[x > 3]
    return [
        part.sum()
        for part in (x[k : k + 2], x[k - 1 : k + 1], x[:k], x[k:], x[k::-1], x[: k + 1 : -1])
    ] + [part.sum() for part in (above[k : k + 2], above[:k], above[k:], above[k :: 2**62])]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_slices_at_the_ends_of_a_type(dtype):
    """Starts of 8 bits count from the end of 300 rows; a stop that wraps around is NumPy's."""
    k, ends = pt.scalar("k", dtype=dtype), np.iinfo(dtype)
    plain = pytensor.function([X, k], parts(X, k), mode=Mode("py", None))
    in_jax = jaxify([X, k], parts(X, k), loops="xla")
    forms = jax.jit(in_jax), in_jax, jaxify([X, k], parts(X, k), backend="numba")
    starts = {-301, -300, -2, -1, 0, 5, 120, 298, 299, 300, 301} | {ends.min, ends.min + 1}
    starts |= {ends.max - n for n in range(4)}
    for start in sorted(at for at in starts if ends.min <= at <= ends.max):
        for x in (LONG, LONG[:3], LONG[:0]):
            start = np.asarray(start, dtype)
            expected = plain(x, start)
            for f in forms:
                np.testing.assert_array_equal(f(x, start), expected, err_msg=f"{start} {len(x)}")


CAST = {
    "floats": lambda f, k: (pt.cast(f, "int64"), pt.cast(f + 2.5, "int64")),
    "rounded to zero": lambda f, k: (pt.cast(f - 1, "int64"), pt.cast(f + 2, "int64")),
    "bytes": lambda f, k: (pt.cast(k, "int8"), pt.cast(k + 3, "int8")),
}


BOUNDS = {
    "floats": lambda f, k: (f, f + 2.5),
    "rounded to zero": lambda f, k: (f - 1, f + 2),
    "bytes": lambda f, k: (k, k + 3),
}


@pytest.mark.parametrize("name", CAST)
def test_a_cast_in_a_bound_is_no_shift(name):
    """The distance between two bounds is not known where they are cast after the sum."""
    f, k = pt.dscalar("f"), pt.lscalar("k")
    start, stop = CAST[name](f, k)
    in_jax = jaxify([X, f, k], X[start:stop].sum(), loops="xla")
    native = jaxify([X, f, k], X[start:stop].sum(), backend="numba")
    for numbers in ((0.7, 1), (0.2, 126), (0.4, 254)):
        ends = [np.asarray(end).astype(start.type.dtype) for end in BOUNDS[name](*numbers)]
        for form in (in_jax, jax.jit(in_jax), native):
            np.testing.assert_array_equal(form(LONG, *numbers), LONG[slice(*ends)].sum())


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8"])
def test_a_narrow_index_counts_from_the_end_of_a_long_axis(dtype):
    k, ks = pt.scalar("k", dtype=dtype), pt.vector("ks", dtype=dtype)
    outs = [X[k], X[ks], pt.set_subtensor(X[k], 0.0), pt.inc_subtensor(X[ks], 1.0), X[k % 7]]
    f = jax.jit(jaxify([X, k, ks], outs, loops="xla"))
    plain = pytensor.function([X, k, ks], outs, mode=Mode("py", None))
    for start in (-100, -1, 5, 120) if dtype != "uint8" else (5, 250):
        values = LONG, np.asarray(start, dtype), np.asarray([start, 3], dtype)
        for a, b in zip(f(*values), plain(*values), strict=True):
            np.testing.assert_array_equal(a, b)


REDUCED = {
    "sum": lambda x, m, k: x[k : k + 3].sum(),
    "mean": lambda x, m, k: x[k - 2 : k + 1].mean(),
    "variance": lambda x, m, k: x[k : k + 3].var(),
    "product": lambda x, m, k: x[k : k + 3].prod(),
    "of bools": lambda x, m, k: (x[k : k + 3] > 0).any(),
    "of integers": lambda x, m, k: pt.cast(x, "int64")[k : k + 2].sum(),
    "of a function with a number": lambda x, m, k: pt.exp(x[k : k + 3] * x[0]).sum(),
    "at an even start": lambda x, m, k: x[2 * k : 2 * k + 3].sum(),
    "longer than the array": lambda x, m, k: x[k : k + 9].sum(),
    "columns": lambda x, m, k: m[:, k : k + 2].sum(axis=1),
    "of one row": lambda x, m, k: m[1, k : k + 2].sum(),
    "of a transpose": lambda x, m, k: m.T[k : k + 2].sum(axis=0, keepdims=True),
    "in a loop": lambda x, m, k: pytensor.scan(
        lambda i, x: x[i : i + 3].sum(), pt.arange(4) + k, non_sequences=x, return_updates=False
    ),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", REDUCED)
def test_a_reduced_window_is_clipped(name):
    """At each end, from either end, and far out of 32 bits; its gradient too, and a batch of starts."""
    m, k = pt.dmatrix("m"), pt.lscalar("k")
    out = REDUCED[name](X, m, k)
    plain = pytensor.function([X, m, k], out, mode=Mode("py", None), on_unused_input="ignore")
    f = jax.jit(jaxify([X, m, k], out, loops="xla"))
    values = np.array([0.5, -1.0, 2.0, 3.0, 0.25]), np.arange(12.0).reshape(3, 4)
    starts = [*range(-9, 10), 2**40, -(2**40)]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # NumPy warns of the mean of nothing
        expected = [plain(*values, start) for start in starts]
    for start, result in zip(starts, expected, strict=True):
        np.testing.assert_allclose(f(*values, start), result, rtol=1e-12)
    if name == "in a loop":
        return
    batch = jax.vmap(f, in_axes=(None, None, 0))(*values, np.array(starts))
    np.testing.assert_allclose(batch, np.stack(expected), rtol=1e-12)
    if out.type.dtype == "float64":
        slope = jax.jit(jax.grad(jaxify([X, m, k], out.sum(), loops="xla"), (0, 1)))
        native = loopax.grad(jaxify([X, m, k], out.sum(), backend=NATIVE), (0, 1))
        for start in starts:
            for a, b in zip(slope(*values, start), native(*values, start), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12)


def test_pools_of_two_in_a_loop():
    sums = pytensor.scan(
        lambda i, x: x[2 * i : 2 * i + 2].sum(),
        pt.arange(100),
        non_sequences=X,
        return_updates=False,
    )
    f = jax.jit(jaxify([X], sums, loops="xla"))
    np.testing.assert_allclose(f(LONG[:200]), LONG[:200].reshape(100, 2).sum(axis=1))


OF_TWO = {
    "squares": lambda x, y, a, k: ((x[k : k + 3] - y[k : k + 3]) ** 2).sum(),
    "a product": lambda x, y, a, k: pt.dot(x[k : k + 3], y[k : k + 3]),
    "integers": lambda x, y, a, k: (a[k : k + 3] * a[::-1][k : k + 3]).sum(),
    "a product of integers": lambda x, y, a, k: pt.dot(a[k : k + 3], a[k : k + 3]),
    "shifted": lambda x, y, a, k: (x[k : k + 2] * x[k + 1 : k + 3]).sum(),
    "of three rows": lambda x, y, a, k: (x[k : k + 3] * y[:3]).sum(),
    "a product with three rows": lambda x, y, a, k: pt.dot(x[k : k + 3], y[:3]),
}


@pytest.mark.parametrize("name", OF_TWO)
def test_a_window_and_another_array(name):
    """Of equal lengths, at the ends too; NumPy refuses other lengths, and here the result is nan."""
    inputs = x, y, a, k = pt.dvector("x"), pt.dvector("y"), pt.lvector("a"), pt.lscalar("k")
    out = OF_TWO[name](x, y, a, k)
    plain = pytensor.function(inputs, out, mode=Mode("py", None), on_unused_input="ignore")
    f = jax.jit(jaxify(inputs, out, loops="xla"))
    values = AT, np.cos(AT), np.array([1, 2, -3, 4, 5])
    for start in range(-9, 10):
        try:
            expected = plain(*values, start)
        except ValueError:
            assert np.isnan(f(*values, start)), start
        else:
            np.testing.assert_allclose(f(*values, start), expected, rtol=1e-12)


def marked(part, shape):
    """``part`` as a corner of an array of ``shape`` without numbers."""
    whole = np.full(shape, np.nan)
    whole[tuple(slice(n) for n in part.shape)] = part
    return whole


WINDOWS = {
    "three rows": (lambda x, m, k: x[k : k + 3], (3,)),
    "longer than the array": (lambda x, m, k: x[k : k + 9], (9,)),
    "behind the index": (lambda x, m, k: x[2 * k - 1 : 2 * k + 1], (2,)),
    "columns": (lambda x, m, k: m[::-1, k : k + 2], (3, 2)),
    "along two axes": (lambda x, m, k: m[k : k + 2, k - 1 : k + 1], (2, 2)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_that_is_not_reduced_is_marked(name):
    """NumPy's rows come first, also where a negative start and a positive stop leave none."""
    part, shape = WINDOWS[name]
    out = part(X, M, K)
    f = jax.jit(jaxify([X, M, K], out, loops="xla"))
    slope = jax.jit(jax.grad(lambda *args: jnp.nansum(f(*args)), (0, 1)))
    values = AT, np.arange(12.0).reshape(3, 4)
    for start in [*range(-9, 10), 2**40, -(2**40)]:
        expected = part(*values, start)
        np.testing.assert_array_equal(f(*values, start), marked(expected, shape), str(start))
        for a, x in zip(slope(*values, start), values, strict=True):
            is_read = np.isin(x, expected) if x.ndim + out.ndim != 3 else np.zeros(x.shape)
            np.testing.assert_array_equal(a, is_read, str(start))


WRITTEN = {
    "a number": lambda x, m, v, k: pt.set_subtensor(x[k : k + 3], v[0]),
    "a number added": lambda x, m, v, k: pt.inc_subtensor(x[k : k + 3], v[0]),
    "one row": lambda x, m, v, k: pt.set_subtensor(m.T[k : k + 2], v),
    "in one row": lambda x, m, v, k: pt.inc_subtensor(m[1, k : k + 2], v[1]),
    "two windows": lambda x, m, v, k: pt.set_subtensor(m[k : k + 2, k - 1 : k + 1], v[0]),
    "beside indices": lambda x, m, v, k: pt.set_subtensor(m[[0, 2], k : k + 3], v[0]),
    "a row for each": lambda x, m, v, k: pt.set_subtensor(x[k : k + 3], v[:3]),
    "a column for each": lambda x, m, v, k: pt.inc_subtensor(m[:, k : k + 2], v[:2]),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_window_is_clipped(name):
    """One value for all of it is NumPy's write, with its derivatives; a value for each raises or is nan."""
    v = pt.dvector("v")
    out = WRITTEN[name](X, M, v, K)
    cost = (out**2 * pt.arange(out.shape[-1])).sum()
    inputs = [X, M, v, K]
    plain, slopes = (
        pytensor.function(inputs, of, mode=Mode("py", None), on_unused_input="ignore")
        for of in (out, pytensor.grad(cost, inputs[:3], disconnected_inputs="ignore"))
    )
    f = jaxify(inputs, out, loops="xla")
    traced, gradient = jax.jit(f), jax.jit(jax.grad(jaxify(inputs, cost, loops="xla"), (0, 1, 2)))
    values = AT, np.arange(12.0).reshape(3, 4), np.array([0.5, 3.0, -2.0])
    for start in [*range(-9, 8), 2**40, -(2**40)]:
        try:
            expected = plain(*values, start)
        except ValueError:
            with pytest.raises(ValueError, match="the lengths of two axes differ: "):
                f(*values, start)
            assert np.isnan(traced(*values, start)).any()
        else:
            np.testing.assert_array_equal(f(*values, start), expected)
            np.testing.assert_array_equal(traced(*values, start), expected)
            for a, b in zip(gradient(*values, start), slopes(*values, start), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_written_window_in_a_loop():
    """The last windows are shorter, in a step whose index is traced."""
    step = lambda i, x: pt.inc_subtensor(x[i : i + 3], 1.0)  # noqa: E731
    out = pytensor.scan(step, pt.arange(5), outputs_info=[X], return_updates=False)[-1]
    for options in ({"loops": "xla"}, {"loops": "native"}, {"backend": NATIVE}):
        np.testing.assert_array_equal(jaxify([X], out, **options)(AT), AT + [1, 2, 3, 3, 3])


def test_counts_are_not_negative():
    counts = pt.lvector("counts")
    for options in ({"loops": "xla"}, {"backend": NATIVE}):
        with pytest.raises(ValueError):
            jaxify([X, counts], pt.repeat(X, counts), **options)(AT, np.array([1, 1, -1, 1, 1]))


@pytest.mark.parametrize("kind", ["pytensor.scan", "loopax.scan"])
def test_more_steps_than_rows_are_not_counted(kind):
    """The result does not exist: nan at once, not after 2**40 steps."""
    if kind == "pytensor.scan":
        total = pytensor.scan(
            lambda a, s: s + a,
            sequences=[X],
            outputs_info=[pt.constant(np.float64(0))],
            n_steps=K,
            return_updates=False,
        )[-1]
    else:
        total = loopax.scan(lambda s, a: (s + a, None), 0.0, X[:K], length=K)[0]
    f = jax.jit(jaxify([X, K], total, loops="xla"))
    assert f(AT, 4) == 10.0
    for k in (6, 2**40, 2**62):
        assert np.isnan(f(AT, k))


def test_the_interval_of_an_index_is_computed_once_for_each_value():
    """Each of 60 values reads the one before twice: without a memo that were 2**60 intervals."""
    k = K % 50
    for _ in range(60):
        k = pt.minimum(k + k % 3, 60 + k)
    f = jaxify([X, K], X[k % 300], loops="xla")
    assert f(LONG, 7) == pytensor.function([X, K], X[k % 300], mode=Mode("py", None))(LONG, 7)
