"""What a native program was not compiled for is converted before Numba sees it."""

import numpy as np
import pytensor.tensor as pt
import pytest
from numba import njit

from loopax import jaxify
from loopax.base.compiling.no_recompilation import SignatureMismatch, compile_for, no_recompilation


def test_a_function_compiles_for_what_it_is_told_to():
    function = no_recompilation(njit(lambda x: x + 1))
    for x in (1.0, np.zeros(2)):
        with pytest.raises(SignatureMismatch):
            function(x)
    compile_for(function, [1.0])
    assert function(1.0) == 2.0
    with pytest.raises(SignatureMismatch):
        function(1)
    assert len(function.overloads) == 1


def test_one_compilation_whatever_is_given():
    x, n = pt.dvector("x"), pt.lscalar("n")
    f = jaxify([x, n], {"value": (x * n).sum()}, backend="numba")
    read_only = np.array([1.0, 2.0])
    read_only.flags.writeable = False
    given = [
        np.array([1.0, 2.0]),
        np.array([1, 2]),
        np.array([1.0, 2.0], dtype="float32"),
        np.array([1.0, 2.0], dtype=">f8"),
        np.array([1.0, 0.0, 2.0])[::2],
        read_only,
        [1.0, 2.0],
        np.array([[1.0], [2.0]])[:, 0],
    ]
    for value in given * 2:  # converted before the function is compiled, and after
        assert f(value, 3)["value"] == 9.0
        assert f(value, np.array(3))["value"] == 9.0
    assert len(f._native.variants.find(()).overloads) == 1


@pytest.mark.parametrize("value", [np.ones((2, 2)), 1.0, "text", np.array(["a"]), np.array([1j])])
def test_what_does_not_fit_is_an_error_without_a_trace_of_the_refusal(value):
    x = pt.dvector("x")
    f = jaxify([x], x.sum(), backend="numba")
    for _ in range(2):
        with pytest.raises(TypeError, match="'x'") as caught:
            f(value)
        assert not isinstance(caught.value.__context__, SignatureMismatch)
        assert f(np.ones(3)) == 3.0
