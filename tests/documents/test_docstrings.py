"""The examples in docstrings run, and give what they say; each docstring stands alone."""

import ast
import doctest
import importlib
import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytensor
import pytest

import loopax

FINDER = doctest.DocTestFinder(exclude_empty=True)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


# Modules whose examples need something that is not installed everywhere.
NEEDED = {"loopax.pymc": "pymc", "loopax.jacobians": "loopax.extensions"}


def needed(name):
    return [package for start, package in NEEDED.items() if name.startswith(start)]


def can_be_imported(name):
    return not name.endswith("__main__") and all(map(find_spec, needed(name)))


def examples():
    for actual in pkgutil.walk_packages(loopax.__path__, "loopax."):
        if can_be_imported(actual.name):
            module = importlib.import_module(actual.name)
            for test in FINDER.find(module):
                if test.examples:
                    marks = [pytest.mark.both_stacks] * bool(needed(actual.name))
                    yield pytest.param(test, id=test.name.removeprefix("loopax."), marks=marks)


@pytest.mark.sampled(72)
@pytest.mark.parametrize("test", [*examples()])
def test_example(test):
    # `.eval()` would compile with Numba, for seconds.
    with pytensor.config.change_flags(mode="FAST_COMPILE"), np.printoptions(precision=8):
        result = doctest.DocTestRunner(optionflags=FLAGS).run(test, clear_globs=False)
    assert result.failed == 0


# Openings that lean on the name, or on the docstring before. What a value is begins with a noun.
LEANING = re.compile(r"(The same|What|Of|Those|As|That)\b")
# Turns that a native reader reads twice; `test_prose.py` has more of them for the documents.
TURNS = re.compile(r"\b(h[au]ngs? on|kin|of ours|anew|loops in loops)\b")


def test_each_docstring_stands_alone():
    leaning = []
    suspect = re.compile(rf'"""\s*{LEANING.pattern}|{TURNS.pattern}')
    for path in sorted(Path(loopax.__file__).parent.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        # To parse all files takes three seconds.
        for node in ast.walk(ast.parse(source)) if suspect.search(source) else ():
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                docstring = ast.get_docstring(node) or ""
                if LEANING.match(docstring) or TURNS.search(docstring):
                    leaning.append(f"{path}:{getattr(node, 'lineno', 1)}: {docstring[:60]}")
    assert not leaning, "\n".join(leaning)
