"""Small integers that are added up: NumPy's values, in the dtypes that PyTensor declares."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify
from tests.numba_backend.interpreted import interpreted, lowered
from tests.support.compare import FAST_COMPILE

x, b, i = pt.dvector("x"), pt.vector("b", dtype="bool"), pt.vector("i", dtype="int8")
u, M = pt.vector("u", dtype="uint8"), pt.matrix("M", dtype="int16")
INPUTS = [x, b, i, u, M]
VALUES = [
    np.array([1.0, -1.0, 2.0]),
    np.array([False, True, True]),
    np.array([100, 100, 3], "int8"),
    np.array([200, 100, 3], "uint8"),
    np.array([[30000, 10000, 1], [-30000, -30000, 2]], "int16"),
]


def cumulated():
    for v in (b, i, u):
        yield from (pt.cumsum(v), pt.cumprod(v), pt.cumsum(v) - 1, pt.cumprod(v) * 1.5)
        yield from (pt.cumsum(v)[1:], pt.cumsum(v)[::-1][[0, 1]], pt.cumsum(pt.cumsum(v)))
        yield from (pt.cumsum(v).reshape((1, -1)), pt.cumsum(v)[None, :], pt.sort(pt.cumsum(v)))
        yield from (
            pt.cumsum(v).max(),
            pt.cumsum(v).sum(),
            pt.cumsum(v).mean(),
            pt.eq(pt.cumsum(v), 2),
        )
        yield from (pt.cumsum(v).astype("int64"), pt.switch(pt.cumsum(v), x, -x))
    yield from (pt.cumsum(M, axis=0), pt.cumsum(M, axis=1), pt.cumprod(M, axis=1) + 1, pt.cumsum(M))
    yield from (~pt.cumsum(b), x[pt.cumsum(x > 0) - 1], pt.set_subtensor(i[1:], pt.cumsum(i)[1:]))


def reduced():
    for v in (b, i, u, M):
        yield from (v.sum(), v.prod(), v.mean(), v.max(), v.min(), v.sum(axis=0), v.sum(axis=()))
        yield from (v.prod(dtype="float32"), pt.argmax(v), pt.argsort(v, axis=-1))
    yield from (i.var(), u.std(), i.sum(dtype="int8"), u.sum(acc_dtype="int64", dtype="int16"))
    yield from (b.all(), b.any(), pt.dot(M, M.T), pt.sqr(i), pt.diff(i))


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [cumulated, reduced])
def test_values_and_dtypes_are_those_of_numpy(outputs):
    outputs = list(outputs())
    expected = pytensor.function(INPUTS, outputs, mode=FAST_COMPILE, on_unused_input="ignore")(
        *VALUES
    )
    for run in (jaxify(INPUTS, outputs), interpreted(lowered(INPUTS, outputs))):
        for k, (a, e) in enumerate(zip(run(*VALUES), expected, strict=True)):
            # It gives the int64 of NumPy where it declares an int8.
            e = e.astype(outputs[k].type.dtype)
            np.testing.assert_allclose(
                np.asarray(a), e, rtol=1e-6, strict=True, err_msg=f"{k}: {outputs[k].owner}"
            )


def test_in_native_code():
    f = jaxify([x, b], [pt.cumsum(b) * 1, x[pt.cumsum(x > 0) - 1]], backend="numba")
    counts, chosen = f(*VALUES[:2])
    np.testing.assert_array_equal(counts, np.array([0, 1, 2], "int8"), strict=True)
    np.testing.assert_array_equal(chosen, np.array([1.0, 1.0, -1.0]), strict=True)


def test_concatenation_and_floats():
    outputs = [pt.concatenate([pt.cumsum(b), i]), pt.concatenate([pt.cumsum(b), x])]
    whole, floats = jaxify([x, b, i], outputs)(*VALUES[:3])
    np.testing.assert_array_equal(
        np.asarray(whole), np.array([0, 1, 2, 100, 100, 3], "int8"), strict=True
    )
    np.testing.assert_array_equal(np.asarray(floats), [0.0, 1.0, 2.0, 1.0, -1.0, 2.0])


def test_bodies_and_updates_keep_their_types():
    total = pytensor.shared(np.zeros(3, "int8"), name="total")
    (count, _), rows = loopax.scan(
        lambda c, row: ((c[0] + pt.cumsum(row > 0)[-1], pt.cumsum(c[1])), pt.cumsum(row > 0) - 1),
        (np.int64(0), b),
        pt.stack([x, -x]),
    )
    f = jaxify([x, b], [count, rows, pt.cumsum(total)], updates={total: pt.cumsum(total + 1)})
    context, (count, rows, _) = jax.jit(f.apply)(f.init_context(), *VALUES[:2])
    assert (int(count), rows.dtype) == (3, "int8")
    np.testing.assert_array_equal(rows, [[0, 0, 1], [-1, 0, 0]])
    np.testing.assert_array_equal(
        np.asarray(context["total"]), np.array([1, 2, 3], "int8"), strict=True
    )
