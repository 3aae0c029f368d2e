"""Files of native code: whole or not there, ours or not read, and no more than the limit."""

import os
import stat
import sys

import pytest

import loopax
from loopax.cache import folder

DATA = bytes(range(256)) * 40


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOPAX_CACHE_DIR", str(tmp_path / "native"))
    return tmp_path / "native"


def the_file(place):
    [path] = place.iterdir()
    return path


def test_what_is_written_is_read(place):
    assert folder.read("key") is None
    folder.write("key", DATA)
    assert folder.read("key") == DATA
    folder.write("key", DATA[:9])
    assert folder.read("key") == DATA[:9]
    assert the_file(place).name == "key.native"
    folder.remove("key")
    assert folder.read("key") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:20],
        lambda content: b"",
        lambda content: content + b"\0",
        lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
        lambda content: bytes([content[0] ^ 1]) + content[1:],
    ],
    ids=["cut off", "no data", "empty", "longer", "a bit of the data", "a bit of the digest"],
)
def test_a_damaged_file_is_not_read_and_goes(place, damage):
    folder.write("key", DATA)
    path = the_file(place)
    path.write_bytes(damage(path.read_bytes()))
    assert folder.read("key") is None
    assert not path.exists()


def test_a_file_under_another_name_is_not_read(place):
    folder.write("key", DATA)
    the_file(place).rename(place / "other.native")
    assert folder.read("other") is None


@pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")
def test_a_folder_that_others_may_write_to_is_not_used(place):
    place.mkdir()
    place.chmod(0o777)
    folder.write("key", DATA)
    assert not list(place.iterdir()) and folder.read("key") is None
    place.chmod(0o700)
    folder.write("key", DATA)
    assert folder.read("key") == DATA
    place.chmod(0o720)
    assert folder.read("key") is None


@pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")
def test_the_folder_is_the_users_own(place):
    folder.write("key", DATA)
    assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0


def test_without_a_folder_nothing_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("LOOPAX_CACHE_DIR", "")
    folder.write("key", DATA)
    assert folder.read("key") is None and loopax.clear_cache() == 0
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("LOOPAX_CACHE_DIR", str(tmp_path / "file"))
    folder.write("key", DATA)
    assert folder.read("key") is None and loopax.clear_cache() == 0


def test_the_folder_is_the_platforms(monkeypatch, tmp_path):
    monkeypatch.delenv("LOOPAX_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert folder.cache_folder() == tmp_path / "cache" / "loopax"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert folder.cache_folder() == tmp_path / ".cache" / "loopax"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert folder.cache_folder() == tmp_path / "Library" / "Caches" / "loopax"


def test_what_was_used_longest_ago_goes_first(place, monkeypatch):
    monkeypatch.setenv("LOOPAX_CACHE_MB", str(5.5 * len(DATA) / 2**20))
    for k in range(5):
        folder.write(f"key{k}", DATA)
        os.utime(place / f"key{k}.native", (k, k))
    assert folder.read("key0") == DATA  # used now
    folder.write("key5", DATA)
    left = {path.stem for path in place.iterdir()}
    assert {"key0", "key5"} <= left and "key1" not in left
    assert sum(path.stat().st_size for path in place.iterdir()) <= 0.8 * 5.5 * len(DATA)


def test_clear_cache(place):
    for k in range(3):
        folder.write(f"key{k}", DATA)
    (place / "notes.txt").write_text("not ours")
    assert loopax.clear_cache() == 3
    assert [path.name for path in place.iterdir()] == ["notes.txt"]
    assert loopax.clear_cache() == 0
