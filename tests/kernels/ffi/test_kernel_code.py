"""Names of native code: equal ones stand for equal code, in every process."""

import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax.kernels.ffi.kernel_code import KernelCode


def name(output, *inputs):
    return KernelCode(inputs, [output]).handler([(3,)] * len(inputs), ())[0]


def total(x, weights=(1.0, 2.0, 3.0)):
    table = pt.constant(np.array(weights))
    return loopax.scan(lambda s, row: (s + row[1] * row[0], None), 0.0, (x, table))[0]


@pytest.fixture(scope="module")
def totals():
    x = pt.dvector("x")
    return name(total(x), x)


def test_equal_programs_have_one_name(totals):
    x = pt.dvector("other")
    assert name(total(x), x) == totals


def test_other_constants_are_another_program(totals):
    x = pt.dvector("x")
    assert name(total(x, weights=(1.0, 2.0, 4.0)), x) != totals


def test_functions_that_share_a_name_are_told_apart():
    x = pt.dvector("x")
    assert name(pt.gammaln(x), x) != name(pt.psi(x), x)
