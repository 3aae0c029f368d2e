"""Random whole programs through the passes and the emitter, run as the Python that comes out.

Nothing is compiled, so that there can be many: what the emitter writes is what is tested here. That Numba
compiles it to the same is what the other tests are for.
"""

import warnings
from collections import Counter

import pytest

from loopax.ir import pformat
from loopax.ir.evaluation.evaluate import own
from loopax.lowering import lower_to_loops
from tests.numba_backend.interpreted import interpreted
from tests.random_programs.in_ir import program
from tests.support.kept import difference, expected

# Shapes that do not fit are found at another place, and with another error, than in Python.
_SHAPES = (ValueError, AssertionError, IndexError)


def compared(seed: int, sized: bool) -> str:
    """What came of a program: "same", or why there was nothing to compare. A difference raises."""
    try:
        one = program(seed)
    except NotImplementedError:
        return "the derivative of a loop without a bound"
    if not all(hasattr(v.type, "dtype") for v in one.inputs):
        return "generators, which run compiled"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, about the values that a program happens to have
        wanted = expected(one)
        graph = one.graph()
        lower_to_loops(graph)
        try:
            actual = None, interpreted(graph, sized)(*map(own, one.values))
        except Exception as error:
            actual = type(error), []
            if error.__class__ in _SHAPES and {wanted[0], wanted[2]} & {*_SHAPES}:
                return "another error of shapes"
    fault = difference(actual, wanted, 1e-4 if one.single else 1e-8)
    assert fault is None, f"seed {seed}: {fault}\n{pformat(one.graph())}"
    return "same"


def assert_most_are_compared(seeds: range) -> None:
    """A writer of programs that nobody can compare would be a test that cannot fail."""
    counts = Counter(compared(seed, sized=seed % 2 == 1) for seed in seeds)
    assert counts["same"] >= 0.7 * len(seeds), counts


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 40, 20))
def test_random_programs(start):
    assert_most_are_compared(range(start, start + 20))


@pytest.mark.slow
@pytest.mark.parametrize("start", [50, *range(1000, 2000, 50)])
def test_many_random_programs(start):
    assert_most_are_compared(range(start, start + 50))
