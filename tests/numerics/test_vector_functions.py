"""Vector functions: against mpmath over their domains, NumPy and SciPy at the ends, as vector code."""

import math
from functools import cache

import mpmath
import numpy as np
import pytest
import scipy.special
from llvmlite.binding import get_host_cpu_features
from numba import njit

from loopax.numerics.vector_functions import FUNCTIONS, HAS_FUSED

RNG = np.random.default_rng(20)
N = 300
WHOLE_LINE = RNG.normal(size=N) * np.exp(RNG.uniform(-30, 5, size=N))
SIZES = np.exp(RNG.uniform(-700, 700, N))
TINY = 1e-6 * RNG.normal(size=50)
ANGLES = [
    *RNG.uniform(-10, 10, N),
    *WHOLE_LINE,
    *SIZES,
    *-np.exp(RNG.uniform(15, 40, N)),
    *np.pi * np.arange(1, 30) / 2,
    *[2.0**24, np.nextafter(2.0**24, 0), 2.0**53, 1e22, 1.7e308],
]
UP = [*RNG.uniform(0, 4, 2 * N), *RNG.uniform(4, 20, N), *SIZES, *1 + TINY, *2 + TINY, *3 + TINY]

EXACT = {
    "exp": mpmath.exp,
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log1p": mpmath.log1p,
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "log1mexp": lambda x: mpmath.log1p(-mpmath.exp(x)),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "power": mpmath.power,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "erfinv": mpmath.erfinv,
    "gammaln": lambda x: mpmath.loggamma(x).real,
    "psi": mpmath.digamma,
    "tri_gamma": lambda x: mpmath.psi(1, x),
}
POINTS = {
    "exp": [*RNG.uniform(-708, 709.7, N), *WHOLE_LINE],
    "expm1": [*RNG.uniform(-50, 709.7, N), *WHOLE_LINE],
    "log": [*np.exp(RNG.uniform(-744, 709, N)), *1 + 1e-3 * RNG.normal(size=N)],
    "log1p": [*SIZES, *np.exp(RNG.uniform(-36, 0, N)) - 1, *1e-5 * WHOLE_LINE],
    "tanh": [*RNG.uniform(-25, 25, N), *WHOLE_LINE],
    "sigmoid": [*RNG.uniform(-700, 40, N), *WHOLE_LINE],
    "softplus": [*RNG.uniform(-700, 40, N), *WHOLE_LINE],
    "log1mexp": [*-np.exp(RNG.uniform(-30, 6, N)), -math.log(2)],
    "sin": ANGLES,
    "cos": ANGLES,
    "erf": [*RNG.uniform(-6.5, 6.5, 2 * N), *WHOLE_LINE, *1 / SIZES],
    "erfc": [*RNG.uniform(-6, 26.5, 2 * N), *RNG.uniform(0, 2, N), *WHOLE_LINE[WHOLE_LINE < 26]],
    "erfcx": [*RNG.uniform(-26, 30, 2 * N), *RNG.uniform(0, 2, N), *np.exp(RNG.uniform(-30, 9, N))],
    "erfinv": [*RNG.uniform(-1, 1, 2 * N), *1 - np.exp(RNG.uniform(-36, 0, N)), *TINY[TINY != 0]],
    "gammaln": UP,
    "psi": [*UP, *1.4616321449683622 + TINY],
    "tri_gamma": [x for x in UP if 1e-150 < x],
}
BASES = np.array([*RNG.uniform(0.5, 2, N), *SIZES, *np.exp(RNG.uniform(-1, 1, N)), *1 + TINY])
NEGATIVE = -np.exp(RNG.uniform(-5, 5, 50))
TWO = {  # arguments, of results from 1e-300 to 1e300
    "power": (
        np.array([*BASES, *NEGATIVE]),
        np.array(
            [
                *690 * RNG.uniform(-1, 1, BASES.size) / np.abs(np.log(BASES)),
                *np.rint(RNG.uniform(-99, 99, NEGATIVE.size)),
            ]
        ),
    )
}
ULPS = {  # 3 of the others
    "erfinv": 4.0,
    **dict.fromkeys(["exp", "log"], 1.0),
    **dict.fromkeys(["expm1", "log1p", "softplus", "sin", "cos", "power", "erf"], 2.0),
}
ENDS = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, -2.0, 1e308, -1e308, 5e-324, -5e-324]
    + [1e-310, 2.2e-308, 709.78, 709.79, 710.0, -708.5, -740.0, -745.1, -745.2, -746.0, 1e-17, 33.3]
    + [0.5, -0.5, 2.5, -3.0, 2.0**52 + 1, 2.0**53 + 2, -(2.0**52) - 1, -(2.0**51) - 0.5]
)
# NumPy's or SciPy's, or what PyTensor computes in the place of a function that they do not have.
AT_ENDS = {
    **{name: getattr(np, name) for name in ("exp", "expm1", "log", "log1p", "tanh", "sin", "cos")},
    **{name: getattr(scipy.special, name) for name in ("erf", "erfc", "erfcx", "psi")},
    "erfinv": lambda x: np.where(x == 0, x, scipy.special.erfinv(x)),  # SciPy's has no -0.0
    "power": np.power,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "log1mexp": lambda x: np.where(
        x < -math.log(2), np.log1p(-np.exp(x)), np.log(-np.expm1(np.minimum(x, 1.0)))
    ),
    # SciPy has an infinity for denormal numbers.
    "gammaln": lambda x: np.where(np.abs(x) < 1e-300, -np.log(np.abs(x)), scipy.special.gammaln(x)),
    # SciPy counts up from a number below 0, step by step.
    "tri_gamma": lambda x: np.where(
        x < -1e4,
        np.where(np.rint(x) == x, np.inf, np.pi**2),
        scipy.special.polygamma(1, np.where(x < -1e4, 1.0, x)),
    ),
}


# What is in which unit of the last place, and what is a vector, is what LLVM makes of it for users.
pytestmark = pytest.mark.usefixtures("as_users_have_it")


@cache
def of_each(name):
    function = FUNCTIONS[name]

    @njit(error_model="numpy")
    def run(x, y):
        for i in range(x.shape[0]):
            y[i] = function(x[i])

    @njit(error_model="numpy")
    def run_two(x, w, y):
        for i in range(x.shape[0]):
            y[i] = function(x[i], w[i])

    return run_two if name in TWO else run


def values(name, *arguments):
    y = np.empty_like(arguments[0])
    of_each(name)(*arguments, y)
    return y


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_units_in_the_last_place(name):
    arguments = TWO[name] if name in TWO else (np.array(POINTS[name]),)
    actual = values(name, *arguments)
    for *at, y in zip(*map(np.ndarray.tolist, arguments), actual.tolist(), strict=True):
        with mpmath.workdps(350 if name in ("sin", "cos") and abs(at[0]) > 1e9 else 30):
            exact = EXACT[name](*map(mpmath.mpf, at))
        off = abs(mpmath.mpf(y) - exact) / math.ulp(float(exact))
        assert off <= ULPS.get(name, 3.0), (at, y, float(exact))


@pytest.mark.sampled(17)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_ends(name):
    arguments = (ENDS,) if name not in TWO else tuple(map(np.ravel, np.meshgrid(ENDS, ENDS)))
    with np.errstate(all="ignore"):
        expected = AT_ENDS[name](*arguments)
    actual = values(name, *arguments)
    np.testing.assert_allclose(actual, expected, rtol=2e-15, atol=5e-324)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("name", ["gammaln", "psi", "tri_gamma"])
def test_below_zero_the_error_is_that_of_what_is_subtracted(name):
    x = np.array([*RNG.uniform(-20, 0, 100), *-np.exp(RNG.uniform(-300, 5, 50))])
    for at, y in zip(x.tolist(), values(name, x).tolist(), strict=True):
        exact = EXACT[name](mpmath.mpf(at))
        least = abs(EXACT[name](1 - mpmath.mpf(at))) + 1
        assert abs(y - exact) <= 1e-15 * max(abs(exact), least), (at, y, float(exact))


def test_sines_of_what_is_next_to_a_multiple_of_pi():
    """The nearest of all float64: cos(x) is 5e-19, and right to 2^-98."""
    x = 6381956970095103 * 2.0**797
    with mpmath.workdps(350):
        exact = mpmath.cos(mpmath.mpf(x))
    assert abs(values("cos", np.array([x]))[0] - exact) < 2.0**-98 < 1e-10 * abs(exact)


@pytest.mark.sampled(16)
@pytest.mark.skipif(
    not (get_host_cpu_features().get("avx2") and HAS_FUSED),
    reason="of two numbers at once LLVM makes no use for all",
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_are_vector_code(name):
    if name in ("sin", "cos") and not get_host_cpu_features().get("avx512f"):
        # One element after another takes a third of the time of libm's there too.
        pytest.skip(
            "LLVM finds reading digits for some of a vector's elements too dear with 256 bits"
        )
    values(name, *[np.ones(3)] * (2 if name in TWO else 1))
    code = of_each(name).inspect_llvm(of_each(name).signatures[0])
    assert any(f"fmul contract <{n} x double>" in code for n in (2, 4, 8, 16))


@pytest.mark.parametrize(
    ("name", "points", "expected"),
    [
        ("exp", [0.0], 1.0),
        ("cos", [0.0, -0.0, 1e-300, 1e-9], 1.0),
        ("sigmoid", [0.0], 0.5),
        ("log", [1.0], 0.0),
        ("erfc", [0.0], 1.0),
        ("erfcx", [0.0], 1.0),
        ("gammaln", [1.0, 2.0], 0.0),
    ],
)
def test_simple_values_are_exact(name, points, expected):
    """A program may convert them to integers."""
    assert set(values(name, np.array(points)).tolist()) == {expected}
