"""``python -m tests.frontend.from_jaxpr.page`` writes docs/primitives.md from the table of rules."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import primitives

from loopax.frontend import from_jaxpr
from loopax.frontend.from_jaxpr.reading import RULES

PAGE = Path(__file__).parents[3] / "docs" / "primitives.md"
OPENING = """\
# JAX primitives with native code

`loopax.native` reads the jaxpr of a loop's step. A loop can run as native code if its step has only
primitives from this table, outside the exceptions in the second column. Any other loop stays a JAX loop,
and `loopax.explain(f)` names the primitive; loopax refuses nothing.

`python -m tests.frontend.from_jaxpr.page` writes this page. `tests/frontend/from_jaxpr/test_primitives.py`
compares each primitive with XLA, in the IR and as native code.

| primitives | exceptions, which stay in JAX |
|---|---|
"""
CLOSING = """
## Primitives without native code

These primitives of JAX {version} always stay in JAX:

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
    names = textwrap.fill(", ".join(f"`{name}`" for name in left_to_jax()), 118)
    return OPENING + "\n".join(rows) + "\n" + CLOSING.format(version=version, names=names)


def left_to_jax() -> list[str]:
    """The names of JAX's primitives that have no rule."""
    names = {getattr(primitives, n).name for n in dir(primitives) if n.endswith("_p")}
    return sorted(names - set(RULES) - _INTERNAL)


def _limits(function: Any) -> str:
    """What the rule refuses, in its own words."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    reasons = [
        node.args[1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "refuse"
    ]
    words = [str(r.value) if isinstance(r, ast.Constant) else "of other types" for r in reasons]
    return "; ".join(dict.fromkeys(w for w in words if w not in _OF_JAXPRS))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
