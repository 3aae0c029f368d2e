"""A folder of bytes by name, shared by all processes of a user, of limited size."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from loopax.base.private_folder import PARTIAL, PrivateFolder, private_folder

_MEGABYTES = 1024.0  # unless the environment says otherwise
_LARGEST = 2**28  # bytes of one entry: a larger file, which is not ours, is not read into memory
_KEPT = 0.8  # share of the limit that remains once it has been exceeded
_SLACK = 0.02  # share of the limit that a process may write before it lists the folder again
_SUFFIX = ".native"

_written: dict[Path, float] = {}  # bytes written by this process since it listed a folder
_is_off = ContextVar("_is_off", default=False)


def clear_cache() -> int:
    """Remove all native code and all lowered graphs from the disk; return the number of files removed.

    A process keeps the code that it has loaded.

    Examples
    --------
    >>> import loopax
    >>> removed = loopax.clear_cache()
    >>> loopax.clear_cache()
    0
    """
    with _opened() as folder:
        return 0 if folder is None else sum(folder.remove(name) for name, _, _ in _entries(folder))


@contextmanager
def without_disk() -> Iterator[None]:
    """A block that neither reads nor writes the folder."""
    token = _is_off.set(True)
    try:
        yield
    finally:
        _is_off.reset(token)


def cache_folder() -> Path | None:
    """The folder of results; None in `without_disk`, for an empty ``LOOPAX_CACHE_DIR``, or without a home.

    Raises `ValueError` if ``LOOPAX_CACHE_MB`` is not a number: raised here, before compiling a result
    that cannot be kept.
    """
    chosen = os.environ.get("LOOPAX_CACHE_DIR")
    if chosen == "" or _is_off.get():
        return None
    _limit()
    if chosen is not None:
        # A ``~`` that cannot be expanded would be a folder of that name.
        path = os.path.expanduser(chosen)
        return None if path.startswith("~") else Path(path)
    home = Path(os.path.expanduser("~"))
    if sys.platform == "darwin":
        base = home / "Library" / "Caches"
    elif sys.platform == "win32":
        base = _absolute("LOCALAPPDATA") or home / "AppData" / "Local"
    else:
        base = _absolute("XDG_CACHE_HOME") or home / ".cache"
    return base / "loopax" if base.is_absolute() else None


def read(key: str) -> bytes | None:
    """The data written for ``key``; None where there is none, or none that can be trusted."""
    with _opened() as folder, suppress(OSError, MemoryError):
        if folder is None:
            return None
        name = key + _SUFFIX
        content = folder.read(name, _LARGEST)
        if content is None:
            return None
        digest, data = content[:32], content[32:]
        if digest == _digest(key, data):
            with suppress(OSError):
                folder.on(os.utime, name)  # mark it as used now
            return data
        folder.remove(name)
    return None


def write(key: str, data: bytes) -> None:
    """Keep ``data`` for ``key``, where that is possible."""
    # A folder that is read-only, or full, is no reason to fail.
    with _opened() as folder, suppress(OSError):
        if folder is None or len(data) + 32 > _LARGEST:
            return
        folder.write(key + _SUFFIX, _digest(key, data) + data)
        _make_room(folder, len(data))


def remove(key: str) -> None:
    with _opened() as folder:
        if folder is not None:
            folder.remove(key + _SUFFIX)


def _digest(key: str, data: bytes) -> bytes:
    """The digest of a file's data and key: renaming a file invalidates it."""
    return hashlib.sha256(key.encode() + data).digest()


def _absolute(variable: str) -> Path | None:
    """A folder from the environment; None where it is relative, as the XDG specification demands."""
    path = Path(os.environ.get(variable, ""))
    return path if path.is_absolute() else None


def _limit() -> float:
    """The bytes that the folder may hold."""
    setting = os.environ.get("LOOPAX_CACHE_MB") or _MEGABYTES
    try:
        megabytes = float(setting)
    except ValueError:
        megabytes = -1.0
    if not megabytes >= 0:
        raise ValueError(
            "LOOPAX_CACHE_MB must be a number of megabytes without a unit, such as 1024, but it is "
            f"{setting!r}. loopax keeps at most this much on disk."
        )
    return megabytes * 2**20


# -- a folder that is open ---------------------------------------------------------------------------


@contextmanager
def _opened() -> Iterator[PrivateFolder | None]:
    """The open folder, if it exists and nobody else can write to it: its contents are executed."""
    path = cache_folder()
    folder = None
    if path is not None:
        with suppress(OSError):
            folder = private_folder(path)
    try:
        yield folder
    finally:
        if folder is not None:
            folder.close()


def _make_room(folder: PrivateFolder, n_bytes: float) -> None:
    """Remove the files used longest ago if all together exceed the limit.

    Listing a folder of 20,000 files takes a fifth of a second, too long for each write of ``n_bytes``.
    """
    limit = _limit()
    _written[folder.path] = _written.get(folder.path, limit) + n_bytes
    if _written[folder.path] <= _SLACK * limit:
        return
    _written[folder.path] = 0.0
    entries = sorted(_entries(folder), key=lambda entry: entry[1])
    total = sum(size for _, _, size in entries)
    if total <= limit:
        return
    for name, _, size in entries:
        if total <= _KEPT * limit:
            return
        total -= size * folder.remove(name)


def _entries(folder: PrivateFolder) -> list[tuple[str, float, int]]:
    """The files, each with the time of its last use and its size in bytes."""
    entries = []
    with (
        suppress(OSError),
        os.scandir(folder.path if folder.descriptor is None else folder.descriptor) as files,
    ):
        for file in files:
            if file.name.endswith((_SUFFIX, PARTIAL)):
                with suppress(OSError):  # another process has removed it
                    status = file.stat(follow_symlinks=False)
                    entries.append((file.name, status.st_mtime, status.st_size))
    return entries
