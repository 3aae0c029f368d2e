"""The share of parameters annotated `Any`, about which a type checker says nothing."""

import ast
from collections.abc import Iterator

from tests.test_layering import PACKAGE, name_of

# 3.8 percent when this test was written. `Any` remains where the annotations of a library cannot carry
# what the code does; an object that a function only passes on is an `object`.
MOST = 0.06


def annotations_of(source: str) -> Iterator[str]:
    """The annotation of each parameter that has one; those of lambdas and most ``self`` have none."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arguments):
            variadic = [x for x in (node.vararg, node.kwarg) if x is not None]
            for parameter in (*node.posonlyargs, *node.args, *node.kwonlyargs, *variadic):
                if parameter.annotation is not None:
                    yield ast.unparse(parameter.annotation)


def test_few_parameters_are_any() -> None:
    annotations = {p: [*annotations_of(p.read_text(encoding="utf-8"))] for p in PACKAGE}
    counts = {p: kinds.count("Any") for p, kinds in annotations.items()}
    n_any, n = sum(counts.values()), sum(map(len, annotations.values()))
    worst = sorted(PACKAGE, key=lambda p: counts[p], reverse=True)[:10]
    lines = [f"{name_of(p)}: {counts[p]} of {len(annotations[p])}" for p in worst]
    assert n_any <= MOST * n, "\n".join(
        [f"{n_any} of {n} parameters are annotated Any; most of them in", *lines]
    )


def test_annotations_are_found() -> None:
    source = (
        "class C:\n  def f(self, a: Any, /, b, *c: Any, d: list[Any], **e: object): lambda x: x"
    )
    assert [*annotations_of(source)] == ["Any", "list[Any]", "Any", "object"]
