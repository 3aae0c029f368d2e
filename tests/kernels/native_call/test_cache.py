"""``native(..., cache=False)`` neither reads nor writes the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

import loopax
from loopax.cache import folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.setenv("LOOPAX_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


def fast(by: float, **options: Any) -> Any:
    """A loop whose code no other test has compiled in this process."""
    return loopax.native(
        lambda x: lax.scan(lambda c, _: (by * c + 0.1875, None), x, None, length=7)[0],
        loops="native",
        **options,
    )


def test_code_is_kept_by_default(place: Path) -> None:
    fast(0.40625)(jnp.ones(3))
    assert list(place.iterdir())


def test_without_the_cache_the_disk_is_not_used(place: Path, monkeypatch: Any) -> None:
    read: list[str] = []
    monkeypatch.setattr(folder, "private_folder", lambda path: read.append(path))
    f = fast(0.34375, cache=False)
    f(jnp.ones(3))
    assert loopax.explain(f).are_native
    assert not read
    assert not place.exists()


def test_the_setting_ends_with_the_compilation(place: Path) -> None:
    fast(0.28125, cache=False)(jnp.ones(3))
    assert folder.cache_folder() == place


def test_another_value_is_refused() -> None:
    with pytest.raises(TypeError, match="cache must be True or False, got 'no'"):
        fast(1.0, cache="no")
