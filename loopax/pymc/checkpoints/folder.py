"""The folder of a checkpoint: the description of a run, and its draws with the sampler's state after them.

    lock                 held by the process that draws run.json             all that the draws depend on,
    by name; and random bits, the seed of a run without one chains.000000.npz    a block of draws: arrays
    chains.000001.npz chains.state.npz     the state of the sampler after the last block, and the number of
    blocks

A block is written before the state that counts it, and each file appears atomically. So whenever the
process is killed, the state and the blocks that it counts belong together; a block that it does not count
is written again. Each file has a digest of its content, its name and the run: a file that is damaged, or of
another run, is refused. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from loopax.base.errors import LoopaxError
from loopax.base.private_folder import PARTIAL, PrivateFolder, locked, private_folder
from loopax.calling.context_file import write_arrays

_FORMAT = 1
_RUN, _LOCK, _STATE = "run.json", "lock", ".state.npz"
_DIGEST, _N_BLOCKS = "digest", "number of blocks"
_LARGEST_RUN = 2**24  # bytes of run.json

Arrays = Mapping[str, np.ndarray]


class CheckpointError(LoopaxError, ValueError):
    """A checkpoint cannot be written, or the folder belongs to another run, is damaged or is in use."""


class Checkpoint:
    """The folder of one run, open and locked.

    Attributes
    ----------
    path
        The folder.
    entropy
        A random number, drawn when the folder was made: the seed of a run that was given none.
    """

    def __init__(self, folder: PrivateFolder, run: bytes, entropy: int) -> None:
        self.path, self.entropy = folder.path, entropy
        self._folder, self._run = folder, run

    def __reduce__(self) -> Any:
        # For the processes of chains, which only read, and leave the lock to their parent.
        return _opened_to_read, (self.path, self._run, self.entropy)

    @property
    def has_draws(self) -> bool:
        """Whether any state has been written."""
        return _has_draws(self._folder)

    def record(self, name: str) -> Record:
        """The record of one name: of a chain, or of several that run in one program."""
        return Record(self, name)

    def read(self, name: str) -> dict[str, np.ndarray] | None:
        """The arrays of a file; None if there is no such file."""
        data = _bytes_in(self._folder, name)
        if data is None:
            return None
        try:
            arrays = _unpacked(data)
            digest = arrays.pop(_DIGEST).tobytes()
        except Exception as error:  # whatever NumPy raises for bytes that are no archive of arrays
            raise _damaged(self.path / name, f"{type(error).__name__}: {error}") from error
        if digest != self._digest(name, arrays):
            raise _damaged(self.path / name, "its digest does not match this run and this content")
        return arrays

    def write(self, name: str, arrays: Arrays) -> None:
        """Write a file of arrays, atomically."""
        whole = {**arrays, _DIGEST: np.frombuffer(self._digest(name, arrays), np.uint8)}
        buffer = io.BytesIO()
        write_arrays(buffer, whole.items())
        self._folder.write(name, buffer.getvalue(), sync=True)

    def _digest(self, name: str, arrays: Arrays) -> bytes:
        digest = hashlib.sha256(self._run)
        for key, x in [(name, np.empty(0)), *sorted(arrays.items())]:
            digest.update(f"\0{key!r} {x.dtype.str} {x.shape}\0".encode())
            digest.update(np.ascontiguousarray(x).tobytes())
        return digest.digest()


class Record:
    """Blocks of draws of one name, in order, and the state of the sampler after the last one."""

    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        self._checkpoint, self._name = checkpoint, name
        state = checkpoint.read(name + _STATE)
        n_blocks = None if state is None else state.pop(_N_BLOCKS, None)
        if state is not None and (n_blocks is None or n_blocks.shape or n_blocks.dtype != int):
            raise _damaged(checkpoint.path / f"{name}{_STATE}", "it counts no blocks")
        self.state: dict[str, np.ndarray] | None = state
        self.n_blocks = 0 if n_blocks is None else int(n_blocks)

    def append(self, block: Arrays, state: Arrays) -> None:
        """Store a block, if it has any arrays, and the state after it."""
        if block:
            self._checkpoint.write(self._block(self.n_blocks), block)
            self.n_blocks += 1
        n_blocks = {_N_BLOCKS: np.array(self.n_blocks)}
        self._checkpoint.write(self._name + _STATE, {**state, **n_blocks})
        self.state = dict(state)

    def blocks(self) -> Iterator[dict[str, np.ndarray]]:
        """The blocks that were kept, in order."""
        for k in range(self.n_blocks):
            block = self._checkpoint.read(self._block(k))
            if block is None:
                raise _damaged(self._checkpoint.path / self._block(k), "it is missing")
            yield block

    def _block(self, k: int) -> str:
        return f"{self._name}.{k:06d}.npz"


@contextmanager
def checkpoint(path: str | os.PathLike[str], parts: Mapping[str, str]) -> Iterator[Checkpoint]:
    """The folder of a run, made if there is none, and locked in the block.

    Parameters
    ----------
    parts
        All that the draws depend on, by name, as text that is equal if the draws are.

    Raises
    ------
    CheckpointError
        The folder belongs to another run, is in use, damaged, no checkpoint, or open to others.
    """
    place = Path(path).expanduser()
    try:
        folder = private_folder(place)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint={str(place)!r} is not a folder that loopax can write to: {error}."
        ) from error
    if folder is None:
        raise CheckpointError(
            f"The folder {str(place)!r} belongs to another user, or others may write to it, and its "
            "files become your result. Use a folder that only you can write to, chmod go-w."
        )
    try:
        _refuse_foreign(folder)
        with _locked(folder):
            for name in folder.names():
                if name.endswith(PARTIAL):  # of a process that was killed
                    folder.remove(name)
            run = _run(folder, parts)
            yield Checkpoint(folder, run, int(json.loads(run)["entropy"]))
    finally:
        folder.close()


def _opened_to_read(path: Path, run: bytes, entropy: int) -> Checkpoint:
    folder = private_folder(path)
    if folder is None:
        raise _damaged(path, "others may write to it")
    return Checkpoint(folder, run, entropy)


@contextmanager
def _locked(folder: PrivateFolder) -> Iterator[None]:
    lock = locked(folder, _LOCK)
    try:
        lock.__enter__()
    except BlockingIOError as error:
        raise CheckpointError(
            f"The folder {str(folder.path)!r} is in use by {error or 'another process'}: wait until it "
            "ends, or name another folder."
        ) from None
    except OSError as error:
        raise _damaged(folder.path / _LOCK, str(error)) from error
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _refuse_foreign(folder: PrivateFolder) -> None:
    names = [n for n in folder.names() if n != _LOCK and not n.endswith(PARTIAL)]
    if names and _RUN not in names:
        raise CheckpointError(
            f"The folder {str(folder.path)!r} is not a checkpoint: it has no {_RUN}, but {names[0]!r}. "
            "Name a folder that is empty or does not exist."
        )


def _has_draws(folder: PrivateFolder) -> bool:
    return any(name.endswith(_STATE) for name in folder.names())


def _run(folder: PrivateFolder, parts: Mapping[str, str]) -> bytes:
    """The content of run.json, written if there is none, and compared with ``parts``."""
    data = _bytes_in(folder, _RUN, _LARGEST_RUN)
    differences = [] if data is None else _differences(_parts(folder, data), parts)
    if differences and _has_draws(folder):
        raise CheckpointError(
            f"The folder {str(folder.path)!r} holds another run:\n  "
            + "\n  ".join(differences)
            + "\nCall sample as that run did to go on with it, or name another folder, checkpoint="
            f"{str(folder.path) + '-2'!r}."
        )
    if data is None or differences:
        run = {"format": _FORMAT, "entropy": str(secrets.randbits(64)), "parts": dict(parts)}
        data = json.dumps(run, indent=1).encode()
        folder.write(_RUN, data, sync=True)
    return data


def _bytes_in(folder: PrivateFolder, name: str, largest: int | None = None) -> bytes | None:
    """The content of a file of ``folder``; None if there is no such file."""
    try:
        data = folder.read(name, largest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(folder.path / name, str(error)) from error
    if data is None:
        raise _damaged(folder.path / name, "it is no file of this user alone")
    return data


def _parts(folder: PrivateFolder, data: bytes) -> dict[str, str]:
    try:
        run = json.loads(data)
        parts, written = {str(k): str(v) for k, v in run["parts"].items()}, run["format"]
        int(run["entropy"])
    except Exception as error:  # of JSON, or of another form of it
        raise _damaged(folder.path / _RUN, f"{type(error).__name__}: {error}") from error
    if written != _FORMAT:
        raise CheckpointError(
            f"The folder {str(folder.path)!r} has format {written!r}, but this loopax reads {_FORMAT}. "
            "Resume with the version of loopax that began the run, or name another folder."
        )
    return parts


def _differences(old_parts: Mapping[str, str], parts: Mapping[str, str]) -> list[str]:
    lines = {}
    for name in sorted({*old_parts, *parts}):
        old, new = old_parts.get(name), parts.get(name)
        if old == new:
            continue
        if old is None or new is None:
            lines[name] = f"{name}: {'not there' if old is None else old}, now {new or 'not there'}"
        elif old.startswith("sha256 "):
            lines[name] = f"{name}: other content"
        else:
            lines[name] = f"{name}: {old}, now {new}"
    # Data are parts of the model as well, and the start of a chain follows from both.
    if any(name.startswith("data ") for name in lines):
        lines.pop("model", None)
    if len(lines) > 1:
        lines.pop("initial point", None)
    return list(lines.values())


def _unpacked(data: bytes) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise ValueError("compressed")  # a small file could fill the memory
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        unpacked: dict[str, np.ndarray] = {name: arrays[name] for name in arrays.files}
    return unpacked


def _damaged(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{str(path)!r} cannot be read as part of a checkpoint: {reason}. Its draws are not used. Remove "
        "the folder, or name another one, to draw from the beginning."
    )
