"""A native program against the meaning of its graph, for values of any type."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import scipy.sparse

from loopax.ir import evaluate
from loopax.lowering import lower_to_loops
from loopax.numba_backend.callable.program import compile_program
from tests.numba_backend.interpreted import interpreted
from tests.support.compare import imported


def assert_agrees(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *cases: Sequence[Any],
    rtol: float = 1e-12,
    native: bool = True,
) -> Any:
    """The program gives what the graph means, as it was before any pass, in memory of its own.

    Its inputs stay as they are. Compiled, or else as Python, which takes no seconds; it is returned.
    """
    program = imported(list(inputs), list(outputs))
    meaning = program.graph.clone()
    lower_to_loops(program.graph)
    run = compile_program(program.graph) if native else interpreted(program.graph)
    for case in cases:
        given = [v.type.filter(x, allow_downcast=True) for v, x in zip(inputs, case, strict=True)]
        given += [s.value for s in program.shared]
        before = deepcopy(given)
        with np.errstate(all="ignore"):
            expected = evaluate(meaning, *deepcopy(given))
        actual = run(*given)
        for k, (a, b) in enumerate(zip(actual, expected, strict=True)):
            assert_same(a, b, rtol, f"output {k}: {outputs[k].owner}")
        for k, (a, b) in enumerate(zip(given, before, strict=True)):
            assert_same(a, b, 0.0, f"input {k} is changed")
        arrays = [x for x in [*given, *actual] if isinstance(x, np.ndarray)]
        for k, a in enumerate(arrays):
            assert not any(np.shares_memory(a, b) for b in arrays[:k])
    return run


def assert_same(a: Any, b: Any, rtol: float, what: str) -> None:
    """Of one type, shape and dtype, and the same values, those of floats up to rounding."""
    if isinstance(b, np.random.Generator):
        assert a.bit_generator.state == b.bit_generator.state, what
    elif isinstance(b, list):
        assert len(a) == len(b), what
        for x, y in zip(a, b, strict=True):
            assert_same(x, y, rtol, what)
    elif b is None or isinstance(b, slice):
        assert a == b, what
    else:
        assert type(a) is type(b), what
        if scipy.sparse.issparse(b):
            assert a.dtype == b.dtype, what
            a, b = a.toarray(), b.toarray()
        if b.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12, strict=True, err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, strict=True, err_msg=what)
