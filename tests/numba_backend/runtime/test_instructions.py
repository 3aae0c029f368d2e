"""Functions written as LLVM instructions: a number that LLVM does not see through, and rules of types."""

import numba
import numpy as np
import pytest

from loopax.numba_backend.runtime.instructions import hidden


@numba.njit
def twice(k):
    return 2 * hidden(k)


@pytest.mark.parametrize("number", [3, np.int8(-3), np.uint32(7)])
def test_a_hidden_number_keeps_its_value(number):
    assert twice(number) == 2 * hidden(number) == 2 * int(number)


def test_llvm_does_not_see_a_hidden_number():
    plain, behind = numba.njit(lambda: 2 * 21), numba.njit(lambda: 2 * hidden(21))
    assert plain() == behind() == 42
    codes = [next(iter(f.inspect_llvm().values())) for f in (plain, behind)]
    assert ["asm" in code for code in codes] == [False, True]


def test_a_rule_of_types_refuses_arguments():
    with pytest.raises(numba.TypingError):
        twice(0.5)
