"""What passes on a value that is not finite, tried on numbers."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax.lowering.finiteness.passing import closure, passed_on

x, y = pt.dvector("x"), pt.dvector("y")
PASSES_ON = {
    "sum": x + y,
    "product": x * y,
    "difference": x - y,
    "quotient": x / y,
    "constant": 2.0 * x,
    "square": x**2,
    "root": pt.sqrt(x),
    "power": x**1.5,
    "logarithm": pt.log(x),
    "log1p": pt.log1p(x),
    "sine": pt.sin(x),
    "cosh": pt.cosh(x),
    "negative": -x,
    "absolute": abs(x),
    "float32": x.astype("float32"),
    "total": x.sum(),
    "column": x[:, None],
    "matrix": x.reshape((-1, 1)),
}
DOES_NOT = {
    "exp": pt.exp(x),
    "inverse": 1.0 / x,
    "tanh": pt.tanh(x),
    "switch": pt.switch(y > 0, x, y),
    "maximum": pt.maximum(x, y),
    "zero": pt.zeros(3) * x,
    "zeros like it": pt.zeros_like(x) * x,
    "same": x - x,
    "negative of it": x * y + -(y * 2.0) - x * y,
    "inverse of it": x * (y / x),
    "ratio": x / x,
    "unknown power": x**y,
    "negative power": x**-0.5,
    "integer": x.astype("int64"),
    "comparison": x > y,
    "stretched": pt.dmatrix() * x,
    "product of matrices": pt.dmatrix() @ x,
    "row": x[0],
}


def _passes(out):
    nodes = pytensor.graph.fg.FunctionGraph(outputs=[out], clone=False).toposort()
    return x in closure([out], nodes)


@pytest.mark.parametrize("name", PASSES_ON)
def test_passed_on(name):
    out = PASSES_ON[name]
    assert _passes(out)
    f = pytensor.function([x, y], out, mode="FAST_COMPILE", on_unused_input="ignore")
    others = np.array([-np.inf, np.inf, np.nan, 0.0, -1.0, 1.0, 1e300, 1e-300])
    with np.errstate(all="ignore"):
        for bad in (np.inf, -np.inf, np.nan):
            actual = f(np.full(8, bad), others)
            assert not np.isfinite(actual).any(), (bad, actual)


@pytest.mark.parametrize("name", DOES_NOT)
def test_not_passed_on(name):
    assert not _passes(DOES_NOT[name])


def test_of_several_inputs():
    assert passed_on((x / y).owner) == [x]
    assert passed_on((x + y).owner) == [x, y]
