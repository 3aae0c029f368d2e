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
_LARGEST = 2**28  # bytes of one entry: a file that somebody has blown up is not read into memory
_KEPT = 0.8  # of the limit, once it has been exceeded
_UNSEEN = 0.02  # of the limit: what a process may write before it looks again
_SUFFIX = ".native"
_PARTIAL = ".partial"  # an entry that is being written, or was when its process ended

# A pipe does not keep who opens it waiting, and a link leads nowhere. Windows has none of these.
_CAREFULLY = sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)
_HAS_PLACES = os.open in os.supports_dir_fd and os.scandir in os.supports_fd

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
    with _opened() as place:
        return 0 if place is None else sum(_remove(place, name) for name, _, _ in _entries(place))


def cache_folder() -> Path | None:
    """Where results are kept; None where ``LOOPAX_CACHE_DIR`` is empty, or nobody knows the user's home.

    Raises
    ------
    ValueError
        ``LOOPAX_CACHE_MB`` is no number: it is said here, before anything is compiled and then not kept.
    """
    chosen = os.environ.get("LOOPAX_CACHE_DIR")
    if chosen == "":
        return None
    _limit()
    if chosen is not None:
        # A ``~`` that stays, of a user without a name say, would be a folder of that name.
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
    """What was written for ``key``, or None where there is nothing, or nothing that can be trusted."""
    with _opened() as place, suppress(OSError, MemoryError):
        if place is None:
            return None
        name = key + _SUFFIX
        with os.fdopen(place.open(name, os.O_RDONLY), "rb") as file:
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
                    place.on(os.utime, name)  # it was used last now
                return data
        _remove(place, name)
    return None


def write(key: str, data: bytes) -> None:
    """Keep ``data`` for ``key``. Where that is not possible nothing is kept."""
    # Read-only, or full: a cache is no reason to fail.
    with _opened() as place, suppress(OSError):
        if place is None or len(data) + 32 > _LARGEST:
            return
        # A name of its own first: who reads at the same time sees all of it, or nothing.
        partial = f"{key}-{uuid4().hex}{_PARTIAL}"
        try:
            handle = place.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(key, data) + data)
            place.rename(partial, key + _SUFFIX)
        finally:
            _remove(place, partial)
        _make_room(place, len(data))


def remove(key: str) -> None:
    with _opened() as place:
        if place is not None:
            _remove(place, key + _SUFFIX)


def _digest(key: str, data: bytes) -> bytes:
    """The key counts: a file that has been renamed is somebody else's code."""
    return hashlib.sha256(key.encode() + data).digest()


def _absolute(variable: str) -> Path | None:
    """A folder from the environment. The XDG specification says to ignore one that is relative."""
    path = Path(os.environ.get(variable, ""))
    return path if path.is_absolute() else None


def _limit() -> float:
    """Bytes that the folder may hold."""
    said = os.environ.get("LOOPAX_CACHE_MB") or _MEGABYTES
    try:
        megabytes = float(said)
    except ValueError:
        megabytes = -1.0
    if not megabytes >= 0:
        raise ValueError(
            "LOOPAX_CACHE_MB, how many megabytes loopax may keep on disk, is to be a number such as 1024, "
            f"without a unit. It is {said!r}."
        )
    return megabytes * 2**20


# -- a folder that is open ---------------------------------------------------------------------------


class _Place(NamedTuple):
    """A folder: its path and, where the system can find files in it by that, its descriptor.

    The path may lead to another folder from one moment to the next, where somebody else may write above it.
    """

    path: Path
    descriptor: int | None

    def on(self, function: Callable[..., Any], name: str, *args: Any) -> Any:
        if self.descriptor is None:
            return function(self.path / name, *args)
        return function(name, *args, dir_fd=self.descriptor)

    def open(self, name: str, flags: int) -> int:
        handle: int = self.on(os.open, name, flags | _CAREFULLY, 0o600)
        return handle

    def rename(self, old: str, new: str) -> None:
        if self.descriptor is None:
            os.replace(self.path / old, self.path / new)
        else:
            os.replace(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)


@contextmanager
def _opened() -> Iterator[_Place | None]:
    """The folder, if it is there and nobody else can have written to it: what is in it is run."""
    folder = cache_folder()
    place = None if folder is None else _place(folder)
    try:
        yield place
    finally:
        if place is not None and place.descriptor is not None:
            os.close(place.descriptor)


def _place(folder: Path) -> _Place | None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _HAS_PLACES:
            return _Place(folder, None) if _is_ours(folder.stat()) else None
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    if _is_ours(os.fstat(descriptor)):
        return _Place(folder, descriptor)
    os.close(descriptor)
    return None


def _is_ours(status: os.stat_result) -> bool:
    """Whether this user alone may write to it."""
    others = stat.S_IWGRP | stat.S_IWOTH
    return os.name != "posix" or (status.st_uid == os.getuid() and not status.st_mode & others)


def _make_room(place: _Place, written: float) -> None:
    """Remove what was used longest ago, where the files are more than the limit.

    To look through a folder of 20,000 takes a fifth of a second: not for each file that is ``written``.
    """
    limit = _limit()
    _written[place.path] = _written.get(place.path, limit) + written
    if _written[place.path] <= _UNSEEN * limit:
        return
    _written[place.path] = 0.0
    entries = sorted(_entries(place), key=lambda entry: entry[1])
    total = sum(size for _, _, size in entries)
    if total <= limit:
        return
    for name, _, size in entries:
        if total <= _KEPT * limit:
            return
        total -= size * _remove(place, name)


def _entries(place: _Place) -> list[tuple[str, float, int]]:
    """Each file with the time it was used last, and its size in bytes."""
    entries = []
    with (
        suppress(OSError),
        os.scandir(place.path if place.descriptor is None else place.descriptor) as files,
    ):
        for file in files:
            if file.name.endswith((_SUFFIX, _PARTIAL)):
                with suppress(OSError):  # another process has removed it
                    status = file.stat(follow_symlinks=False)
                    entries.append((file.name, status.st_mtime, status.st_size))
    return entries


def _remove(place: _Place, name: str) -> bool:
    try:
        place.on(os.unlink, name)
    except OSError:
        return False
    return True
