"""A folder of bytes by name, shared by all processes of a user, of limited size."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LARGEST = 1024.0  # megabytes, unless the environment says otherwise
_KEPT = 0.8  # of that, once it has been exceeded
_UNSEEN = 0.02  # of that: what a process may write before it looks again
_SUFFIX = ".native"

_written: dict[Path, float] = {}  # by this process since it looked through a folder, bytes


def clear_cache() -> int:
    """Remove all native code and all lowered graphs from the disk, and return how many files that were.

    What has been loaded into a process stays there.

    Examples
    --------
    >>> import loopax
    >>> removed = loopax.clear_cache()
    >>> loopax.clear_cache()
    0
    """
    folder = cache_folder()
    return 0 if folder is None else sum(_remove(path) for path, _, _ in list(_entries(folder)))


def cache_folder() -> Path | None:
    """Where results are kept; None where the environment's ``LOOPAX_CACHE_DIR`` is empty."""
    chosen = os.environ.get("LOOPAX_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    home = Path(os.path.expanduser("~"))
    if sys.platform == "darwin":
        base = home / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "loopax"


def read(key: str) -> bytes | None:
    """What was written for ``key``, or None where there is nothing, or nothing that can be trusted."""
    path = _path(key)
    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, data = content[:32], content[32:]
    if digest != _digest(key, data):
        _remove(path)
        return None
    with suppress(OSError):
        os.utime(path)  # it was used last now
    return data


def write(key: str, data: bytes) -> None:
    """Keep ``data`` for ``key``. Where that is not possible nothing is kept."""
    path = _path(key)
    if path is None:
        return
    try:
        # A name of its own first: who reads at the same time sees all of it, or nothing.
        handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(key, data) + data)
            os.replace(partial, path)
        finally:
            with suppress(OSError):
                os.unlink(partial)
        _make_room(path.parent, len(data))
    except OSError:
        pass  # read-only, or full: a cache is no reason to fail


def remove(key: str) -> None:
    path = _path(key)
    if path is not None:
        _remove(path)


def _digest(key: str, data: bytes) -> bytes:
    """The key counts: a file that has been renamed is somebody else's code."""
    return hashlib.sha256(key.encode() + data).digest()


def _path(key: str) -> Path | None:
    folder = cache_folder()
    return folder / f"{key}{_SUFFIX}" if folder is not None and _is_ours(folder) else None


def _is_ours(folder: Path) -> bool:
    """Whether the folder is there and nobody else can have written to it: what is in it is run."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    if os.name != "posix":
        return True
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.getuid() and not status.st_mode & others


def _make_room(folder: Path, written: float) -> None:
    """Remove what was used longest ago, where the files are more than the limit.

    To look through a folder of 20,000 takes a fifth of a second: not for each file that is ``written``.
    """
    limit = float(os.environ.get("LOOPAX_CACHE_MB", _LARGEST)) * 2**20
    _written[folder] = _written.get(folder, limit) + written
    if _written[folder] <= _UNSEEN * limit:
        return
    _written[folder] = 0.0
    entries = sorted(_entries(folder), key=lambda entry: entry[1])
    total = sum(size for _, _, size in entries)
    if total <= limit:
        return
    for path, _, size in entries:
        if total <= _KEPT * limit:
            return
        total -= size * _remove(path)


def _entries(folder: Path) -> Iterator[tuple[Path, float, int]]:
    """Each file with the time it was used last, and its size in bytes."""
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):  # another process has removed it
            status = path.stat()
            yield path, status.st_mtime, status.st_size


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
