"""What importing loopax does to JAX's precision: each case in a process of its own."""

import os
import subprocess
import sys

import pytest

REPORT = "print(jax.config.jax_enable_x64, jax.numpy.ones(()).dtype)"


def run(code, **environment):
    """What ``code`` prints, in a fresh interpreter."""
    inherited = {
        k: v for k, v in os.environ.items() if k not in ("JAX_ENABLE_X64", "PYTENSOR_FLAGS")
    }
    flags = "blas__ldflags="
    if more := environment.pop("PYTENSOR_FLAGS", None):
        flags += f",{more}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=inherited | environment | {"PYTENSOR_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


ON, OFF = "jax.config.update('jax_enable_x64', True)", "jax.config.update('jax_enable_x64', False)"
CASES = {
    "importing turns it on": (f"import jax, loopax; {REPORT}", {}, ["True", "float64"]),
    "the environment is respected": (
        f"import jax, loopax; {REPORT}",
        {"JAX_ENABLE_X64": "0"},
        ["False", "float32"],
    ),
    "a setting made later is respected": (
        f"import jax, loopax; {OFF}; "
        "import pytensor.tensor as pt; x = pt.fvector('x'); loopax.jaxify([x], x * 2)([1.0]); "
        + REPORT,
        {},
        ["False", "float32"],
    ),
    "floatX=float32 does not turn it on": (
        f"import jax, loopax; {REPORT}",
        {"PYTENSOR_FLAGS": "floatX=float32"},
        ["False", "float32"],
    ),
    "floatX=float32 does not turn a user's off": (
        f"import jax; {ON}; import loopax; {REPORT}",
        {"PYTENSOR_FLAGS": "floatX=float32"},
        ["True", "float64"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_precision(case):
    code, environment, expected = CASES[case]
    assert run(code, **environment) == expected


START = "import loopax, numpy, pytensor.tensor as pt; x = pt.fvector('x'); X = numpy.ones(2, 'float32'); "


@pytest.mark.slow
def test_integers_of_a_program_in_32_bits_do_not_warn():
    """PyTensor's conversions ask JAX for int64, which JAX warns of; warnings are errors in `run`."""
    out = "[pt.argmax(x), pt.round(x).astype('int64').sum(), pt.bincount(x.astype('int64')).sum()]"
    code = f"{START} print(*loopax.jaxify([x], {out})(X))"
    assert run(code, PYTENSOR_FLAGS="floatX=float32") == ["0", "2", "2"]


@pytest.mark.slow
def test_integers_among_floats_of_32_bits():
    """The product is a float64 in PyTensor, whatever floatX is: the message says what to write."""
    code = (
        f"{START}\ntry: loopax.jaxify([x], pt.argmax(x) * x)(X)\n"
        "except loopax.LoopTypeError as error: print(error)"
    )
    message = " ".join(run(code, PYTENSOR_FLAGS="floatX=float32"))
    assert "cast its integers where they meet floats: x.astype('float32')" in message
    assert "<module>" in message  # the line of the product
