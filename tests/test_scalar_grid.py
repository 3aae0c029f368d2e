"""Every scalar op, by dtype and by hard value, in both backends: NumPy's and SciPy's values and dtypes."""

import itertools

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import scan

from loopax import jaxify
from tests.support.scalar_grid import (
    INTEGERS,
    RTOL,
    applied,
    assert_close,
    comparable,
    grid,
    is_special,
    reference,
    within,
)

pytestmark = [
    # An op without a conversion runs on the host, and PyTensor says what it does in object mode.
    pytest.mark.filterwarnings("ignore:.*have no JAX conversion.*:UserWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    # Static subexpressions of a rewrite of PyTensor's, on values at the ends.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
LIMIT = 240  # seconds: some ten times what the longest of them takes
# The absolute errors of JAX's own functions, where they are tiny: quadrature, Lanczos in float32.
ATOL = {"owens_t": 1e-15, "betainc": 1e-12, "gammaln": 2e-6, "gammainc": 1e-12, "gammaincc": 1e-12}
# What these have wrong of complex numbers is in docs/pytensor_differences.md.
SOLVED_ELSEWHERE = {"hyp2f1", "betaincinv"}  # by SciPy itself, for seconds: tests of their own
RAISES = {"jax": set(), "numba": {"complex_from_polar"}}  # of PyTensor 3.0, for a negative radius
FAST = {("float64",), ("int64",), ("float64", "float64")}


def cases(dtypes):
    for backend, family in itertools.product(("jax", "numba"), ("basic", "special")):
        fast = dtypes in FAST and (len(dtypes) == 1 or (backend, family) == ("jax", "basic"))
        yield pytest.param(
            backend,
            family,
            dtypes,
            id=f"{backend}-{family}-{'-'.join(dtypes)}",
            marks=() if fast else pytest.mark.slow,
        )


ALONE = ["bool", *INTEGERS, "float32", "float64", "complex64", "complex128"]
PAIRS = [(d, d) for d in ALONE]
PAIRS += [("int64", "uint64"), ("uint64", "int8"), ("float32", "int64"), ("int8", "uint8")]
PAIRS += [("bool", "float64"), ("float64", "float32"), ("int64", "float64"), ("uint8", "float32")]
ALL = [(d,) for d in ALONE] + PAIRS + [("float64",) * 3, ("int64",) * 3, ("float32",) * 3]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "family", "dtypes"), list(itertools.chain(*map(cases, ALL))))
def test_every_op(backend, family, dtypes):
    inputs, outputs = applied(
        dtypes,
        lambda name: (
            (family == "special") == is_special(name)
            and name not in SOLVED_ELSEWHERE | RAISES[backend]
        ),
    )
    given = grid(dtypes)
    masks = {name: comparable(name, given, out) for name, out in outputs.items()}
    expected = {
        name: reference(name, out, [x[masks[name]] for x in given]) for name, out in outputs.items()
    }
    kept = [name for name in outputs if expected[name] is not None]
    if not kept:
        pytest.skip("NumPy has none of them")
    # Many small programs: native code compiles longer than it grows.
    for some in _batched(kept):
        run = jaxify(inputs, [outputs[name] for name in some], backend=backend)
        actual = within(LIMIT, lambda run=run: [np.asarray(x) for x in run(*given)])
        for name, values in zip(some, actual, strict=True):
            mask = masks[name]
            # XLA on the CPU gives 0 for what is below the least normal number.
            least = np.finfo(values.dtype).tiny if values.dtype.kind in "fc" else 0.0
            atol = ATOL.get(name, least) if backend == "jax" else 0.0
            # PyTensor 3.0's angle of complex64 is a float64.
            computed = "float32" if name == "angle" and "complex64" in dtypes else values.dtype
            assert_close(
                name,
                values[mask],
                expected[name],
                [x[mask] for x in given],
                RTOL.get(str(computed), 0.0),
                atol,
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtypes",
    [
        pytest.param(d, id="-".join(d))
        for d in [*PAIRS, *((d,) for d in INTEGERS)]
        if not any(each.startswith(("complex", "float")) for each in d)
    ],
)
def test_integers_that_are_read_in_the_loop_that_makes_them(dtypes):
    """They are of their dtype there too, not only in an array: a power was a uint64 whatever its sign."""
    inputs, outputs = applied(dtypes, lambda name: not is_special(name))
    outputs = {name: out for name, out in outputs.items() if out.dtype in INTEGERS}
    given = grid(dtypes)
    expected = {}
    for name, out in outputs.items():
        mask = comparable(name, given, out)
        values = reference(name, out, [x[mask] for x in given])
        if values is not None:
            expected[name] = mask, values
    # One reader each: what two of them read is an array.
    for read, some in itertools.product((lambda x: x < 1, lambda x: x * 0.5), _batched(expected)):
        outs = [read(outputs[name]) for name in some]
        actual = within(LIMIT, lambda outs=outs: jaxify(inputs, outs, backend="numba")(*given))
        for name, values in zip(some, actual, strict=True):
            mask, right = expected[name]
            np.testing.assert_allclose(values[mask], read(right), rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_bool_times_what_is_not_finite(backend):
    """False times infinity is nan, which XLA's simplifier does not keep of a converted bool."""
    b, x = pt.vector("b", dtype="bool"), pt.vector("x")
    weighted = b * x
    rows = scan(lambda b, x: b * x, sequences=[b, x], return_updates=False)
    outputs = [
        weighted,
        weighted.sum(),
        pt.cast(b, "float64") @ x,
        pt.prod(pt.stack([pt.cast(b, "float64"), x])),
        rows,
    ]
    values = np.array([True, False, False]), np.array([np.inf, np.inf, 2.0])
    expected = [
        np.array([np.inf, np.nan, 0.0]),
        np.nan,
        np.nan,
        np.nan,
        np.array([np.inf, np.nan, 0.0]),
    ]
    for actual, right in zip(
        jaxify([b, x], outputs, backend=backend)(*values), expected, strict=True
    ):
        np.testing.assert_array_equal(actual, right)


def _batched(names, n=16):
    names = list(names)
    return [names[k : k + n] for k in range(0, len(names), n)]
