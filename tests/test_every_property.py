"""Every keyword of every Op class that PyTensor ships changes what a program gives, in every form.

A class or a keyword that PyTensor has got fails here until it has a case in tests/every_op/properties, or a
reason there why it has none.
"""

import pytest

from tests.every_op import page
from tests.every_op.properties import linalg, runs, tensors
from tests.every_op.properties.reasons import CLASSES, reason

CASES = {**linalg.CASES, **tensors.CASES}
FUNCTIONS = dict.fromkeys(CASES.values())
# PyTensor's own conversions compile for seconds.
SLOW = {tensors.convolved, tensors.padded}
COVERED = {(name, keyword) for name, keywords in CASES for keyword in keywords.split()}
OPS = [(name, cls) for _, name, cls in page.ops()]


def keywords_of(cls):
    return getattr(cls, "__props__", None) or ()


@pytest.mark.both_stacks
def test_every_keyword_has_a_case_or_a_reason():
    absent = [
        f"{name}.{keyword}"
        for name, cls in OPS
        for keyword in keywords_of(cls)
        if (name, keyword) not in COVERED and reason(cls, keyword) is None
    ]
    assert absent == [], (
        "Keywords without a program in which their value can be seen: write one in "
        "tests/every_op/properties, or say in its reasons.py why there is none"
    )


@pytest.mark.both_stacks
def test_no_case_or_reason_is_of_a_keyword_that_is_gone():
    """In the newest release that is supported."""
    if page.RELEASE != page.NEWEST:
        pytest.skip("the newest release has all keywords")
    there = {(name, k) for name, cls in OPS for k in keywords_of(cls)}
    gone = {key for key in COVERED | {*CLASSES} if key[0] in dict(OPS)} - there
    assert gone <= {("RootOp", "method"), ("RootOp", "jac")}  # PyTensor 3.0


@pytest.mark.sampled(34)
@pytest.mark.both_stacks
@pytest.mark.parametrize(("name", "keywords"), CASES, ids=lambda x: x or "-")
def test_a_case_has_several_values_of_its_keywords(name, keywords):
    variations = list(CASES[name, keywords]())
    if not variations:
        pytest.skip("not in this release")
    for keyword in keywords.split():
        values = set().union(*(runs.values_of(name, keyword, one) for one in variations))
        assert len(values) > 1, (keyword, values)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.__name__, marks=[pytest.mark.slow] * (case in SLOW))
        for case in FUNCTIONS
    ],
)
def test_every_form_reads_the_keywords(case):
    actual = [f"{one.label}: {f}" for one in case() for f in runs.faults(one, runs.QUICK)]
    assert actual == [], "\n".join(actual)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda case: case.__name__)
def test_native_code_reads_the_keywords(case):
    actual = [f"{one.label}: {f}" for one in case() for f in runs.faults(one, runs.COMPILED)]
    assert actual == [], "\n".join(actual)
