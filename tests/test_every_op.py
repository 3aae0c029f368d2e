"""Every Op class that PyTensor ships has an example, and docs/ops.md says what becomes of it today.

To write the page: python -m tests.every_op
"""

import warnings

import pytensor
import pytest

from tests.every_op import page
from tests.every_op.classes import classes_in
from tests.every_op.families import FAMILIES
from tests.every_op.record import COLUMNS

TEXT = page.PAGE.read_text(encoding="utf-8")
OPS = {(family.TITLE, name): (family, cls) for family, name, cls in page.ops()}


@pytest.mark.both_stacks
def test_every_class_has_an_example():
    absent = [f"{c.__module__}.{c.__name__}" for c in page.classes_without_example()]
    if absent and page.is_later_release():
        pytest.skip(f"PyTensor {pytensor.__version__} is newer than the page; it brought {absent}")
    assert not absent, (
        "PyTensor has Op classes without an example. Write one in the file of their family in "
        f"tests/every_op/families, or say in its BASES why no program has one: {absent}"
    )


@pytest.mark.slow
@pytest.mark.both_stacks
def test_every_example_has_its_op_in_it():
    absent = []
    for (title, name), (family, cls) in OPS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = page.subject(family, name).graph
        if not any(issubclass(c, cls) for c in classes_in(graph)):
            absent.append(f"{title}: {name}")
    assert absent == []


def cells():
    """The rows of the page, the columns that compile for seconds apart."""
    for (title, name), (family, _) in OPS.items():
        both = [] if page.is_alike_in_both(TEXT, title, name) else [pytest.mark.both_stacks]
        slow = [c for c in COLUMNS if (name, c) in family.SLOW or ("*", c) in family.SLOW]
        for columns, marks in (
            ([c for c in COLUMNS if c not in slow], []),
            (slow, [pytest.mark.slow]),
        ):
            if columns:
                case = f"{title}-{name}-{len(columns)}"
                yield pytest.param(title, name, columns, id=case, marks=[*marks, *both])


@pytest.mark.sampled(150)
@pytest.mark.parametrize(("title", "name", "columns"), list(cells()))
def test_the_page_says_what_becomes_of_it(title, name, columns):
    expected = page.expected_rows(TEXT).get(title, {})
    assert name in expected, "not in docs/ops.md: run python -m tests.every_op"
    actual = page.subject(OPS[title, name][0], name).cells(columns)
    assert {c: page.WORDS[x] for c, x in actual.items()} == {c: expected[name][c] for c in columns}


@pytest.mark.both_stacks
def test_what_the_older_release_has_not_is_said():
    named, there = page.absent_names(TEXT), {name for _, name in OPS}
    rows = page.read_tables(page.section(TEXT, page.NEWEST))
    if page.RELEASE == page.NEWEST:
        assert named <= there
    else:
        assert {name for table in rows.values() for name in table} - there == named


def test_what_jax_does_not_do_has_a_reason():
    rows = page.read_tables(page.section(TEXT, page.NEWEST))
    absent = []
    for family in dict.fromkeys(FAMILIES.values()):
        undone = {
            name
            for name, row in rows.get(family.TITLE, {}).items()
            if {"host", "none"} & {row[c] for c in COLUMNS[:5]}
        }
        told = " ".join(family.REASONS)
        absent += [f"{family.TITLE}: {name}" for name in undone if f"`{name}`" not in told]
    assert absent == []
