"""Programs of the rules, run as Python: what they compute, without Numba's seconds for each."""

from typing import Any

import numpy as np
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax.ir import evaluate
from loopax.lowering import lower_to_loops
from loopax.numba_backend import compile_program
from loopax.numba_backend.program import emitted
from tests.compare import imported


def lowered(inputs: list[Any], outputs: list[Any]) -> FunctionGraph:
    graph = imported(inputs, outputs).graph
    lower_to_loops(graph)
    return graph


def as_python(graph: FunctionGraph) -> Any:
    """The emitted source as a Python function: the checks that it calls are Python's, too."""
    emit = emitted(graph, {}, True)
    namespace = {name: getattr(f, "py_func", f) for name, f in emit.namespace.items()}
    namespace["as_scalar"] = lambda x: x.item() if isinstance(x, np.ndarray) else x
    exec(str(emit.source), namespace)
    # Native code divides by zero without a word.
    return np.errstate(all="ignore")(namespace["program"])


def agrees(
    inputs: list[Any],
    outputs: list[Any],
    *cases: list[Any],
    rtol: float = 1e-12,
    native: bool = False,
) -> None:
    """The program gives what `evaluate` does, or raises where that raises; ``native``: compiled, too."""
    graph = lowered(inputs, outputs)
    runs = [as_python(graph), *([compile_program(graph)] if native else [])]
    for case in cases:
        given = [
            v.type.filter(np.asarray(x), allow_downcast=True)
            for v, x in zip(inputs, case, strict=True)
        ]
        for run in runs:
            values = [x.copy() if x.ndim else x.item() for x in given]
            try:
                with np.errstate(all="ignore"):
                    expected = evaluate(graph, *given)
            except (IndexError, ValueError):
                with pytest.raises((IndexError, ValueError)):
                    run(*values)
                continue
            found = run(*values)
            for k, (a, b) in enumerate(zip(found, expected, strict=True)):
                np.testing.assert_allclose(
                    np.asarray(a),
                    b,
                    rtol=rtol,
                    atol=1e-12,
                    err_msg=f"output {k}: {outputs[k].owner}",
                )
                assert np.asarray(a).shape == b.shape
