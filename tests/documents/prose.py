"""``python -m tests.documents.prose``: spelling and grammar of the documents and of public docstrings.

Harper checks them, offline; it comes with the extra `lint`. Words that it does not know are in words.txt,
one a line, in the case that a word has inside a sentence; the possessive forms are added here. The
project's own rules of style are in test_prose.py.
"""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType

ROOT = Path(__file__).resolve().parents[2]
WORDS = Path(__file__).with_name("words.txt")
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
# Rules of Harper that are wrong for these texts, or that ask for another style.
IGNORED = [
    # A sentence or a row may begin with a name, a command or a word in code.
    "SentenceCapitalization",
    # Headings are sentences. Lists have no comma before "and".
    "UseTitleCase",
    "OxfordComma",
    # Names of packages are written as their owners write them.
    "OrthographicConsistency",
    # MB, Ctrl-C, stderr and "..." are what readers of code look for.
    "ExpandMemoryShorthands",
    "ExpandControl",
    "ExpandStandardInputAndOutput",
    "UseEllipsisCharacter",
    # Covariances, roundings and likelihoods are counted here.
    "MassNouns",
    # Compounds it does not know, and pairs of words that it takes for one: "over all rows".
    "CompoundNouns",
    "DisjointPrefixes",
    "Overall",
    # "Values that no output needs are ..." does not lack a "to", nor "the rows behind" a preposition.
    "MissingTo",
    "MissingPreposition",
]
DOCUMENTED = (FunctionType, property, classmethod, staticmethod)
# Numpydoc underlines a heading; below one, a line of names is a parameter, an error or a type.
UNDERLINE = re.compile(r"-{3,}")
NAMES = re.compile(r"[\w.]+(, [\w.]+)*")


def public_docstrings() -> Iterator[tuple[str, str]]:
    """The name and the docstring of each public name and of its methods, as Markdown."""
    for module in ["loopax", *(["loopax.pymc"] if find_spec("pymc") else [])]:
        exported = importlib.import_module(module)
        for name in exported.__all__:
            value = getattr(exported, name)
            owner = value if inspect.isclass(value) or inspect.isroutine(value) else type(value)
            members = vars(owner) if inspect.isclass(owner) else {}
            actual = {name: owner} | {
                f"{name}.{member}": function
                for member, function in members.items()
                if not member.startswith("_") and isinstance(function, DOCUMENTED)
            }
            for path, documented in actual.items():
                if text := inspect.getdoc(documented):
                    yield f"{module}.{path}", as_markdown(text)


def as_markdown(docstring: str) -> str:
    """``docstring`` as Markdown, without examples and code blocks."""
    lines, section, is_code = [], "", False
    for line, following in zip_longest(source := docstring.splitlines(), source[1:], fillvalue=""):
        if UNDERLINE.fullmatch(line):
            continue
        if UNDERLINE.fullmatch(following):
            section = line
            lines += ["", f"## {line}", ""]
        elif not line.strip():
            lines.append("")
            is_code = False
        elif line.lstrip().startswith(">>>") or is_code:
            is_code = True  # up to the next empty line: what the example prints
        elif section and NAMES.fullmatch(line):
            lines += ["", f"`{line}`", ""]
        elif section or not line.startswith("    "):
            lines.append(line.strip())
    return "\n".join(lines).replace("``", "`")


def main() -> int:
    """Print what Harper finds; the exit status."""
    with TemporaryDirectory() as folder:
        words = WORDS.read_text(encoding="utf-8").split()
        dictionary = Path(folder, "dictionary.txt")
        dictionary.write_text("\n".join(f"{w}\n{w}'s" for w in words), encoding="utf-8")
        docstrings = []
        for name, text in public_docstrings():
            docstrings.append(Path(folder, f"{name}.md"))
            docstrings[-1].write_text(text + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "harper", "lint", "--quiet", "--no-color"]
        command += ["--format", "compact", "--dialect", "us", "--ignore", ",".join(IGNORED)]
        # Pages of the reference are names, which Harper would read as words; their text is docstrings.
        pages = [page for page in DOCUMENTS if page.parent.name != "api"]
        command += ["--user-dict-path", str(dictionary), *map(str, [*pages, *docstrings])]
        return subprocess.run(command, env={**os.environ, "RUST_BACKTRACE": "0"}).returncode


if __name__ == "__main__":
    sys.exit(main())
