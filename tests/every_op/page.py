"""docs/ops.md: a table for each family of ops, with how each op runs in every column.

To write it: python -m tests.every_op, or some rows, python -m tests.every_op Cholesky LU, with each of the
PyTensor releases that are supported. The newest has the tables; an older one has what is different there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytensor
from packaging.version import Version

from tests.every_op.cells import (
    CALLBACK,
    DISCRETE,
    IN_C,
    INEXACT,
    NATIVE,
    NO_DERIVATIVE,
    NO_SHAPE,
    Subject,
)
from tests.every_op.classes import op_classes
from tests.every_op.families import FAMILIES
from tests.every_op.record import COLUMNS, Example

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"
NEWEST, OLDER = "3.3", "3.0"
# The releases whose classes have been looked through: of a later one the new classes are left out.
LOOKED_THROUGH = {"3.0": "3.0.7", "3.3": "3.3.8"}
RELEASE = ".".join(pytensor.__version__.split(".")[:2])
WORDS = {NATIVE: "yes", CALLBACK: "host", DISCRETE: "-", NO_DERIVATIVE: "none", NO_SHAPE: "length"}
WORDS |= {IN_C: "C only", INEXACT: "inexact"}
MARK = "<!-- {} -->"
# The columns as headings: names of functions are code.
HEADINGS = " | ".join(f"`{column}`" if "." in column else column for column in COLUMNS)
ABSENT = "Not in this release: "

Row = dict[str, str]


def family_of(cls: type) -> ModuleType:
    prefixes = [p for p in FAMILIES if f"{cls.__module__}.".startswith(f"{p}.")]
    return FAMILIES[max(prefixes, key=len)]


def ops() -> Iterator[tuple[ModuleType, str, type]]:
    """Every Op class that a program can have, with its family and its name there."""
    later = classes_without_example() if is_later_release() else ()
    for cls in op_classes():
        family = family_of(cls)
        if cls.__name__ not in family.BASES and cls not in later:
            yield family, cls.__name__, cls


def classes_without_example() -> list[type]:
    classes = [(family_of(c), c) for c in op_classes()]
    return [c for f, c in classes if c.__name__ not in {*f.BASES, *f.EXAMPLES}]


def is_later_release() -> bool:
    return Version(pytensor.__version__) > Version(LOOKED_THROUGH[RELEASE])


def subject(family: ModuleType, name: str) -> Subject:
    made = family.EXAMPLES[name]()
    return Subject(made if isinstance(made, Example) else Example(made))


def tables(names: Collection[str] = (), known: Any = None) -> dict[str, dict[str, Row]]:
    """For each family, by its title, the rows; with ``names`` those, the others as they are ``known``."""
    actual: dict[str, dict[str, Row]] = {}
    faults = []
    for family, name, _ in ops():
        if names and name not in names:
            actual.setdefault(family.TITLE, {})[name] = known[family.TITLE][name]
            continue
        one, row = subject(family, name), actual.setdefault(family.TITLE, {}).setdefault(name, {})
        for column in COLUMNS:
            try:
                row[column] = WORDS[one.cell(column)]
            except Exception as error:
                faults.append(f"{family.TITLE}, {name}, {column}: {type(error).__name__}: {error}")
    if faults:
        raise AssertionError("\n".join(faults))
    return actual


# -- as text -----------------------------------------------------------------------------------------


def _is_exception(row: Row) -> bool:
    return not set(row.values()) <= {"yes", "-"}


def _lines(rows: Mapping[str, Row]) -> Iterator[str]:
    """The table of a family: exceptions first, since they are what a reader looks for."""
    yield f"| op | {HEADINGS} |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    for name in sorted(rows, key=lambda name: (not _is_exception(rows[name]), name.lower())):
        yield f"| `{name}` | {' | '.join(rows[name][c] for c in COLUMNS)} |"


def as_text(actual: Mapping[str, Mapping[str, Row]]) -> str:
    parts = []
    for family in dict.fromkeys(FAMILIES.values()):
        if rows := actual.get(family.TITLE):
            reasons = "\n".join(f"- {reason}" for reason in family.REASONS)
            parts.append(f"### {family.TITLE}\n\n" + "\n".join(_lines(rows)))
            parts += [reasons] if reasons else []
    return "\n\n".join(parts)


def read_tables(text: str) -> dict[str, dict[str, Row]]:
    actual: dict[str, dict[str, Row]] = {}
    rows: dict[str, Row] = {}
    for line in text.splitlines():
        if line.startswith("### "):
            rows = actual.setdefault(line[4:], {})
        elif line.startswith("| `"):
            name, *cells = (x.strip() for x in line.strip("|").split("|"))
            rows[name.strip("`")] = dict(zip(COLUMNS, cells, strict=True))
    return actual


def section(text: str, release: str) -> str:
    start, end = (MARK.format(f"{word} {release}") for word in ("begin", "end"))
    return text[text.index(start) + len(start) : text.index(end)].strip()


def with_section(text: str, release: str, body: str) -> str:
    start, end = (MARK.format(f"{word} {release}") for word in ("begin", "end"))
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: f"{start}\n\n{body}\n\n{end}", text)


def expected_rows(text: str) -> dict[str, dict[str, Row]]:
    """What the page says of the release that is installed."""
    rows = read_tables(section(text, NEWEST))
    if RELEASE == OLDER:
        for title, others in read_tables(section(text, OLDER)).items():
            rows.setdefault(title, {}).update(others)
    return rows


def different(actual: Mapping[str, Mapping[str, Row]], text: str) -> dict[str, dict[str, Row]]:
    newest = read_tables(section(text, NEWEST))
    out = {}
    for title, rows in actual.items():
        other = newest.get(title, {})
        if changed := {name: row for name, row in rows.items() if other.get(name) != row}:
            out[title] = changed
    return out


def absent_names(text: str) -> set[str]:
    """The ops that the newest release alone has."""
    lines = (x for x in section(text, OLDER).splitlines() if x.startswith(ABSENT))
    return {name for line in lines for name in re.findall(r"`(\w+)`", line)}


def is_alike_in_both(text: str, title: str, name: str) -> bool:
    """Whether both releases have an op, and the page says the same of it."""
    changed = read_tables(section(text, OLDER)).get(title, {})
    return name not in changed and name not in absent_names(text)


def _absent_line(actual: Mapping[str, Mapping[str, Row]], text: str) -> str:
    newest = read_tables(section(text, NEWEST)).items()
    gone = {name for title, rows in newest for name in rows if name not in actual.get(title, {})}
    return ABSENT + ", ".join(f"`{name}`" for name in sorted(gone)) + "."


def write(names: Collection[str] = ()) -> None:
    text = PAGE.read_text(encoding="utf-8")
    actual = tables(names, expected_rows(text) if names else None)
    if RELEASE == OLDER:
        parts = [f"### {t}\n\n" + "\n".join(_lines(r)) for t, r in different(actual, text).items()]
        body = "\n\n".join([*parts, _absent_line(actual, text)])
    else:
        body = f"{summary(actual)}\n\n{as_text(actual)}"
    PAGE.write_text(with_section(text, RELEASE, body), encoding="utf-8")


def summary(actual: Mapping[str, Mapping[str, Row]]) -> str:
    """How many ops each column has of each word."""
    rows: list[Any] = [row for family in actual.values() for row in family.values()]
    lines = [f"| of {len(rows)} ops | {HEADINGS} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for word in WORDS.values():
        counts = [str(sum(row[c] == word for row in rows)) for c in COLUMNS]
        lines.append(f"| {word} | {' | '.join(counts)} |")
    return "\n".join(lines)
