"""PyTensor's rewrites that are wrong at NaN, for casts that wrap around, and for empty axes."""

import itertools
import operator
import warnings

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

import loopax
from loopax import jaxify
from loopax.ir import evaluate
from loopax.lowering.canonical.stabilize import stabilize
from tests.support.both_backends import NATIVE

X, MU = pt.dvector("x"), pt.dscalar("mu")
WITH_NAN = np.array([1.0, np.nan, 2.0])
FORMS = [{"loops": "xla"}, {"backend": NATIVE}, {"loops": "native"}]


@pytest.mark.parametrize("options", FORMS)
def test_nan_is_not_equal_to_itself(options):
    outputs = [pt.eq(X, X), pt.neq(X, X), X <= X, X >= X, pt.neq(2 * X, X * 2)]
    expected = [x if k in (0, 2, 3) else ~x for k, x in enumerate([WITH_NAN == WITH_NAN] * 5)]
    assert [x.tolist() for x in jaxify([X], outputs, **options)(WITH_NAN)] == [
        x.tolist() for x in expected
    ]


@pytest.mark.parametrize("options", FORMS)
def test_missing_observations_in_a_step(options):
    def step(total, x):
        return total + pt.switch(pt.eq(x, x), (x - MU) ** 2, 0.0), None

    f = jaxify([X, MU], loopax.scan(step, 0.0, X)[0], **options)
    gradient = jax.grad if "loops" in options else loopax.grad
    assert f(WITH_NAN, 0.5) == 2.5
    assert gradient(f, 1)(WITH_NAN, 0.5) == -4.0
    is_known = loopax.filter(lambda x: pt.eq(x, x), X)
    assert jaxify([X], is_known.sum(), **options)(WITH_NAN) == 3.0


@pytest.mark.parametrize("options", FORMS)
def test_a_loop_until_its_state_is_nan(options):
    def go_on(carry):
        return pt.eq(carry[0], carry[0]) & (carry[1] < 5)

    steps = loopax.while_loop(go_on, lambda c: (c[0] * np.nan, c[1] + 1), (MU, 0))[1]
    assert jaxify([MU], steps, **options)(1.0) == 1


@pytest.mark.parametrize("options", FORMS)
def test_the_absolute_value_of_a_cast_that_wraps_around(options):
    i, u = pt.lvector("i"), pt.vector("u", dtype="uint8")
    outputs = [
        abs(pt.maximum(i, 0).astype("int32")),
        abs(u.astype("int8")),
        abs(u.astype("int16")),
        pt.sqrt(pt.sqr(u.astype("int8").astype("float64"))),
        abs(u.astype("int8")[::-1]),
    ]
    args = np.array([3, 3_000_000_000]), np.array([200, 100], "uint8")
    expected = [3, 1294967296], [56, 100], [200, 100], [56.0, 100.0], [100, 56]
    for x, y in zip(jaxify([i, u], outputs, **options)(*args), expected, strict=True):
        assert x.tolist() == y


@pytest.mark.parametrize("options", FORMS)
def test_reductions_of_no_copies(options):
    flag, s, n = pt.scalar("flag", dtype="bool"), pt.dscalar("s"), pt.lscalar("n")
    flags, copies = pt.full((n,), flag), pt.full((n,), s)
    outputs = [pt.any(flags), pt.all(flags), copies.sum(), copies.prod()]
    f = jaxify([flag, s, n], outputs, **options)
    assert [x.item() for x in f(True, np.nan, 0)] == [False, True, 0.0, 1.0]
    assert [x.item() for x in f(False, 2.0, 3)] == [False, False, 6.0, 8.0]
    assert jaxify([n], pt.full((n,), np.nan).sum(), **options)(0) == 0
    with pytest.raises(ValueError, match="zero-size array"):
        jaxify([s, n], copies.max(), **options)(1.0, 0)


@pytest.mark.parametrize("options", FORMS)
def test_the_sign_of_a_reciprocal(options):
    at = np.array([0.0, np.inf, -np.inf, -2.0])
    assert jaxify([X], pt.sign(1 / X), **options)(at).tolist() == [1.0, 0.0, 0.0, -1.0]


@pytest.mark.parametrize("options", FORMS)
def test_inverses_outside_of_their_domains(options, capfd):
    outputs = [pt.arccosh(pt.cosh(X)), pt.cosh(pt.arccosh(X)), pt.tanh(pt.arctanh(X))]
    outputs += [pt.sign(pt.maximum(X, 2.0)), pt.arctanh(pt.tanh(X)), X**np.inf]
    at = np.array([-0.5, 2.0, np.nan])
    with np.errstate(invalid="ignore"):
        expected = [
            *(np.abs(at), np.cosh(np.arccosh(at)), np.tanh(np.arctanh(at))),
            *([1.0, 1.0, np.nan], at, at**np.inf),
        ]
    for x, y in zip(jaxify([X], outputs, **options)(at), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
    assert "Traceback" not in "".join(capfd.readouterr())


UNARY = (
    "abs neg sqrt sqr exp log log1p expm1 sigmoid softplus sin cos tanh arcsin arccosh sign floor "
)
UNARY += "ceil round reciprocal exp2 log2 erf erfc cosh sinh arctan arctanh trunc log10"
BINARY = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "mod", "pow")},
    **{name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "and_", "or_", "xor")},
    **{name: getattr(pt, name) for name in ("eq", "neq", "maximum", "minimum", "arctan2")},
}
# PyTensor's canonizers take these for 0 and 1 at NaN and infinity, too (docs/pytensor_differences.md).
OF_ITSELF = ("eq", "neq", "lt", "le", "gt", "ge", "maximum", "minimum", "arctan2", "and_", "xor")
FLOATS = [np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 0.5, 2.0, -3.7, 0.3, 1e3, -40.0]
INTEGERS = [0, 1, 2, 3, 7, 100, 127, 200, 255, -1, -2, -100, -128]


def functions(dtype):
    """Elementwise functions of one variable, by name; the constants have its dtype."""
    constants = [1, -1, 2] + ([0.5] if dtype == "float64" else [])
    result = {name: getattr(pt, name) for name in UNARY.split()}
    result |= {
        f"cast to {t}": lambda x, t=t: x.astype(t) for t in ("int8", "int32", "uint8", "bool")
    }
    for name, f in BINARY.items():
        if name in OF_ITSELF:
            result[f"{name}(x, x)"] = lambda x, f=f: f(x, x)
        for c in constants:
            value = pt.constant(np.asarray(c).astype(dtype))
            result[f"{name}(x, {c})"] = lambda x, f=f, c=value: f(x, c)
            result[f"{name}({c}, x)"] = lambda x, f=f, c=value: f(c, x)
    return result


def alike(before, after):
    """Whether a rewritten program has the values of the one as it was written, up to overflows."""
    if before.dtype.kind != "f":
        return before.dtype == after.dtype and np.array_equal(before, after)
    near = np.isclose(before, after, rtol=1e-3, atol=1e-9, equal_nan=True)
    stable = np.isinf(before) & np.isfinite(after)
    return bool((near | stable).all())


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint8"])
def test_rewrites_change_no_value(dtype):
    """Functions of functions, at special values, before and after PyTensor's rewrites."""
    x = pt.vector("x", dtype=dtype)
    at = np.array(FLOATS if dtype == "float64" else INTEGERS).astype(dtype)
    parts = functions(dtype)
    pairs = np.random.default_rng(0).permutation([[*p] for p in itertools.product(parts, parts)])
    programs = [(name, f(x)) for name, f in parts.items() if is_defined(f, x)]
    for outer, inner in pairs[:400]:
        if is_defined(parts[inner], x) and is_defined(parts[outer], parts[inner](x)):
            programs.append((f"{outer} of {inner}", parts[outer](parts[inner](x))))
    assert len(programs) > 200
    differing = {}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, out in programs:
            as_written, rewritten = (FunctionGraph([x], [out], clone=True) for _ in range(2))
            try:
                (before,) = evaluate(as_written, at)
            except (
                OverflowError,
                ValueError,
                ZeroDivisionError,
            ):  # Python's numbers do not wrap around
                continue
            stabilize(rewritten)
            (after,) = evaluate(rewritten, at)
            if not alike(before, after):
                differing[name] = before.tolist(), after.tolist()
    assert differing == {}


def is_defined(f, x):
    try:
        return hasattr(f(x), "type")
    except (TypeError, NotImplementedError):
        return False
