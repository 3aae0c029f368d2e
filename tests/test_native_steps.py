"""The budget of native steps: they call nothing that is not their own, but for a list with reasons.

A call of Python takes microseconds, one of PyTensor's native function on arrays hundreds of nanoseconds:
a loop of cheap steps is several times slower for one, in a derivative that nobody has written and nobody
reads. So what is called is counted, in the native programs of values and of first and second derivatives,
forwards and backwards, of each op that has some, and of loops as people write them. Nothing is run.
"""

import warnings

import pytest

from loopax.ir.derivatives.inner_gradients import is_sparse
from tests.every_op import page
from tests.every_op.cells import Subject
from tests.every_op.families import xtensors
from tests.every_op.record import Example
from tests.native_steps.counting import class_of, in_a_step, steps_calls
from tests.native_steps.exceptions import NOT_DIFFERENTIABLE, ON_ARRAYS, PYTHON
from tests.native_steps.loops import LOOPS

# Operations on named axes become plain ones before anything else, and these are here.
OPS = {f"{f.TITLE}: {name}": (f, name) for f, name, _ in page.ops() if f is not xtensors}
# Their derivatives are written with ops of other kinds: a diagonal, a permutation, a product of some.
QUICK_OPS = {"Cholesky", "SortOp", "ProdWithoutZeros", "Prod", "Psi"}
QUICK_LOOPS = {"logaddexp", "kalman filter of one"}
LARGE = {"kalman", "kalman filter of two"}  # of which a second derivative takes minutes to lower
FIRST, SECOND = ("gradient in JAX", "gradient"), ("gradient pushed forward in JAX",)


def faults(actual):
    """What is called and stands in no list, with the form of the program that calls it."""
    for form, calls in actual.items():
        for call in calls:
            cls = class_of(call)
            if call.by_python:
                if cls.__name__ not in PYTHON:
                    yield f"{form}: Python, of {call.node.op}"
            elif not (
                cls.__module__.startswith(tuple(ON_ARRAYS)) or is_sparse(call.node.outputs[0])
            ):
                yield f"{form}: a native function on arrays, of {call.node.op}"


def of_op(family, name, wanted=None):
    program = family.EXAMPLES[name]()
    subject = Subject(program if isinstance(program, Example) else Example(program))
    if not (subject.floats and subject.differentiable):
        pytest.skip("no float to differentiate: docs/ops.md says whether its value is native")
    floats = subject.floats_of(subject.inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return steps_calls(subject.inputs, in_a_step(subject._graph_cost(), floats), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK_OPS))
def test_quick_forms_of_ops(name):
    family = next(family for family, other in OPS.values() if other == name)
    assert list(faults(of_op(family, name, FIRST + SECOND))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LOOPS.keys() & QUICK_LOOPS))
def test_quick_forms_of_loops(name):
    actual = steps_calls(*LOOPS[name](), FIRST)
    assert actual.keys() == {*FIRST}
    assert list(faults(actual)) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", OPS)
def test_ops(case):
    family, name = OPS[case]
    wanted = ("value",) if name in NOT_DIFFERENTIABLE else None
    assert list(faults(of_op(family, name, wanted))) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", LOOPS)
def test_loops(name):
    wanted = FIRST if name in LARGE else None
    assert list(faults(steps_calls(*LOOPS[name](), wanted))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PYTHON)
def test_an_exception_is_still_one(name):
    actual = [family for family, other in OPS.values() if other == name]
    if not actual:
        pytest.skip("not in this release")
    forms = ("value",) if name in NOT_DIFFERENTIABLE else ("value", "gradient in JAX")
    calls = of_op(actual[0], name, forms).values()
    assert any(class_of(c).__name__ == name and c.by_python for form in calls for c in form)


def test_what_leaves_native_code_is_seen():
    """That nothing is found is worth something."""
    family, name = next(x for x in OPS.values() if x[1] == "RFFTOp")
    (calls,) = of_op(family, name, ("value",)).values()
    assert [class_of(c).__name__ for c in calls if c.by_python] == ["RFFTOp"]
