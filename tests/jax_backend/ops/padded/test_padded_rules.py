"""Rules of a `PaddedArray` against NumPy: what x axis x layout, at masks that take none, one, some and all.

The mask is traced, so that only the run tells how long the array is. What is returned is an array too where
nothing reduces it. The ops' own ``perform``, which calls NumPy, says what is right.
"""

from typing import Any

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import io_toposort

from loopax import jaxify
from loopax.ir.evaluation.evaluate import apply
from tests.jax_backend.interpreted import interpreted
from tests.jax_backend.ops.padded.padded_rules import Arrays, all_rules
from tests.support.marking import slow_where

LAYOUTS = [
    ((5,), 0, "float64"),
    ((4, 3), 0, "float64"),
    ((4, 3), 1, "float64"),
    ((2, 4, 3), 1, "float64"),
    ((2, 3, 4), 2, "int64"),
    ((3, 4), 1, "int64"),
    ((5,), 0, "uint8"),
    ((4, 2, 3), 0, "bool"),
    ((3, 4), 1, "bool"),
    ((3, 2, 4), 2, "float32"),
    ((3, 1), 1, "float64"),
]
QUICK = [((4, 3), 1, "float64"), ((3, 4), 1, "bool")]


def parametrised(quick, layouts=LAYOUTS):
    return pytest.mark.parametrize("layout", slow_where(lambda x: x not in quick, layouts))


def masks(n):
    k = np.arange(n)
    return {"none": k < 0, "one": k == n // 2, "some": k % 3 != 1, "all": k >= 0}


def filled(shape, dtype):
    values = 2 * np.random.default_rng(3).normal(size=shape).round(1)
    if dtype == "bool":
        return values > 0
    return (np.abs(values) if dtype == "uint8" else values).astype(dtype)


def numpy_values(inputs, outputs, values):
    """What NumPy says of each output; the exception where it refuses."""
    actual: dict[Any, Any] = dict(zip(inputs, values, strict=True))

    def value(v):
        return actual[v] if v in actual else v.data

    for node in io_toposort(inputs, outputs):
        given = [value(v) for v in node.inputs]
        refused = next((x for x in given if isinstance(x, Exception)), None)
        try:
            made = [refused] * len(node.outputs) if refused else apply(node, given)
        except Exception as error:
            made = [error] * len(node.outputs)
        actual.update(zip(node.outputs, made, strict=True))
    return [value(v) for v in outputs]


class Layout:
    def __init__(self, shape, axis, dtype):
        self.shape, self.axis, self.dtype = shape, axis, dtype
        self.inputs = [pt.tensor(k, dtype=dtype, shape=(None,) * len(shape)) for k in "xy"]
        self.inputs.append(pt.vector("mask", dtype="bool"))
        x, y, mask = self.inputs
        at = (*[slice(None)] * axis, mask)
        self.arrays = Arrays(x[at], y[at], x, axis)

    def values(self):
        """By what they are: numbers, and nan among them."""
        x = filled(self.shape, self.dtype)
        yield "", x, x[..., ::-1]
        if x.dtype.kind == "f" and x.size > 1:
            nan = x.copy()
            nan.flat[[1, -1]] = np.nan
            yield " with nan", nan, x


def differs(actual, expected):
    actual = np.asarray(actual)
    if isinstance(expected, Exception):  # no number, where there is one
        is_number = actual.dtype.kind == "f" and actual.size and np.isfinite(actual).all()
        return f"{actual} where NumPy raises {expected}" if is_number else None
    if (actual.shape, actual.dtype) != (expected.shape, expected.dtype):
        return f"{actual.shape} {actual.dtype} for {expected.shape} {expected.dtype}"
    rtol = 1e-5 if actual.dtype == "float32" else 1e-10
    is_same = np.allclose(actual, expected, rtol=rtol, atol=rtol / 100, equal_nan=True)
    return None if is_same else f"{actual} for {expected}"


@pytest.mark.slow
@parametrised(QUICK)
def test_values(layout):
    """In one program: what is computed of all these arrays at once is as much as a test can trace."""
    layout = Layout(*layout)
    rules = {name: rule() for name, rule in all_rules(layout.arrays).items()}
    f = interpreted(jaxify(layout.inputs, rules, loops="xla", checks="ignore"))
    faults = []
    for taken, mask in masks(layout.shape[layout.axis]).items():
        for kind, x, y in layout.values():
            with np.errstate(all="ignore"):
                expected = numpy_values(layout.inputs, list(rules.values()), [x, y, mask])
            actual = f(x, y, mask)
            for name, e in zip(rules, expected, strict=True):
                if fault := differs(actual[name], e):
                    faults.append(f"{name}, {taken} taken{kind}: {fault}")
    assert not faults, "\n".join(faults)


# -- transformations ---------------------------------------------------------------------------------

SMOOTH = (
    *(
        "sum",
        "prod",
        "mean",
        "var",
        "max",
        "min",
        "cum",
        "sort",
        "softmax",
        "log softmax",
        "joined",
    ),
    *(
        "stacked",
        "repeated",
        "differences",
        "rolled",
        "read",
        "set",
        "add",
        "x[",
        "flat",
        "transposed",
    ),
    *(
        "tiled",
        "broadcast",
        "all in one row",
        "contracted",
        "dot",
        "gram",
        "matmul",
        "with a",
        "einsum",
    ),
    *("vector", "matrix", "-1 for", "0 and", "1 and"),
)


def costs(layout):
    """A number for each rule that gives floats, in which each of these has a weight of its own."""
    for name, rule in all_rules(layout.arrays).items():
        if name.startswith(SMOOTH) and "nonzero" not in name:
            out = rule()
            if out.dtype.startswith("float"):
                flat = out.ravel()
                yield name, (pt.sqr(flat) * pt.cos(pt.cumsum(pt.ones_like(flat)))).sum()


GRADIENTS = [((4, 3), 1), ((4, 3), 0), ((2, 4, 3), 1), ((5,), 0)]


@parametrised([], GRADIENTS)
def test_derivatives(layout):
    """Against those of the same program at a mask that is known, where nothing is padded."""
    layout = Layout(*layout, "float64")
    rules = dict(costs(layout))
    f = jaxify(layout.inputs, rules, loops="xla", checks="ignore")
    x = filled(layout.shape, layout.dtype)
    y = x[..., ::-1]
    jacobian = interpreted(jax.jacrev(f))
    faults = []
    for taken, mask in masks(layout.shape[layout.axis]).items():
        if taken == "none":
            continue
        expected = interpreted(jax.jacrev(lambda x, y, mask=mask: f(x, y, mask)))(x, y)
        actual = jacobian(x, y, mask)
        for name in rules:
            if fault := differs(actual[name], np.asarray(expected[name])):
                faults.append(f"{name}, {taken} taken: {fault}")
    assert not faults, "\n".join(faults)
