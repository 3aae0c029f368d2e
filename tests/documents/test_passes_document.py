"""docs/passes.md names every pass, and its table has the numbers of today.

To print the table as it should be: python -m tests.documents.test_passes_document
"""

import re
from pathlib import Path

import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax.lowering.order import NATIVE_PASSES, PASSES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "passes.md"
HEAD = [
    "| order | loops as read | ops in them | loops lowered | ops in them |",
    "|---|---|---|---|---|",
]


def table(orders: int = 4) -> list[str]:
    """A row for each order of the derivative of the example, by PyTensor's own scan and grad."""
    x0 = pt.dscalar("x0")
    xs = pytensor.scan(lambda x: x**2, outputs_info=[x0], n_steps=4, return_updates=False)
    y, rows = xs[-1], []
    for order in range(1, orders + 1):
        y = pytensor.grad(y, x0)
        actual = loopax.explain([x0], y)
        numbers = [
            n
            for counts in (actual.counts_read, actual.counts_lowered)
            for n in (counts[0], counts[2])
        ]
        rows.append("| " + " | ".join(map(str, [order, *numbers])) + " |")
    return [*HEAD, *rows]


@pytest.mark.slow
def test_the_table_has_the_numbers_of_today():
    expected = table()
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert HEAD[0] in lines, f"{PAGE} has no table that begins with {HEAD[0]}"
    at = lines.index(HEAD[0])
    actual = lines[at : at + len(expected)]
    if not pytensor.__version__.startswith(
        "3.0."
    ):  # what is read is PyTensor's, what is left is ours
        actual, expected = [[row.split("|")[4:] for row in rows] for rows in (actual, expected)]
    assert actual == expected, "\n".join(["the table should be:", *map(str, expected)])


def test_every_pass_has_a_line_in_its_place():
    named = re.findall(r"^\| `(\w+)` \| \S", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    passes = list(dict.fromkeys(run.__name__ for run in (*PASSES, *NATIVE_PASSES)))
    assert named == passes


if __name__ == "__main__":
    print("\n".join(table()))
