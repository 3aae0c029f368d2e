"""Files that a text names in backticks exist, and the README of a folder names each of its files."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.documents.prose import ROOT

FOLDERS = "loopax", "tests", "benchmarks", "examples", "docs"
SOURCES = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))
TEXTS = [*SOURCES, *(p for f in FOLDERS for p in (ROOT / f).rglob("*.md")), *ROOT.glob("*.md")]
NAMED = re.compile(r"`([\w./-]+\.py)`")
# Names that stand for a file of the reader's, or for one that is not to be.
EXAMPLES = {"file.py", "test.py", "utils.py"}


def absent_files(text: str, folder: Path) -> set[str]:
    """The files that a text in ``folder`` names and that are nowhere.

    A name with ``..`` starts at the folder; any other is the end of a path.
    """
    names = set(NAMED.findall(text)) - EXAMPLES
    return {
        name
        for name in names
        if not (folder / name).is_file()
        and (".." in name or not any(str(p).endswith("/" + name) for p in SOURCES))
    }


def test_a_file_that_is_named_exists() -> None:
    absent = {
        str(path.relative_to(ROOT)): names
        for path in TEXTS
        if path != Path(__file__)
        and (names := absent_files(path.read_text(encoding="utf-8"), path.parent))
    }
    assert not absent


def test_an_absent_file_is_seen() -> None:
    text = "`transpile.py`, ``ir/check.py``, `../tests/conftest.py`, `test.py`, `a/gone.py`, `../gone.py`"
    assert absent_files(text, ROOT / "loopax") == {"a/gone.py", "../gone.py"}


def unnamed_files(readme: str, files: list[str]) -> list[str]:
    """The files that a README does not name; a pattern such as `from_*.py` names several."""
    named = re.findall(r"`([\w*]+\.py)`", readme)
    return [file for file in files if not any(fnmatch(file, name) for name in named)]


@pytest.mark.parametrize(
    "folder",
    sorted({p.parent for p in SOURCES if p.is_relative_to(ROOT / "loopax")}),
    ids=lambda folder: str(folder.relative_to(ROOT)),
)
def test_a_readme_names_each_file(folder: Path) -> None:
    files = [p.name for p in sorted(folder.glob("*.py")) if not p.name.startswith("__")]
    assert not unnamed_files((folder / "README.md").read_text(encoding="utf-8"), files)


def test_an_unnamed_file_is_seen() -> None:
    readme = "1. `read.py` reads. 2. `from_*.py`, and `../other.py`"
    assert unnamed_files(readme, ["read.py", "from_jax.py", "other.py"]) == ["other.py"]
