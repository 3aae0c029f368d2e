"""``python -m tests.frontend.from_jaxpr.page`` writes docs/primitives.md from the table of rules."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import primitives

from loopax.frontend import from_jaxpr
from loopax.frontend.from_jaxpr.reading import KEY_PRIMITIVES, RULES

PAGE = Path(__file__).parents[3] / "docs" / "primitives.md"
OPENING = """\
# JAX primitives with native code

`loopax.native` can run a loop as native code if every primitive in the jaxpr of its step is in this table,
and the second column does not exclude it. Any other loop stays a JAX loop, which is not an error;
`loopax.explain(f)` names the primitive that keeps it in JAX. "Other dtypes" are complex numbers in most
rows; linear algebra is native for float32 and float64.

The tests compare each primitive with XLA. `python -m tests.frontend.from_jaxpr.page` writes this page from
the table of rules.

| primitives | stay in JAX for |
|---|---|
"""
CLOSING = """
## Values without native code

A loop also stays a JAX loop if its step has a constant that is a random key, or contains -0.0. It does,
too, with values of another dtype than bool, integers of 8 to 64 X
`complex128`. Random keys are native in these primitives only:

{keys}

## Primitives without native code

A loop with one of these primitives of JAX {version} in its step stays a JAX loop:

{names}
"""
FAMILIES = {
    "elementwise": "Elementwise functions",
    "integers": "Integers: shifts and bits",
    "bits": "Bits of floats",
    "conversions": "Conversions",
    "shapes": "Shapes and layout",
    "indexing": "Indexing, reads",
    "scattering": "Indexing, writes",
    "reductions": "Reductions",
    "cumulative": "Cumulative functions",
    "ordering": "Sorting",
    "contractions": "Products",
    "windows": "Convolutions and windows",
    "linalg": "Linear algebra",
    "random": "Random bits",
    "loops": "Loops and branches",
    "calls": "Calls",
}
# Internal to JAX: no compiled step of a loop has them.
_INTERNAL = {"call", "create_token", "after_all", "get", "swap", "axis_index"}
_OF_JAXPRS = {"without a jaxpr", "with other arguments"}  # JAX never makes such a program


def page() -> str:
    """The text of the page, for the JAX that is installed."""
    rows = []
    for family, title in FAMILIES.items():
        by_limits: dict[str, list[str]] = {}
        for name, function in sorted(RULES.items()):
            if function.__module__ == f"{from_jaxpr.__name__}.{family}":
                by_limits.setdefault(_limits(function), []).append(f"`{name}`")
        rows.append(f"| **{title}** | |")
        rows += [f"| {', '.join(names)} | {limits} |" for limits, names in by_limits.items()]
    version = ".".join(jax.__version__.split(".")[:2])
    closing = CLOSING.format(
        version=version, names=_in_code(left_to_jax()), keys=_in_code(sorted(KEY_PRIMITIVES))
    )
    return OPENING + "\n".join(rows) + "\n" + closing


def _in_code(names: Sequence[str]) -> str:
    return textwrap.fill(", ".join(f"`{name}`" for name in names), 118)


def left_to_jax() -> list[str]:
    """The names of JAX's primitives that have no rule."""
    names = {getattr(primitives, n).name for n in dir(primitives) if n.endswith("_p")}
    return sorted(names - set(RULES) - _INTERNAL)


def _limits(function: Any) -> str:
    """The arguments that a rule refuses, in the words of its messages."""
    words = dict.fromkeys(_refusals(function, {function}))
    return "; ".join(word for word in words if word not in _OF_JAXPRS)


def _refusals(function: Any, visited: set[Any]) -> Iterator[str]:
    """The reasons that a function gives to `refuse`, and those of its module's functions that it calls."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", "")
        called = function.__globals__.get(name)
        if name == "refuse":
            reason = node.args[1]
            yield str(reason.value) if isinstance(reason, ast.Constant) else "other dtypes"
        elif getattr(called, "__module__", "") == function.__module__ and called not in visited:
            if inspect.isfunction(called):
                visited.add(called)
                yield from _refusals(called, visited)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
