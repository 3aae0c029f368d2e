"""The page "All of loopax" has all of loopax."""

import re
from pathlib import Path

import loopax

PAGE = Path(__file__).resolve().parents[2] / "docs" / "all_of_loopax.md"


def test_each_public_name_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    sections = set(re.findall(r"^### `(\w+)`$", text, re.MULTILINE))
    functions = {name for name in loopax.__all__ if name.islower()}
    assert sections == functions
    listed = set(re.findall(r"`(\w+)`", text.partition("## Return types and errors")[2]))
    assert {*loopax.__all__} - functions <= listed
