"""A folder of bytes by name, shared by all processes of a user, of limited size."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

_MEGABYTES = 1024.0  # unless the environment says otherwise
_LARGEST = 2**28  # bytes of one entry: a larger file, which is not ours, is not read into memory
_KEPT = 0.8  # share of the limit that remains once it has been exceeded
_SLACK = 0.02  # share of the limit that a process may write before it lists the folder again
_SUFFIX = ".native"
_PARTIAL = ".partial"  # an entry that is being written, or was when its process ended

# Opening a pipe does not block, and a link is not followed. Windows has none of these flags.
_SAFE_FLAGS = sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)
_HAS_DIR_FD = os.open in os.supports_dir_fd and os.scandir in os.supports_fd

_written: dict[Path, float] = {}  # bytes written by this process since it listed a folder


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
        return (
            0 if folder is None else sum(_remove(folder, name) for name, _, _ in _entries(folder))
        )


def cache_folder() -> Path | None:
    """The folder of results; None where ``LOOPAX_CACHE_DIR`` is empty, or there is no home directory.

    Raises
    ------
    ValueError
        ``LOOPAX_CACHE_MB`` is no number: raised here, before compiling a result that cannot be kept.
    """
    chosen = os.environ.get("LOOPAX_CACHE_DIR")
    if chosen == "":
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
        with os.fdopen(folder.open(name, os.O_RDONLY), "rb") as file:
            status = os.fstat(file.fileno())
            if (
                not stat.S_ISREG(status.st_mode)
                or not _is_ours(status)
                or status.st_size > _LARGEST
            ):
                return None
            content = file.read(_LARGEST)
            digest, data = content[:32], content[32:]
            if digest == _digest(key, data):
                with suppress(OSError):
                    folder.on(os.utime, name)  # mark it as used now
                return data
        _remove(folder, name)
    return None


def write(key: str, data: bytes) -> None:
    """Keep ``data`` for ``key``, where that is possible."""
    # A folder that is read-only, or full, is no reason to fail.
    with _opened() as folder, suppress(OSError):
        if folder is None or len(data) + 32 > _LARGEST:
            return
        # A unique name first: a concurrent reader sees the whole file, or none.
        partial = f"{key}-{uuid4().hex}{_PARTIAL}"
        try:
            handle = folder.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(key, data) + data)
            folder.rename(partial, key + _SUFFIX)
        finally:
            _remove(folder, partial)
        _make_room(folder, len(data))


def remove(key: str) -> None:
    with _opened() as folder:
        if folder is not None:
            _remove(folder, key + _SUFFIX)


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
            "LOOPAX_CACHE_MB, the megabytes that loopax may keep on disk, must be a number such as "
            f"1024, without a unit. It is {setting!r}."
        )
    return megabytes * 2**20


# -- a folder that is open ---------------------------------------------------------------------------


class _OpenFolder(NamedTuple):
    """A folder with its path and, where the system resolves names relative to one, its descriptor.

    The path may lead to another folder at any moment, where somebody else may write to a parent.
    """

    path: Path
    descriptor: int | None

    def on(self, function: Callable[..., Any], name: str, *args: Any) -> Any:
        if self.descriptor is None:
            return function(self.path / name, *args)
        return function(name, *args, dir_fd=self.descriptor)

    def open(self, name: str, flags: int) -> int:
        handle: int = self.on(os.open, name, flags | _SAFE_FLAGS, 0o600)
        return handle

    def rename(self, old: str, new: str) -> None:
        if self.descriptor is None:
            os.replace(self.path / old, self.path / new)
        else:
            os.replace(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)


@contextmanager
def _opened() -> Iterator[_OpenFolder | None]:
    """The open folder, if it exists and nobody else can write to it: its contents are executed."""
    path = cache_folder()
    folder = None if path is None else _open_folder(path)
    try:
        yield folder
    finally:
        if folder is not None and folder.descriptor is not None:
            os.close(folder.descriptor)


def _open_folder(path: Path) -> _OpenFolder | None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _HAS_DIR_FD:
            return _OpenFolder(path, None) if _is_ours(path.stat()) else None
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    if _is_ours(os.fstat(descriptor)):
        return _OpenFolder(path, descriptor)
    os.close(descriptor)
    return None


def _is_ours(status: os.stat_result) -> bool:
    """Whether a file belongs to this user, and nobody else may write to it."""
    other_writers = stat.S_IWGRP | stat.S_IWOTH
    return os.name != "posix" or (
        status.st_uid == os.getuid() and not status.st_mode & other_writers
    )


def _make_room(folder: _OpenFolder, n_bytes: float) -> None:
    """Remove the files used longest ago, where all together exceed the limit.

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
        total -= size * _remove(folder, name)


def _entries(folder: _OpenFolder) -> list[tuple[str, float, int]]:
    """The files, each with the time of its last use and its size in bytes."""
    entries = []
    with (
        suppress(OSError),
        os.scandir(folder.path if folder.descriptor is None else folder.descriptor) as files,
    ):
        for file in files:
            if file.name.endswith((_SUFFIX, _PARTIAL)):
                with suppress(OSError):  # another process has removed it
                    status = file.stat(follow_symlinks=False)
                    entries.append((file.name, status.st_mtime, status.st_size))
    return entries


def _remove(folder: _OpenFolder, name: str) -> bool:
    try:
        folder.on(os.unlink, name)
    except OSError:
        return False
    return True
