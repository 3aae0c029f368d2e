"""Every scalar op of PyTensor on the hard values of every dtype, and what its values should be.

The reference is PyTensor's Python linker on the unrewritten op, which is NumPy's and SciPy's functions.
Special functions, and floats of integers, are computed in float64 there: NumPy takes float16 for the
logarithm of an int8, and SciPy's float32 loops overflow on the way.
"""

import threading
from functools import cache

import numpy as np
import pytensor
import pytensor.scalar.basic as basic
import pytensor.scalar.math as special
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.tensor.elemwise import Elemwise

PYTHON = Mode(linker="py", optimizer=None)
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
# Their result for two zeros is one of them, and the sign of the other functions' zeros says nothing.
UNSIGNED_ZEROS = {"maximum", "minimum", "round_half_away_from_zero"}
# XLA's incomplete gamma function of float32 is off by 3.4e-5 at (127, 127).
RTOL = {"float32": 5e-5, "float64": 1e-9, "complex64": 3e-5, "complex128": 1e-10}


@cache
def scalar_ops():
    """By name, each once; float16 is no dtype of either backend."""
    ops = {}
    for module in (basic, special):
        for name, op in sorted(vars(module).items()):
            plain = isinstance(op, basic.ScalarOp) and not isinstance(op, basic.Composite)
            if plain and name != "convert_to_float16" and op not in ops.values():
                ops[name] = op
    return ops


def is_special(name):
    """Whether SciPy has it: the module imports ops of the other one too."""
    return type(scalar_ops()[name]).__module__ == special.__name__


def hard_values(dtype):
    """Zeros, ones, extremes, what is tiny and huge, and what is no number.

    No subnormal numbers: XLA on the CPU takes them for 0. Of complex numbers, what lies on no branch cut.
    """
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.array([False, True])
    if kind in "iu":
        info = np.iinfo(dtype)
        some = [0, 1, 2, 3, 7, 20, 100, info.max, info.max - 1, info.max // 2, info.min]
        some += [-1, -2, -3, -7, info.min + 1, info.min // 2] if kind == "i" else []
        return np.array(some, dtype)
    if kind == "c":
        parts = [-2.5, -0.75, 0.5, 1.25, 3.0]
        return np.array([complex(x, y) for x in parts for y in parts], dtype)
    some = [0, 1e-17, 1e-7, 0.25, 0.5, 0.7, 1, 1.5, 2, 2.5, 3, 7, 10.25, 20.5, 30.25, 88.5, 700.5]
    some += [1e6, 1e10, 1e17, float(np.finfo(dtype).max), np.inf]
    some += [1e-300, 1e200, 1e300] if dtype == "float64" else [1e-30]
    x = np.array(some, dtype)
    return np.concatenate([x, -x, [np.nan]]).astype(dtype)


def grid(dtypes):
    """All combinations of the hard values, fewer of them where there are many arguments."""
    sides = [hard_values(d)[:: 1 if len(dtypes) < 3 else 5] for d in dtypes]
    return [np.ascontiguousarray(x.ravel()) for x in np.meshgrid(*sides, indexing="ij")]


def applied(dtypes, wanted):
    """Vectors of the dtypes, and each op of so many arguments that takes them, by name."""
    inputs = [pt.vector(f"x{k}", dtype=d) for k, d in enumerate(dtypes)]
    arity = {"add": 2, "mul": 2, "betaincinv": 3}
    outputs = {}
    for name, op in scalar_ops().items():
        if not wanted(name) or arity.get(name, op.nin) != len(dtypes):
            continue
        try:
            out = Elemwise(op)(*inputs)
        except (TypeError, NotImplementedError):
            continue
        to_real = name.startswith("convert_to") and dtypes[0].startswith("complex")
        if out.dtype == "float16" or (to_real and not out.dtype.startswith("complex")):
            continue  # pt.cast refuses the second
        outputs[name] = out
    return inputs, outputs


def comparable(name, given, out):
    """Where the reference has a value, and is right; or else docs/pytensor_differences.md says why."""
    everywhere = np.ones(len(given[0]), bool)
    kinds = [x.dtype.kind for x in given]
    if name.startswith("convert_to") and out.dtype in INTEGERS and kinds[0] in "fc":
        info = np.iinfo(out.dtype)  # the next float above the largest integer is out of range
        return np.isfinite(given[0]) & (given[0] > info.min - 1.0) & (given[0] < float(info.max))
    if name == "pow" and kinds[1] == "i" and out.dtype in INTEGERS:
        return given[1] >= 0  # NumPy refuses negative powers of integers
    if name == "complex_from_polar":
        return given[0] >= 0  # and PyTensor negative radii
    if name in ("gammainc", "gammaincc", "gammal", "gammau"):
        # SciPy's nan, and far from the mean its series of large shapes, which stops too early.
        k, x = (np.asarray(z, "float64") for z in given)
        with np.errstate(all="ignore"):
            far = np.abs(k - x) > 4 * np.sqrt(np.abs(k))
        # Products of a gamma function, which overflows, and a probability, which underflows.
        lost = ((k > 25) | (k < 1e-20)) & (name in ("gammal", "gammau") and out.dtype == "float32")
        return ~(np.abs(k) > 1e307) & ~((k > 1e12) & far) & ~lost
    if name == "betainc":
        return ~(np.maximum(given[0], given[1]) > np.finfo(out.dtype).max / 1000)
    if name in ("gammaincinv", "gammainccinv"):
        # SciPy takes what is no probability for one, and has lost the large shapes.
        return (given[0] > 0) & (given[0] < 1e9) & (given[1] >= 0) & (given[1] <= 1)
    if name == "polygamma":
        # SciPy sums powers of both signs, which cancel for an even order at half of an odd number:
        # polygamma(20, -88.5) is -1.25e-22 (with mpmath as well), and -4e8 there.
        cancels = (given[0] % 2 == 0) & (given[1] < 0) & (given[1] % 1 == 0.5)
        return (given[0] >= 0) & (given[0] <= 100) & ~cancels
    if name in ("j0", "j1"):
        return ~(np.abs(given[0].astype("float64")) > 1e8)  # SciPy before 1.18 has lost the phase
    if name == "owens_t":
        return ~(np.abs(given[1]) < 1e-10)
    return everywhere


def reference(name, out, given):
    """The value of the op ``out.owner`` on ``given``; None where NumPy has no such function."""
    op = out.owner.op
    if name.startswith("convert_to"):
        return given[0].astype(out.dtype)
    discrete = all(x.dtype.kind in "biu" for x in given)
    if is_special(name) or (discrete and out.dtype.startswith(("float", "complex"))):
        keep = 1 if name == "polygamma" else 0
        given = [
            x if k < keep or x.dtype.kind == "c" else x.astype("float64")
            for k, x in enumerate(given)
        ]
    inputs = [pt.vector(dtype=x.dtype) for x in given]
    with np.errstate(all="ignore"):
        try:
            actual = pytensor.function(inputs, op(*inputs), mode=PYTHON)(*given)
        except (TypeError, OverflowError):
            return None
        return actual.astype(out.dtype)


def assert_close(name, actual, expected, given, rtol, atol):
    """Of one dtype, and one value, the signs of zeros included where they are the op's own."""
    assert actual.dtype == expected.dtype, name
    if expected.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            same = np.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
        if expected.dtype.kind == "f" and name not in UNSIGNED_ZEROS and not is_special(name):
            zeros = (actual == 0) & (expected == 0)
            same &= ~zeros | (np.signbit(actual) == np.signbit(expected))
    else:
        same = actual == expected
    wrong = [
        f"{name}({', '.join(str(x[k]) for x in given)}) is {actual[k]}, not {expected[k]}"
        for k in np.flatnonzero(~same)
    ]
    assert not wrong, "\n".join(wrong[:10])


def within(seconds, function):
    """The value of ``function()``; a test that fails where a sum in XLA or native code does not end."""
    results, errors = [], []

    def call():
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    assert results, f"no answer within {seconds} seconds"
    return results[0]
