"""Bodies are interpreted here: to compile the C code of each of them takes longer than all passes."""

from functools import partial

import pytest

from loopax.ir import evaluate


@pytest.fixture(autouse=True)
def interpreted_bodies(monkeypatch):
    for module in ("scan", "loop", "cond"):
        monkeypatch.setattr(f"loopax.ir.{module}.compiled", lambda body: partial(evaluate, body))
