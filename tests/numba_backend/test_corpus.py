"""Programs that users reported, as native functions: they give what PyTensor gives.

In `make test` they run as the Python that is emitted, which takes no compiling, and a few run compiled; in
`make test-all` all run compiled, which takes minutes.
"""

import warnings

import numpy as np
import pytest
from pytensor.typed_list import TypedListType

from loopax.frontend import read_variables
from loopax.importer.import_graph import import_graph
from loopax.lowering import lower_to_loops
from loopax.numba_backend.callable.program import compile_program
from tests.numba_backend.interpreted import interpreted
from tests.programs import reference
from tests.programs.catalogue import due, raising
from tests.support.marking import slow_where

QUICK = {
    "shapes-length_from_the_data",
    "dtypes-complex_numbers",
    "sparse_and_lists-list_made_and_read",
    "opaque_ops-only_perform",
    "conditionals-check_on_a_shape_that_fails",
    "shared_values-weights",
}

# JAX has to refuse these: the length of a result depends on values. Here there is nothing to refuse.
OF_ANY_LENGTH = [p for p in raising() if p.error == "DynamicShapeError"]
RAISING = [p for p in raising() if p.error != "DynamicShapeError"]


def marked(programs):
    return [
        pytest.param(p, id=str(p), marks=[pytest.mark.slow] * (str(p) not in QUICK))
        for p in programs
    ]


def compiled(graph):
    """What runs as Python is announced, once."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        function = compile_program(graph)
    assert len(said) == bool(function.by_python), said
    return function


def run(program, function_of=compiled):
    """The outputs, flat."""
    inputs, outputs, options = reference.parts(program)
    read = read_variables(inputs, outputs, **options)
    import_graph(read.graph)
    lower_to_loops(read.graph)
    function = function_of(read.graph)
    actual = function(*program.arguments(inputs), *[s.value for s in read.shared])
    built = read.build(actual[: read.n_returned])
    return reference.leaves([built[key] for key in outputs] if isinstance(outputs, dict) else built)


def check_values(actual, program):
    # Draws too: the same generator gives the same numbers, whatever library rounds them.
    rtol = program.rtol if program.values_match else 1e-7
    for k, (a, b) in enumerate(zip(actual, reference.expected(program), strict=True)):
        assert a.dtype == b.dtype, k
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12, strict=True, err_msg=str(k))


def check_refuses(program, function_of):
    with pytest.raises(Exception) as caught:
        run(program, function_of)
    kinds = [kind.__name__ for kind in type(caught.value).__mro__]
    assert program.error in kinds or program.error in str(caught.value)


# Written out as Python their series take seconds.
SERIES = ("special-gradient_of_incomplete_beta", "special-gradient_of_incomplete_gamma")


@pytest.mark.sampled(120)
@pytest.mark.parametrize(
    "program", slow_where(lambda p: str(p) in SERIES, [*due(), *OF_ANY_LENGTH])
)
def test_values_as_python(program):
    # A list that comes in is taken apart by native code: Python has no tuple of unknown length to take.
    inputs = [getattr(v, "variable", v) for v in reference.parts(program)[0]]
    lists = any(isinstance(v.type, TypedListType) for v in inputs)
    check_values(run(program, compiled if lists else interpreted), program)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", marked([*due(), *OF_ANY_LENGTH]))
def test_values(program):
    check_values(run(program), program)


@pytest.mark.parametrize("program", RAISING, ids=str)
def test_says_why_it_cannot_as_python(program):
    check_refuses(program, interpreted)


@pytest.mark.parametrize("program", marked(RAISING))
def test_says_why_it_cannot(program):
    check_refuses(program, compiled)


def test_quick_ones_are_programs():
    assert {str(p) for p in [*due(), *raising()]} >= QUICK
