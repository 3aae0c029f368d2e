"""One program in every form, beside its values."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

from loopax import jaxify
from tests.every_op.properties.record import Variation
from tests.every_op.record import PLAIN, value_of
from tests.jax_backend.interpreted import InterpretedFunction as InterpretedJax
from tests.numba_backend.interpreted import InterpretedFunction

# "xla" has the values of all inputs, "traced" has none while JAX traces. "numba" runs what is written in
# Python, and is left out where it calls what is native code only: nothing is compiled.
# Matrices whose shapes are known take another way there.
QUICK = ("xla", "traced", "numba", "numba, known shapes")
COMPILED = ("native", "compiled numba", "compiled numba, known shapes")
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "xla": {"loops": "xla", "jit": False},
    "traced": {"loops": "xla", "backend": InterpretedJax.backend_name},
    "numba": {"backend": InterpretedFunction.backend_name},
    "native": {"loops": "native"},
    "compiled numba": {"backend": "numba"},
}


def faults(one: Variation, forms: tuple[str, ...]) -> Iterator[str]:
    """What is wrong with a program, a line for each form and output."""
    outputs = [*one.outputs] if isinstance(one.outputs, list | tuple) else [one.outputs]
    inputs = [v for v in dict.fromkeys(graph_inputs(outputs)) if hasattr(v.tag, "value")]
    values = [value_of(v) for v in inputs]
    expected = [*one.expected] if isinstance(one.expected, list | tuple) else [one.expected]
    by_pytensor = pytensor.function(inputs, outputs, mode=PLAIN, on_unused_input="ignore")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of how PyTensor calls it
        reference = by_pytensor(*map(copy.copy, values))
    if one.expected is None:
        expected = reference
    else:
        yield from _differences("PyTensor", reference, expected)
    for form in forms if one.shapes_fit else [f for f in forms if not f.endswith("known shapes")]:
        known = form.endswith("known shapes")
        args, outs = _with_shapes(inputs, outputs, values) if known else (inputs, outputs)
        given = [np.array(x) for x in values]
        try:
            actual = _run(form.partition(",")[0], args, outs, given)
        except Exception as error:
            if form.startswith("numba"):
                continue
            yield f"{form}: {type(error).__name__}: {error}"
            continue
        yield from _differences(form, actual, expected, [v.type.dtype for v in outputs])
        if any(
            not np.array_equal(a, b, equal_nan=True) for a, b in zip(given, values, strict=True)
        ):
            yield f"{form}: an argument was written to"


def _run(form: str, inputs: Any, outputs: Any, values: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return jaxify(inputs, outputs, **_OPTIONS[form])(*values)


def _with_shapes(inputs: Any, outputs: Any, values: Any) -> tuple[Any, Any]:
    """The program with the shapes of its arguments in their types."""
    known = [
        pt.tensor(v.name, dtype=v.type.dtype, shape=x.shape)
        for v, x in zip(inputs, values, strict=True)
    ]
    pairs = dict(zip(inputs, known, strict=True))
    return known, clone_replace(outputs, pairs, rebuild_strict=False)


def _differences(form: str, actual: Any, expected: Any, dtypes: Any = None) -> Iterator[str]:
    for k, (x, y) in enumerate(zip(actual, expected, strict=True)):
        x, y = np.asarray(x), np.asarray(y)
        rtol = 1e-8 if x.dtype.itemsize >= 8 or x.dtype.kind in "iub" else 1e-5
        if x.shape != y.shape:
            yield f"{form}, output {k}: the shape is {x.shape}, not {y.shape}"
        elif not np.allclose(x, y, rtol, 1e-9, equal_nan=True):
            yield f"{form}, output {k}:\n{x}, not\n{y}"
        elif dtypes is not None and x.dtype != dtypes[k]:
            yield f"{form}, output {k}: the dtype is {x.dtype}, not {dtypes[k]}"


def values_of(name: str, keyword: str, one: Variation) -> set[str]:
    """The values that a keyword of a class has in a program."""
    outputs = [*one.outputs] if isinstance(one.outputs, list | tuple) else [one.outputs]
    inputs = [v for v in graph_inputs(outputs) if hasattr(v.tag, "value")]
    return set(_values(FunctionGraph(inputs, outputs, clone=True), name, keyword))


def _values(graph: Any, name: str, keyword: str) -> Iterator[str]:
    for node in graph.apply_nodes:
        for op in (node.op, getattr(node.op, "core_op", None), getattr(node.op, "scalar_op", None)):
            if isinstance(op, Op) and type(op).__name__ == name:
                yield str(getattr(op, keyword))
        if (inner := getattr(node.op, "fgraph", None)) is not None:
            yield from _values(inner, name, keyword)
