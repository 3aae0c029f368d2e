"""Scalar ops as expressions: NumPy's arithmetic on every dtype, compiled."""

import re

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
import scipy.special
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.loop import ScalarLoop
from pytensor.scalar.math import Erf, Erfc, Log1mexp, Sigmoid, Softplus
from pytensor.tensor.elemwise import Elemwise

from loopax import hessian, jaxify
from loopax.ir import evaluate
from loopax.numba_backend.callable.program import compile_program
from loopax.numba_backend.rules import elementwise
from loopax.numerics.vector_functions import HAS_FUSED

UNARY = "reciprocal sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh"
UNARY += " cosh tanh arcsinh arccosh arctanh floor ceil trunc round_half_to_even"
UNARY += " round_half_away_from_zero neg sqr abs sign isnan isinf invert"
BINARY = (
    "true_div arctan2 add mul sub maximum minimum int_div mod and_ or_ xor lt le gt ge eq neq pow"
)
SPECIAL = (Sigmoid, Softplus, Log1mexp, Erf, Erfc)


def named(name):
    """The scalar op; a few have another name, or are instances without one."""
    for other in (name, f"scalar_{name}", f"{name}_", f"{name}inv"):
        if isinstance(getattr(ps.basic, other, None), ps.ScalarOp):
            return getattr(ps.basic, other)
    raise LookupError(name)


def numbers(dtype):
    """Two vectors: what is special about the dtype, and what it meets."""
    if dtype == "bool":
        return np.array([0, 1, 0, 1] * 2, bool), np.array([1, 1, 0, 0] * 2, bool)
    if dtype.startswith("float"):
        x = [0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, -800.0]
        return np.array(x, dtype), np.array([1.0, 0.0, -0.0, 2.0, np.nan, 2.0, -3.0, 0.5], dtype)
    info = np.iinfo(dtype)
    x = [0, 1, 2, 3, info.max, info.min, info.max - 1, info.min // 2]
    return np.array(x, dtype), np.array([3, 0, 2, 1, 1, -1 if info.min else 1, 2, 2], dtype)


def built(make, *inputs):
    """The output of an op, None where it does not take these dtypes, or gives one we have no use for."""
    try:
        out = make(*inputs)
    except (TypeError, NotImplementedError):
        return None
    return out if out.dtype not in ("float16", "complex64", "complex128") else None


def cases(d, others):
    x, y = pt.vector("x", dtype=d), {o: pt.vector(f"y_{o}", dtype=o) for o in others}
    ops = [*(named(n) for n in UNARY.split()), *(f(ps.upgrade_to_float) for f in SPECIAL)]
    outs = [built(Elemwise(op), x) for op in ops]
    for v in y.values():
        outs += [
            built(Elemwise(named(n)), x, v)
            for n in BINARY.split()
            if not (n == "pow" and not d.startswith("float"))
        ]
        outs += [built(pt.switch, x, v, x), built(pt.clip, x, v, x)]
        same = d.startswith("float") or v.dtype == d
        outs.append(None if same else x.astype(v.dtype))
    return [x, *y.values()], [out for out in outs if out is not None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "others"),
    [
        ("float64", ["float64"]),
        ("float32", ["float32", "int64", "float64"]),
        ("int64", ["int64", "uint64", "int8"]),
        ("uint64", ["uint64", "int64", "bool"]),
        ("int8", ["int8", "uint8", "float32"]),
        ("uint8", ["uint8", "int16", "float64"]),
        ("bool", ["bool", "int8", "float64"]),
    ],
)
def test_every_op(dtype, others):
    inputs, outputs = cases(dtype, others)
    given = [numbers(dtype)[0], *(numbers(o)[1] for o in others)]
    kept, expected = [], []
    for out in outputs:
        try:
            with np.errstate(all="ignore"):
                expected += evaluate(FunctionGraph(inputs, [out], clone=True), *given)
        except (OverflowError, TypeError):  # NumPy has no such loop, or Python no such number
            continue
        kept.append(out)
    assert len(kept) > 30
    # Many small programs: compile time grows faster than a program.
    for k in range(0, len(kept), 20):
        actual = compile_program(FunctionGraph(inputs, kept[k : k + 20], clone=True))(*given)
        for a, b, out in zip(actual, expected[k:], kept[k:], strict=False):
            rtol = 3e-6 if b.dtype == "float32" else 1e-13
            if dtype == "bool":  # NumPy computes some of them in float16
                rtol = 1e-3
            np.testing.assert_allclose(a, b, rtol=rtol, strict=True, err_msg=str(out.owner))


def test_the_least_integer_divided_by_minus_one():
    """The processor stops the process there; NumPy wraps. By zero is zero."""
    x, y = pt.lvector("x"), pt.lvector("y")
    run = compile_program(FunctionGraph([x, y], [x // y, x % y]))
    least = np.iinfo("int64").min
    quotient, rest = run(np.array([least, 7, -7]), np.array([-1, 0, 2]))
    assert quotient.tolist() == [least, 0, -4] and rest.tolist() == [0, 0, 1]


def test_powers_and_float32_that_stays():
    x = pt.fvector("x")
    outputs = [x**2, x**3.0, x**-2, pt.sqrt(x) + 1, pt.maximum(x, 2), pt.arctan(-abs(x))]
    run = compile_program(FunctionGraph([x], outputs))
    given = np.array([0.5, -2.0, 3.0], "float32")
    actual = run(given)
    for a, b in zip(actual[:3], (given**2, given**3, 1 / given**2), strict=True):
        assert a.dtype == "float32"
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert "**" not in run.source and "np.float64" not in run.source


def test_functions_in_loops_over_elements():
    """Vector functions there, of float32 in float64; the C library's in a step."""
    x, z = pt.vector("x"), pt.fvector("z")
    functions = [pt.sin, pt.cos, pt.erf, pt.erfc, pt.erfcx, pt.gammaln, pt.psi, pt.tri_gamma]
    functions += [pt.exp, lambda v: v**v]
    outputs = [sum(f(v) for f in functions) for v in (x, z)]
    outputs += [pt.sin(x[0]) + pt.erfc(x[1]) ** x[2] + pt.tri_gamma(x[3])]
    graph = FunctionGraph([x, z], outputs)
    given = np.array([0.3, 1.7, 2.5, 30.0]), np.array([0.3, 1.7, 2.5, 12.0], "float32")
    run = compile_program(graph)
    for a, b in zip(run(*given), evaluate(graph, *given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6 if b.dtype == "float32" else 1e-14, strict=True)
    names = {"sin", "cos", "power", "erf", "erfc", "erfcx"} if HAS_FUSED else set()
    for name in names | {"gammaln", "psi", "tri_gamma", "exp"}:
        assert f" {name}(t" in run.source
        of_singles = f" np.float32({name}(np.float64(t" in run.source
        assert of_singles == (name not in ("sin", "cos"))
    if HAS_FUSED:
        assert all(run.source.count(text) == 1 for text in ("math.erfc(", " ** "))


@pytest.mark.parametrize("is_uniform", [True, False])
def test_vector_code_in_a_branch_that_all_elements_take(is_uniform, monkeypatch):
    monkeypatch.setattr(elementwise, "_BRANCH", 1)
    x, s = pt.dvector("x"), pt.dscalar("s")
    condition = s > 0 if is_uniform else x > s
    out = pt.switch(condition, pt.erfinv(pt.erfinv(pt.tanh(x) / 2)), np.nan)
    run = jaxify([x, s], out, backend="numba")
    values = np.linspace(-1, 1, 9)
    for number in (1.0, -1.0):
        (wanted,) = evaluate(FunctionGraph([x, s], [out]), values, np.array(number))
        np.testing.assert_allclose(run(values, number), wanted, rtol=1e-13)
    if HAS_FUSED:
        assert run.source.count("erfinv(") == (2 if is_uniform else 0)
        assert re.search(r"^ +if ", run.source, re.M)  # one operand alone is computed


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_rewrites_to_functions_that_compare(dtype):
    """PyTensor makes softplus and log1mexp of complex numbers too, which have no order in Numba."""
    z = pt.vector("z", dtype=dtype)
    values = np.array([0.5 + 1j, -2 - 0.3j, -5 + 0.1j, 0.01 + 0.5j], dtype)
    actual = jaxify([z], [pt.log1p(pt.exp(z)), pt.log(1 - pt.exp(z))], backend="numba")(values)
    exact = values.astype("complex128")
    for x, right in zip(actual, [np.log1p(np.exp(exact)), np.log1p(-np.exp(exact))], strict=True):
        assert x.dtype == dtype
        np.testing.assert_allclose(x, right, rtol=1e-5 if dtype == "complex64" else 1e-12)


def test_a_second_derivative_of_psi_is_native():
    x = pt.dvector("x")
    f = jaxify([x], pt.psi(x).sum(), backend="numba", on_missing="raise")
    at = np.array([0.3, 2.0, 7.5])
    second = np.diag(hessian(f)(at))
    np.testing.assert_allclose(second, scipy.special.polygamma(2, at), rtol=1e-12)


def test_series_that_call_functions_of_equal_names():
    """Each function of a program counts the names of its globals from zero."""
    n, v = ps.float64("n"), pt.dvector("v")
    loops = [Elemwise(ScalarLoop([n], [f(n)], [])) for f in (ps.math.j1, ps.math.j0)]
    outs = [loop(3, v) for loop in loops] + [pt.j0(v)]
    run = jaxify([v], outs, backend="numba")
    assert run.source.count("def series") == 2
    values = np.linspace(0, 2, 5)
    for actual, f in zip(run(values), (scipy.special.j1, scipy.special.j0), strict=False):
        np.testing.assert_allclose(actual, f(f(f(values))), rtol=1e-13)
