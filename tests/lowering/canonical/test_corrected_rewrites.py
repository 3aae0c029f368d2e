"""PyTensor's rewrites on every dtype: none fails, which would print a traceback."""

import itertools

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytensor.tensor.math as of_math
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise

import loopax
from loopax import jaxify
from loopax.lowering.canonical.stabilize import stabilize
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE

DTYPES = ("bool", "int8", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES += ("float16", "float32", "float64", "complex64", "complex128")
OPS = [op for _, op in sorted(vars(of_math).items()) if isinstance(op, Elemwise)]


def of_dtypes(*dtypes):
    """What all elementwise operations of PyTensor give for operands of ``dtypes``, and its negation."""
    operands = [pt.vector(dtype=dtype) for dtype in dtypes]
    results = []
    for op in OPS:
        if op.scalar_op.nin not in (len(operands), -1):
            continue
        try:
            result = op(*operands)
            results += result if isinstance(result, list) else [result]
            results.append(-results[-1])
        except (TypeError, NotImplementedError):  # not defined on this dtype
            continue
    return operands, results


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_rewrite_fails(dtype):
    pairs = [(dtype,), (dtype, dtype), (dtype, "float64"), ("float32", dtype)]
    for operands, results in itertools.starmap(of_dtypes, pairs):
        assert len(results) > 20
        graph = FunctionGraph(operands, results, clone=True)
        with pytensor.config.change_flags(on_opt_error="raise"):
            stabilize(graph)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}, {"loops": "native"}])
@pytest.mark.parametrize("dtype", ["uint8", "uint64"])
def test_minus_an_unsigned_integer(dtype, options, capfd):
    x = pt.vector("x", dtype=dtype)
    at = np.array([0, 1, 200], dtype=dtype)
    results = jaxify(
        [x], [-x, pt.neg(-x), -(at.dtype.type(3) * x), at.dtype.type(0) - x], **options
    )(at)
    for result, expected in zip(results, [-at, at, -(3 * at), -at], strict=True):
        np.testing.assert_array_equal(result, expected, strict=True)
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}])
@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int8"])
def test_minus_a_maximum(dtype, options):
    """PyTensor's `local_max_to_min` takes the minimum, which is another number where 0 stays 0."""
    x = pt.matrix("x", dtype=dtype)
    at = np.array([[0, 1, 100], [7, 3, 5]], dtype=dtype)
    results = jaxify([x], [-pt.max(-x), -pt.max(-x, axis=0), pt.min(x)], **options)(at)
    expected_results = [-np.max(-at, keepdims=True), -np.max(-at, axis=0), at.min()]
    for result, expected in zip(results, expected_results, strict=True):
        np.testing.assert_array_equal(result, np.squeeze(expected))


@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}])
def test_the_least_of_signed_integers(options):
    """PyTensor has ``-max(-x)`` for it, which wraps around without the rewrite."""
    x = pt.vector("x", dtype="int8")
    assert jaxify([x], pt.min(x), **options)(np.array([-128, 5, -3], "int8")) == -128


def test_halves():
    x = pt.vector("x", dtype="float16")
    at = np.array([2, -4], dtype="float16")
    for result in jaxify([x], [-pt.reciprocal(x), 1 / -x])(at):
        np.testing.assert_array_equal(result, -1 / at)


@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}])
def test_a_quotient_by_one_is_rounded_down(options):
    """PyTensor's `local_div_by_one` takes it for the dividend, in every mode."""
    x, i = pt.dvector("x"), pt.lvector("i")
    outputs = [x // 1.0, pt.divmod(x, np.ones(3))[0], x / 1.0, i // 1]
    values = np.array([-0.9, 0.4, 2.5]), np.array([-2, 0, 3])
    actual = jaxify([x, i], outputs, **options)(*values)
    for value, expected in zip(actual, ([-1, 0, 2], [-1, 0, 2], *values), strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}])
def test_a_sum_that_is_read_twice_has_one_rounding_error(options):
    """``1 + x / root`` is 1e-12, and its slope by ``x`` the difference of two numbers of 1e6."""
    x = pt.dscalar("x")
    share = x / pt.sqrt(3 + x**2)
    log_density = 2.2 * pt.log1p(share) + 1.8 * pt.log1p(-share)
    slope = loopax.grad(jaxify([x], log_density, **options))
    np.testing.assert_allclose(slope(-1e6), 4.4e-6, rtol=1e-2)


@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8"])
def test_sums_of_whole_exponents_do_not_overflow(dtype, options):
    x, k = pt.vector("x"), pt.vector("k", dtype=dtype)
    power = x**k
    results = [power * power * x ** k[::-1] * power, x**100 * x**100, power / x**100, x / pt.exp(k)]
    at = np.array([1.1, 0.9]), np.array([1, 0] if dtype == "bool" else [80, 70], dtype)
    expected = pytensor.function([x, k], results, mode=FAST_COMPILE)(*at)
    results = jaxify([x, k], results, **options)(*at)
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, right, 1e-6)


@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}])
def test_an_element_of_a_sum_in_a_small_dtype(options):
    x = pt.matrix("x", dtype="int8")
    at = np.array([[100, 100, 3], [1, 2, 3]], dtype="int8")
    sums = pt.sum(x, axis=1, acc_dtype="int8"), pt.sum(x, axis=1), pt.prod(x, axis=0, dtype="int32")
    in_small_dtype = pt.sum(x, axis=1, dtype="int8")
    actual = jaxify([x], [*(v[0] for v in sums), in_small_dtype.sum()], **options)(at)
    for value, expected in zip(actual, (-53, 203, np.int32(100), -47), strict=True):
        np.testing.assert_array_equal(value, expected)
    assert actual[2].dtype == np.int32


@pytest.mark.parametrize("options", [{"loops": "xla", "jit": False}, {"backend": NATIVE}])
def test_distinct_elements_of_what_is_repeated(options):
    x, counts, n = pt.dvector("x"), pt.lvector("counts"), pt.lscalar("n")
    zeros = pt.arange(n) * 0
    outputs = [pt.unique(pt.repeat(x, counts)), pt.unique(pt.alloc(x[0], n)), pt.unique(zeros)]
    values = np.array([3.0, 1.0, 2.0, -1.0]), np.array([0, 2, 1, 0])
    for n_copies, one in ((0, []), (2, [3.0])):
        actual = jaxify([x, counts, n], outputs, **options)(*values, np.int64(n_copies))
        for value, expected in zip(actual, ([1.0, 2.0], one, np.zeros(len(one))), strict=True):
            np.testing.assert_array_equal(value, expected)
