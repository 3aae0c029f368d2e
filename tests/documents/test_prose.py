"""The style sheet in CONTRIBUTING.md: turns of phrase that a program can see are on no page.

Spelling and grammar are checked by prose.py, as a part of `make lint`.
"""

import re
from pathlib import Path

import pytest

from examples.gallery import page
from tests.documents.prose import DOCUMENTS, ROOT, public_docstrings

# By what is wrong with it; each matches a line of the left column of the style sheet.
TURNS = {
    "a heading that nobody searches for": r"^#+ (What (?!PyTensor gets wrong)|Looking |The rest)",
    "an opening that leans on the text before": r"^(?:[-*] +|\d+\. +)?"
    r"(The same( of\b| as\b| in\b|[,.])|Those\b|That of\b)",
    "an opening with a relative clause": r"^(?:[-*] +)?(What (?!to )[^?]*$|How (many|much)\b[^?]*$)",
    "a fraction of a time": r"\b\d?\.\d+ of (the|its|their) time\b",
    "a fraction of a time in words": r"\b(half|third|quarter|fourth|fifth|sixth|eighth|ninth|tenth) of "
    r"(the|its|their) time\b",
    "those of": r"\b(those|that) of (?!course\b)",
    "kin": r"\bkin\b",
    "of yours": r"\bof (yours|ours)\b",
    "beside": r"\bbeside\b",
    "say": r"\bsay[,;.)]|, say\b",
    "but for": r", but (under|for|in|with|by) ",
    "loops in loops": r"\bloops in loops\b",
    "hang on": r"\bh[au]ngs? on\b",
    "of JAX": r"\b(function|program|sampler|primitive)s? of JAX\b(?! \d| arrays)",
    "by itself": r"\bby (itself|themselves)\b",
    "anew": r"\banew\b",
    "in turns": r"\bin turns\b",
    "some of a unit": r"\bsome (tenths|hundredths|(nano|micro|milli)?seconds|minutes)\b",
    "what is given": r"\bwhat \w+( \w+)? (is|are|was|were) (given|said|asked)\b",
}
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2 *$|^ {4,}[^\n]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]+`")


def paragraphs(text: str) -> list[str]:
    """The paragraphs, items, headings and rows of a Markdown text, each in one line, without code."""
    lines: list[str] = []
    for line in CODE.sub("`code`", re.sub(FENCED, "", text)).splitlines():
        starts = not line.strip() or re.match(r" *([-*] |\d+\. |#+ |\|)", line)
        if starts or not lines or not lines[-1]:
            lines.append(line.strip())
        else:
            lines[-1] += " " + line.strip()
    return [line for line in lines if line]


def turns_in(text: str) -> list[str]:
    """The turns of phrase in a text that the style sheet replaces."""
    return [
        f"{name}: {line[max(0, actual.start() - 40) : actual.end() + 40]}"
        for line in paragraphs(text)
        for name, turn in TURNS.items()
        if (actual := re.search(turn, line))
    ]


def style_sheet() -> list[tuple[str, str]]:
    """The pairs of the table: what not to write, and what to write."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = text.partition("| instead of | write |\n|---|---|\n")[2].splitlines()
    return [(row.split("|")[1].strip(), row.split("|")[2].strip()) for row in rows if row]


@pytest.mark.parametrize(("before", "after"), style_sheet())
def test_a_pair_is_told_apart(before: str, after: str) -> None:
    assert turns_in(before) and not turns_in(after)


def test_each_turn_is_in_the_style_sheet() -> None:
    left = "\n\n".join(before for before, _ in style_sheet())
    actual = {turn.partition(":")[0] for turn in turns_in(left)}
    assert actual == set(TURNS)


def without_style_sheet(path: Path) -> str:
    """The text of a document, without the table of what not to write."""
    return path.read_text(encoding="utf-8").partition("| instead of | write |")[0]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_keeps_the_style(path: Path) -> None:
    assert turns_in(without_style_sheet(path)) == []


@pytest.mark.parametrize("name", page.EXAMPLES)
def test_a_page_of_the_gallery_keeps_the_style(name: str) -> None:
    assert turns_in(page.page(name)) == []


def test_public_docstrings_keep_the_style() -> None:
    actual = {name: turns for name, text in public_docstrings() if (turns := turns_in(text))}
    assert actual == {}, "\n".join(f"{name}: {turn}" for name in actual for turn in actual[name])
