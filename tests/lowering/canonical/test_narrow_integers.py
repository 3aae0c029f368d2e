"""Integers that wrap around in their own type, next to wider ones and floats: what PyTensor's ops compute.

PyTensor's rewrites, which hold for real numbers, must not change where a number wraps around, nor print the
traceback of a rewrite that does not apply.
"""

import warnings

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.tensor.signal import convolve1d

import loopax
from loopax import jaxify

PLAIN = Mode("py", None)


def scan(step, start, *sequences):
    def body(c, xs):
        return (new := step(*xs, c)), new

    return loopax.scan(body, pt.cast(start, "int64"), sequences)[1]


# Of vectors a and b, a number s and a matrix m of one dtype, and floats f.
PROGRAMS = {
    "sum of multiples": lambda a, b, s, m, f: (s * a).sum(),
    "sum of constant multiples": lambda a, b, s, m, f: (np.array(100, a.dtype) * a).sum(),
    "product of multiples": lambda a, b, s, m, f: (s * a).prod(),
    "sum of negatives": lambda a, b, s, m, f: (-a).sum(),
    "mean of multiples": lambda a, b, s, m, f: (a * s).mean(),
    "dot of multiples": lambda a, b, s, m, f: pt.dot(s * a, f),
    "dot of negatives": lambda a, b, s, m, f: pt.dot(-a, pt.cast(b, "int64")),
    "sums along an axis": lambda a, b, s, m, f: (a[:, None] * b[None, :]).sum(axis=0),
    "sum of squares": lambda a, b, s, m, f: (a**2).sum(),
    "root of a square": lambda a, b, s, m, f: pt.sqrt(pt.sqr(a)),
    "size of a product": lambda a, b, s, m, f: abs(a * b),
    "quotient of negatives": lambda a, b, s, m, f: (-a) / (1 - (-b)),
    "negative factors": lambda a, b, s, m, f: (-a) * b * s * f,
    "negative factors of one type": lambda a, b, s, m, f: (-a) * b * s,
    "less a negative": lambda a, b, s, m, f: f - (-a),
    "less a difference": lambda a, b, s, m, f: f - (a - b),
    "sums": lambda a, b, s, m, f: (a + b) + s + f,
    "greatest negative": lambda a, b, s, m, f: (-a).max() * f,
    "sign of a quotient": lambda a, b, s, m, f: pt.sign(a / (abs(b) + 1)) + pt.sign(3 / a),
    "test of a difference": lambda a, b, s, m, f: (a - b) > f,
    "test of a product": lambda a, b, s, m, f: (a * b) >= (a + b),
    "wider": lambda a, b, s, m, f: pt.cast(a * b, "int64") + pt.cast(-a, "int64").sum(),
    "dot": lambda a, b, s, m, f: pt.dot(a, b),
    "dot times a float": lambda a, b, s, m, f: pt.dot(a, b) * f,
    "dot of two types": lambda a, b, s, m, f: pt.dot(a, pt.cast(b, "int64")) * f,
    "matrix and vector": lambda a, b, s, m, f: pt.dot(m, a) * f,
    "matrices": lambda a, b, s, m, f: pt.dot(m, m.T),
    "outer": lambda a, b, s, m, f: pt.outer(a, b),
    "outer of negatives": lambda a, b, s, m, f: pt.outer(-a, f),
    "products of batches": lambda a, b, s, m, f: pt.matmul(-m[None, :, :1], f[:1, None]),
    "convolution": lambda a, b, s, m, f: convolve1d(a, b, mode="full"),
    "valid convolution": lambda a, b, s, m, f: convolve1d(a[:2], b, mode="valid"),
    "sum in its type": lambda a, b, s, m, f: m.sum(dtype=m.dtype, acc_dtype=m.dtype) * f,
    "loop": lambda a, b, s, m, f: scan(lambda x, y, c: -(x * y) + c, f[0], a, b),
    "loop of dots": lambda a, b, s, m, f: scan(lambda x, c: pt.dot(x, a) + c, f[0], m),
}
N = 5


def values(dtype, shapes):
    rng = np.random.default_rng(7)
    ends = np.iinfo(dtype)
    for low, high in ((ends.min, ends.max), (1, 12), (ends.max - 2, ends.max)):
        drawn = [rng.integers(low, high, n, endpoint=True, dtype=dtype) for n in shapes]
        yield [*map(np.asarray, drawn), rng.normal(size=N).round(3)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("options", [{"backend": "numba"}, {"loops": "xla"}], ids=str)
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32"])
def test_wraps_around_where_pytensor_does(dtype, static, options, caplog):
    n = N if static else None
    shapes = [(n,), (n,), (), (n, n)]
    inputs = [pt.tensor(name, dtype=dtype, shape=s) for name, s in zip("absm", shapes, strict=True)]
    inputs.append(pt.tensor("f", dtype="float64", shape=(n,)))
    outs = [build(*inputs) for build in PROGRAMS.values()]
    plain = pytensor.function(inputs, outs, mode=PLAIN, on_unused_input="ignore")
    caplog.clear()
    f = jaxify(inputs, outs, **options)
    for numbers in values(dtype, [[N for _ in s] for s in shapes]):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = plain(*numbers)
        for name, v, a, b in zip(PROGRAMS, outs, f(*numbers), expected, strict=True):
            assert np.asarray(a).dtype == v.dtype, name
            b = np.asarray(b).astype(v.dtype)
            is_float = v.dtype.startswith("float")
            rtol = 4 * np.finfo(v.dtype).eps if is_float else 0
            known = np.isfinite(b) if is_float else np.ones(b.shape, bool)
            scale = np.abs(b[known]).max(initial=0) if is_float else 0
            np.testing.assert_allclose(
                np.asarray(a)[known], b[known], rtol=rtol, atol=4 * rtol * scale, err_msg=name
            )
    assert "Rewrite failure" not in caplog.text


@pytest.mark.parametrize("options", [{"backend": "numba"}, {"loops": "xla"}], ids=str)
@pytest.mark.parametrize("name", ["outer of negatives", "dot of negatives", "sum of negatives"])
def test_rows_of_a_batch_wrap_around_as_one_does(name, options):
    shapes = {"a": (None,), "b": (None,), "s": (), "m": (None, None)}
    inputs = [pt.tensor(n, dtype="uint32", shape=shape) for n, shape in shapes.items()]
    inputs.append(pt.dvector("f"))
    out = PROGRAMS[name](*inputs)
    f = jaxify(inputs, out, **options)
    rows = list(values("uint32", [(N,), (N,), (), (N, N)]))
    vmap = loopax.vmap if "backend" in options else jax.vmap
    batch = vmap(f)(*map(np.stack, zip(*rows, strict=True)))
    plain = pytensor.function(inputs, out, mode=PLAIN, on_unused_input="ignore")
    np.testing.assert_allclose(batch, [plain(*row) for row in rows], rtol=1e-12)
