"""A native program against `evaluate`, for values of any type."""

from copy import deepcopy
from typing import Any

import numpy as np
import scipy.sparse

from loopax.ir import evaluate
from loopax.lowering import lower_to_loops
from loopax.numba_backend import compile_program
from tests.compare import imported


def assert_agrees(inputs: list[Any], outputs: list[Any], *cases: list[Any]) -> Any:
    """The program gives what the graph means, as it was before any pass; its inputs stay as they are."""
    program = imported(inputs, outputs)
    meaning = program.graph.clone()
    lower_to_loops(program.graph)
    run = compile_program(program.graph)
    for case in cases:
        given = [v.type.filter(x, allow_downcast=True) for v, x in zip(inputs, case, strict=True)]
        given += [s.value for s in program.shared]
        before = deepcopy(given)
        expected = evaluate(meaning, *deepcopy(given))
        for k, (a, b) in enumerate(zip(run(*given), expected, strict=True)):
            assert equal(a, b), (k, a, b)
        assert equal(given, before)
    return run


def equal(a: Any, b: Any) -> bool:
    """Of one type, shape and dtype, and the same values up to rounding."""
    if isinstance(b, np.random.Generator):
        return a.bit_generator.state == b.bit_generator.state
    if isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if b is None or isinstance(b, slice):
        return a == b
    if type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if scipy.sparse.issparse(b):
        a, b = a.toarray(), b.toarray()
    return np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True)
