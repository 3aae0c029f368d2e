"""Functions of numbers at special ones: huge, tiny, infinite, NaN, and where a function has a kink.

The gradient and products with the Jacobian and the Hessian: native code in a loop against JAX's operations.
"""

import itertools

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.elemwise import Elemwise

import loopax
from tests.every_op.families import scalars
from tests.jax_backend.interpreted import evaluate
from tests.support.compare import primitives
from tests.support.marking import slow_where

NUMBERS = (
    *(-np.inf, -1e200, -1e8, -800.0, -3.0, -2.0, -1.5, -1.0, -0.5, -1e-9, -0.0, 0.0, 1e-200),
    *(1e-9, 0.5, 1.0, 1.5, 2.0, 3.0, 80.0, 800.0, 1e5, 1e8, 1e200, np.inf, np.nan),
)
# Those of functions of two and three numbers, in all combinations.
PAIRED = -np.inf, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, np.inf, np.nan
OF_THREE = -1.0, 0.0, 0.5, 1.0, np.inf
# Numbers at which the forms differ, and why.
EXCEPTIONS = {
    "I0": ("the value overflows", lambda x: abs(x) >= 1e200),
    "I1": ("the value overflows", lambda x: abs(x) >= 800),
}
ORDERED = {"PolyGamma"}  # the first argument is a constant
ON_THE_HOST = {"Jv", "Ive", "Kve"}  # in JAX
DISCRETE = {"LT", "GT", "LE", "GE", "EQ", "NEQ", "IsNan", "IsInf", "OR", "XOR", "AND", "Invert"}
OTHERS = {"Switch", "Real", "Imag", "Conj", "Complex", "ComplexFromPolar", "Angle", "Grad2F1Loop"}
LEFT_OUT = {*DISCRETE, *OTHERS, *ON_THE_HOST, *scalars.HEAVY}
OPS = {name: op for name, op in scalars._instances().items() if name not in LEFT_OUT}
QUICK = {"Clip", "Erf", "Abs"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", slow_where(lambda name: name not in QUICK, OPS))
def test_native_and_xla(name):
    n = 1 if name in ORDERED else 2 if OPS[name].nin < 0 else OPS[name].nin
    numbers = (NUMBERS, PAIRED, OF_THREE)[n - 1]
    at = tuple(map(np.array, zip(*itertools.product(numbers, repeat=n), strict=True)))
    native, xla = (_derivatives(name, loops, at) for loops in ("native", "xla"))
    _, is_exception = EXCEPTIONS.get(name, ("", lambda x: np.zeros(x.shape, bool)))
    compared = ~is_exception(at[0])
    faults = [
        f"{what} at {[x[k] for x in at]}: native {slopes[k]}, xla {expected[k]}"
        for (what, slopes), expected in zip(native.items(), xla.values(), strict=True)
        for k in np.flatnonzero(
            ~np.isclose(slopes, expected, 1e-6, 1e-9, equal_nan=True) & compared
        )
    ]
    assert faults == [], "\n".join(faults)


def _derivatives(name, loops, at):
    """All derivatives, by name, of the function in a loop of one step."""
    inputs, factors = [pt.dvector() for _ in at], pt.dvector()
    function = Elemwise(OPS[name])
    constants = [scalars.ARGUMENTS[name][0]] if name in ORDERED else []

    def step(total, factor):
        return total + function(*constants, *(x * factor for x in inputs)), None

    total, _ = loopax.scan(step, pt.zeros_like(inputs[0]), factors)
    of_all = loopax.jaxify([*inputs, factors], total, loops=loops, checks="ignore")
    along = tuple(np.linspace(1.0, 2.0, x.size) + k for k, x in enumerate(at))

    def f(*xs):
        return of_all(*xs, np.ones(1))

    def gradient(*xs):
        y, pull = jax.vjp(f, *xs)
        return pull(np.ones(y.shape))

    def derivatives(*xs):
        return jax.jvp(gradient, xs, along), jax.jvp(f, xs, along)[1]

    jaxpr = jax.make_jaxpr(derivatives)(*at)
    assert ("loopax_kernel" in primitives(jaxpr)) == (loops == "native")
    n = len(at)
    names = [*(f"gradient {k}" for k in range(n)), *(f"second {k}" for k in range(n)), "tangent"]
    return dict(zip(names, evaluate(jaxpr, at), strict=True))
