"""One derivative, whatever the form: every Op class at arguments of every kind, in a loop and outside.

Gradient and products with Jacobian and Hessian: in a loop by `jax`, of native code and of JAX's operations;
outside by native code, by `jax` of JAX's operations and by differences.
"""

from functools import cache, partial

import pytest

from tests.every_op import page
from tests.every_op.derivatives.arguments import variants
from tests.every_op.derivatives.comparison import Derivatives, NotNative, Refused, disagreements
from tests.every_op.derivatives.exceptions import (
    DECIDED_BY_ROUNDING,
    IN_A_LOOP,
    LEFT_OUT,
    NOT_TRIED,
    OTHER_SLOPES,
    OUTSIDE,
)
from tests.every_op.record import Example
from tests.support.marking import slow_where

OPS = {f"{family.TITLE}: {name}": (family, name) for family, name, _ in page.ops()}
TEXT = page.PAGE.read_text(encoding="utf-8")
WITHOUT = "none", "host", "C only"  # of native code, or its derivatives
QUICK = {"Maximum", "Clip", "Max", "CumOp", "SortOp", "AdvancedIncSubtensor", "LogSumExp", "Switch"}
CASES = slow_where(lambda case: OPS[case][1] not in QUICK, OPS)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", CASES)
def test_native_and_xla_in_a_loop(case):
    _check(case, True, IN_A_LOOP)


@pytest.mark.sampled(2)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", CASES)
def test_native_xla_and_differences(case):
    _check(case, False, OUTSIDE)


def _check(case, in_a_loop, exceptions):
    family, name = OPS[case]
    program = family.EXAMPLES[name]()
    example = program if isinstance(program, Example) else Example(program)
    if example.many or name in LEFT_OUT:
        pytest.skip(LEFT_OUT.get(name, "a mean of many draws"))
    faults, compared = [], 0
    derivatives = cache(partial(Derivatives, in_a_loop=in_a_loop))
    for arguments, subject, values in variants(example):
        if (name, arguments) in NOT_TRIED:
            continue
        try:
            actual = disagreements(derivatives(subject), values, name not in OTHER_SLOPES)
            actual = [] if (name, arguments) in DECIDED_BY_ROUNDING else actual
        except Refused as reason:
            if arguments == "as recorded":
                pytest.skip(str(reason)[:100])
            continue
        except NotNative as error:
            row = page.expected_rows(TEXT)[family.TITLE][name]
            if row["Numba"] in WITHOUT or row["loopax.grad"] in WITHOUT:
                pytest.skip("JAX differentiates both forms, as the page says")
            actual = [str(error)]
        except AssertionError as error:
            actual = [str(error)]
        compared += 1
        if {(name, arguments), (case, arguments)} & exceptions.keys():
            assert actual, f"{arguments}: no exception any more"
        else:
            faults += [f"{arguments}: {fault}" for fault in actual]
    assert faults == [], "\n".join(faults)
    assert compared
