"""Names say what a value or a function is, rather than how it came about."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = "loopax", "benchmarks", "examples"
UNCLEAR = {"found", "given", "made", "rest", "said", "taken"}


def bindings(tree):
    """Names that a module binds, and their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_name_is_a_bare_participle(folder):
    unclear = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name, line in bindings(ast.parse(path.read_text("utf-8")))
        if name in UNCLEAR
    ]
    assert not unclear, "name what it is:\n" + "\n".join(unclear)


def test_bindings():
    code = "def f(given):\n    made = given\n    for found in made: self.rest = found"
    assert [name for name, _ in bindings(ast.parse(code))] == [
        "f",
        "given",
        "made",
        "found",
        "rest",
    ]
