"""Two programs that differ in one thing, one after the other on one cache: each has its own result."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

OP = """
import functools, warnings
warnings.simplefilter("ignore")
import numpy as np, pytensor, pytensor.tensor as pt
from pytensor.compile.ops import wrap_py
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import basic as nb
import loopax
from loopax.cache import results
results._LEAST = 0.0

class Own(Op):
    __props__ = ()
    def make_node(self, x):
        x = pt.as_tensor(x)
        return Apply(self, [x], [x.type()])
    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(inputs[0] * @K@)

x = pt.dvector("x")
"""
RUN = """
total, _ = loopax.scan(lambda s, r: (s * 0.5 + r, None), pt.constant(1.0), y)
X = np.array([1.0, 2.0, 3.0])
print(float(loopax.jaxify([x], total, backend="numba")(X)))
print(float(loopax.jaxify([x], total, loops="native")(X)))
print(float(pytensor.function([x], total, mode="NUMBA")(X)))
"""
CONVERSION = """
@nb.register_funcify_default_op_cache_key(Own)
def convert(op, node=None, **kwargs):
    @nb.numba_njit
    def own(x):
        return x * @K@
    return own, @K@0
"""

PROGRAMS = {
    "a conversion": CONVERSION + "y = Own()(x)",
    "a constant that is folded": "y = x * Own()(pt.constant(np.ones(3)))",
    "a function that wraps one of NumPy": """
@wrap_py(itypes=[pt.dmatrix], otypes=[pt.dmatrix])
@functools.wraps(np.linalg.inv)
def inverse(a):
    return np.linalg.inv(a) * @K@
y = x * inverse(pt.constant(np.eye(2))).sum()
""",
    "a library's op with another conversion": """
from pytensor.tensor.slinalg import Expm
@nb.register_funcify_default_op_cache_key(Expm)
def convert(op, node=None, **kwargs):
    @nb.numba_njit
    def own(x):
        return x * @K@
    return own, @K@0
y = x * pt.linalg.expm(pt.outer(x, x)).sum()
""",
}


def printed(program, k, cache):
    environment = os.environ | {
        "LOOPAX_CACHE_DIR": f"{cache}/loopax",
        "PYTENSOR_FLAGS": f"base_compiledir={cache}/pytensor",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", (OP + PROGRAMS[program] + RUN).replace("@K@", str(k))]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return np.array(said.stdout.split(), dtype=float)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_second_program_has_its_own_result(tmp_path, program):
    """They are 0.125 and a multiple of the number in their source."""
    first, second = (printed(program, k, tmp_path) for k in (2, 3))
    np.testing.assert_allclose((second - 0.125) / 3, (first - 0.125) / 2, rtol=1e-12)
    np.testing.assert_allclose(second, second[0], rtol=1e-12)
