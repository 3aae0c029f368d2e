"""An error of native code says which op failed, what it was given, and where it was written."""

import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify
from loopax.ir.evaluation.first_failure import first_failure
from tests.numba_backend.interpreted import lowered

X, Y, S = pt.dvector("x"), pt.dvector("y"), pt.lvector("s")
ABOUT = {
    "lengths": (X * 2 + Y, r"Add was given an output of Mul of shape \(6,\), 'y' of shape \(5,\)"),
    "index": (X[S], r"index 9 is out of bounds for axis 0 with size 6; .* 's' of shape \(1,\)"),
    "written": (pt.set_subtensor(X[1:3], Y), r"SetSubtensor.* 'x' of shape \(6,\), 'y' of shape"),
    "split": (pt.split(X, [2, 3])[0], r"sum to 5; expected 6; Split.* 'x' of shape \(6,\)"),
    "in a loop": (
        loopax.scan(lambda c, e: (c + X[S[0] + e.astype("int64")], None), 0.0, Y)[0],
        r"index 9 is out of bounds for axis 0 with size 6",
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ABOUT)
def test_what_is_said(name):
    program, said = ABOUT[name]
    f = jaxify([X, Y, S], program, backend="numba")
    with pytest.raises((ValueError, IndexError), match=said) as error:
        f(np.arange(6.0), np.arange(5.0), [9])
    assert __file__.rpartition("/")[2] in str(error.value) or name == "in a loop"


def test_what_needs_no_more_words():
    checked = loopax.scan(lambda c, r: (c + r[0] * r[1], None), 0.0, (X, Y))[0]
    f = jaxify([X, Y], checked, backend="numba")
    with pytest.raises(ValueError, match=r"Slice the sequence, or lower the number of steps\.$"):
        f(np.arange(6.0), np.arange(5.0))


def test_a_long_program_is_not_run_again_to_its_end():
    c, _ = loopax.scan(lambda c, e: (c * 0.5 + e, None), 0.0, pt.ones(10**6))
    graph = lowered([X, S], [X[S] + c])
    assert first_failure(graph, [np.arange(6.0), np.array([2])], at_most=10) is None
