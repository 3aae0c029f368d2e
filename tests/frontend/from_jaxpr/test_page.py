"""The page of primitives is what its program writes."""

import re

import jax
import pytest

from loopax.frontend.from_jaxpr.reading import RULES
from tests.frontend.from_jaxpr.page import FAMILIES, PAGE, page


def test_every_rule_is_on_the_page() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Primitives without native code")[0]
    assert set(re.findall(r"`([\w-]+)`(?=[,| ])", table)) >= set(RULES)
    assert {rule.__module__.rpartition(".")[2] for rule in RULES.values()} == set(FAMILIES)


def test_the_page_is_made_for_the_newest_jax() -> None:
    text = PAGE.read_text(encoding="utf-8")
    version = re.search(r"primitives of JAX ([\d.]+) in its step", text)
    assert version is not None
    if not jax.__version__.startswith(version[1] + "."):
        pytest.skip(f"the page is for JAX {version[1]}")
    assert text == page()
