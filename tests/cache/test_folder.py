"""Files of native code: whole or not there, ours or not read, and no more than the limit."""

import os
import stat
import sys

import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax.cache import folder

DATA = bytes(range(256)) * 40

posix = pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")


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


@posix
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


def as_a_link(path, tmp_path):
    path.rename(tmp_path / "theirs")
    path.symlink_to(tmp_path / "theirs")


def as_a_pipe(path, tmp_path):
    path.unlink()
    os.mkfifo(path)


def as_a_device(path, tmp_path):
    path.unlink()
    path.symlink_to("/dev/zero")


def as_a_folder(path, tmp_path):
    path.unlink()
    path.mkdir()


def blown_up(path, tmp_path):
    os.truncate(path, 2**40)  # it takes no room: nothing is in it


@posix
@pytest.mark.parametrize(
    "changed",
    [as_a_link, as_a_pipe, as_a_device, as_a_folder, blown_up, lambda path, _: path.chmod(0o602)],
)
def test_what_is_no_file_of_ours_is_not_read(place, tmp_path, changed):
    """And does not keep the process waiting, or fill its memory."""
    folder.write("key", DATA)
    changed(the_file(place), tmp_path)
    assert folder.read("key") is None
    folder.write("key", DATA)
    assert folder.read("key") == (None if changed is as_a_folder else DATA)
    assert loopax.clear_cache() == (changed is not as_a_folder)


@posix
def test_a_file_of_another_user_is_not_read(place, monkeypatch):
    folder.write("key", DATA)
    own = os.fstat

    def owned_by_another(handle):
        status = own(handle)
        if stat.S_ISDIR(status.st_mode):
            return status
        return os.stat_result([*status[:4], status.st_uid + 1, *status[5:]])

    monkeypatch.setattr(os, "fstat", owned_by_another)
    assert folder.read("key") is None


@posix
def test_a_folder_that_is_exchanged_while_it_is_open(place, tmp_path):
    """By somebody who may write to the folder above."""
    folder.write("key", DATA)
    with folder._opened() as opened:
        place.rename(tmp_path / "ours")
        place.mkdir(mode=0o777)
        (place / "key.native").write_bytes(b"theirs")
        with os.fdopen(opened.open("key.native", os.O_RDONLY), "rb") as file:
            assert file.read().endswith(DATA)


def test_without_places_paths_serve(place, monkeypatch):
    """On Windows no file can be found from a folder that is open."""
    monkeypatch.setattr("loopax.base.private_folder._HAS_DIR_FD", False)
    folder.write("key", DATA)
    assert folder.read("key") == DATA
    folder.remove("key")
    folder.write("other", DATA)
    assert loopax.clear_cache() == 1


def test_what_a_killed_process_was_writing_goes(place, monkeypatch):
    folder.write("key", DATA)
    (place / "key-1234.partial").write_bytes(DATA * 5)
    os.utime(place / "key-1234.partial", (1, 1))
    monkeypatch.setenv("LOOPAX_CACHE_MB", str(3 * len(DATA) / 2**20))
    folder.write("other", DATA)
    assert {path.name for path in place.iterdir()} == {"key.native", "other.native"}
    (place / "other-1234.partial").write_bytes(DATA)
    assert loopax.clear_cache() == 3


def test_a_full_disk(place, monkeypatch):
    folder.write("before", DATA)
    real = os.fdopen

    def full(handle, mode):
        if mode == "wb":
            os.close(handle)
            raise OSError(28, "No space left on device")
        return real(handle, mode)

    monkeypatch.setattr(os, "fdopen", full)
    folder.write("key", DATA)
    assert folder.read("key") is None and folder.read("before") == DATA
    assert [path.name for path in place.iterdir()] == ["before.native"]


@pytest.mark.parametrize("said", ["1GB", "abc", "nan", "-1"])
def test_a_limit_that_is_no_number(place, monkeypatch, said):
    monkeypatch.setenv("LOOPAX_CACHE_MB", said)
    x = pt.dvector("x")
    with pytest.raises(ValueError, match=f"LOOPAX_CACHE_MB.*{said}"):
        loopax.jaxify([x], loopax.scan(lambda s, r: (s + r, None), 0.0, x)[0])(np.ones(2))
    monkeypatch.setenv("LOOPAX_CACHE_DIR", "")
    assert folder.cache_folder() is None


def test_an_empty_limit_is_the_usual_one(place, monkeypatch):
    monkeypatch.setenv("LOOPAX_CACHE_MB", "")
    folder.write("key", DATA)
    assert folder.read("key") == DATA


@posix
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
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert folder.cache_folder() == tmp_path / ".cache" / "loopax"
    monkeypatch.setenv("LOOPAX_CACHE_DIR", "~/mine")
    assert folder.cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("LOOPAX_CACHE_DIR")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert folder.cache_folder() == tmp_path / "Library" / "Caches" / "loopax"


@pytest.mark.parametrize("chosen", [None, "~", "~/mine", "~nobody-of-that-name/mine"])
def test_a_user_without_a_home(monkeypatch, tmp_path, chosen):
    """Has no folder, and none whose name is ``~`` where the program runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOOPAX_CACHE_DIR", raising=False)
    if chosen is not None:
        monkeypatch.setenv("LOOPAX_CACHE_DIR", chosen)
    assert folder.cache_folder() is None
    folder.write("key", DATA)
    assert not list(tmp_path.iterdir())


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
