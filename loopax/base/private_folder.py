"""A folder that only its owner can write to, with atomically written files, and locks."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

PARTIAL = ".partial"  # the suffix of a file that is being written, or was when its process ended

# Opening a pipe does not block, and a link is not followed. Windows has none of these flags.
_SAFE_FLAGS = sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)
_HAS_DIR_FD = os.open in os.supports_dir_fd and os.scandir in os.supports_fd


class PrivateFolder(NamedTuple):
    """A folder with its path and, where the system resolves names relative to one, its descriptor.

    If somebody else may write to a parent, the path may lead to another folder at any moment.
    """

    path: Path
    descriptor: int | None

    def on(self, function: Callable[..., Any], name: str, *args: int) -> Any:
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

    def read(self, name: str, largest: int | None = None) -> bytes | None:
        """The bytes of a file; None if it is not regular, not the owner's alone, or too large.

        Raises `OSError` if there is no such file, or it is a link.
        """
        with os.fdopen(self.open(name, os.O_RDONLY), "rb") as file:
            status = os.fstat(file.fileno())
            size = status.st_size
            too_large = largest is not None and size > largest
            if not stat.S_ISREG(status.st_mode) or not is_private(status) or too_large:
                return None
            return file.read(size)

    def write(self, name: str, data: bytes, *, sync: bool = False) -> None:
        """Write a file atomically: a reader, or a process that is killed, sees all of it or none.

        ``sync`` waits until the disk has it, for files that must survive a loss of power.
        """
        partial = f"{name}-{uuid4().hex}{PARTIAL}"
        try:
            handle = self.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            self.rename(partial, name)
        finally:
            self.remove(partial)

    def remove(self, name: str) -> bool:
        try:
            self.on(os.unlink, name)
        except OSError:
            return False
        return True

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path if self.descriptor is None else self.descriptor))

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def private_folder(path: Path) -> PrivateFolder | None:
    """The open folder, made if there is none; None if others may write to it.

    Raises `OSError` if it cannot be made or opened.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _HAS_DIR_FD:
        return PrivateFolder(path, None) if is_private(path.stat()) else None
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if is_private(os.fstat(descriptor)):
        return PrivateFolder(path, descriptor)
    os.close(descriptor)
    return None


def is_private(status: os.stat_result) -> bool:
    """Whether a file belongs to this user, and nobody else may write to it."""
    other_writers = stat.S_IWGRP | stat.S_IWOTH
    return os.name != "posix" or (
        status.st_uid == os.getuid() and not status.st_mode & other_writers
    )


# -- locks -------------------------------------------------------------------------------------------

_held: set[int] = set()  # descriptors of locks


@contextmanager
def locked(folder: PrivateFolder, name: str) -> Iterator[None]:
    """Hold the lock ``name`` in the block. The system releases it when the process ends, however it ends.

    Raises `BlockingIOError` if another process, or another thread of this one, holds it; the
    message identifies the holder.
    """
    handle = folder.open(name, os.O_RDWR | os.O_CREAT)
    try:
        try:
            _lock(handle)
        except OSError as error:
            raise BlockingIOError(os.read(handle, 100).decode(errors="replace")) from error
        _held.add(handle)
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()}".encode())
        yield
    finally:
        _held.discard(handle)
        os.close(handle)


if os.name == "posix":
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _leave_locks() -> None:
        # A forked child shares the lock: without this, it would hold it after its parent's end.
        while _held:
            with suppress(OSError):
                os.close(_held.pop())

    os.register_at_fork(after_in_child=_leave_locks)
else:

    def _lock(handle: int) -> None:
        import msvcrt

        # One byte far behind the text, which others read.
        os.lseek(handle, 2**20, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        os.lseek(handle, 0, os.SEEK_SET)
