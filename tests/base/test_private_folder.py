"""Folders of one user: files that appear whole, and locks that end with their process."""

import os
import signal
import subprocess
import sys

import pytest

from loopax.base.private_folder import locked, private_folder

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has neither modes nor forks")

HOLDS = """
import os, sys, time
from pathlib import Path
from loopax.base.private_folder import locked, private_folder
with locked(private_folder(Path(sys.argv[1])), "lock"):
    if sys.argv[2] == "fork" and os.fork() == 0:
        print("holds", flush=True)
        sys.stdin.read()  # it outlives its parent
        os._exit(0)
    if sys.argv[2] != "fork":
        print("holds", flush=True)
    time.sleep(600)
"""


def test_a_file_is_written_at_once(tmp_path, monkeypatch):
    folder = private_folder(tmp_path / "new" / "folder")
    folder.write("a", b"first")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        folder.write("a", b"second", sync=True)
    assert folder.read("a") == b"first"
    assert folder.names() == ["a"]  # and nothing of the second
    assert folder.read("a", largest=4) is None
    assert folder.remove("a") and not folder.remove("a")
    folder.close()


@posix
def test_what_others_may_write_is_refused(tmp_path):
    place = tmp_path / "folder"
    folder = private_folder(place)
    folder.write("a", b"data")
    (place / "a").chmod(0o620)
    assert folder.read("a") is None
    os.mkfifo(place / "pipe")
    assert folder.read("pipe") is None
    (place / "link").symlink_to(place / "a")
    with pytest.raises(OSError):
        folder.read("link")
    folder.close()
    place.chmod(0o770)
    assert private_folder(place) is None


def test_a_lock_has_one_holder(tmp_path):
    folder = private_folder(tmp_path)
    with (
        locked(folder, "lock"),
        pytest.raises(BlockingIOError, match=f"process {os.getpid()}"),
        locked(folder, "lock"),
    ):
        pass
    with locked(folder, "lock"):
        pass


@pytest.mark.slow
@posix
@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_lock_ends_with_its_process(tmp_path, how):
    """However it ends, and though a child that it has forked goes on."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path), how]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == b"holds\n"
        folder = private_folder(tmp_path)
        with pytest.raises(BlockingIOError, match=f"process {process.pid}"), locked(folder, "lock"):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with locked(folder, "lock"):
            pass
