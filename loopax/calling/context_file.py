"""A context in an ``.npz`` file: arrays by name."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable
from typing import IO

import numpy as np

from loopax.base.errors import LoopTypeError


def write_arrays(
    file: str | os.PathLike[str] | IO[bytes], arrays: Iterable[tuple[str, np.ndarray]]
) -> None:
    # Not np.savez: variables may have the names of its own arguments.
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, data, allow_pickle=False)


def read_arrays(file: str | os.PathLike[str] | IO[bytes]) -> dict[str, np.ndarray]:
    """The arrays that `write_arrays` wrote, by name."""
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def refuse_names(names: Iterable[str], expected: Iterable[str]) -> None:
    """Raise where a file has other names than the context expects."""
    if {*names} != {*expected}:
        raise LoopTypeError(
            f"The file has the values {sorted(names)}, but the context has {sorted(expected)}. Restore "
            "into a context of the function that saved the file."
        )


def refuse_data(name: str, dtype: np.dtype, ndim: int, data: np.ndarray) -> None:
    """Raise if ``data`` from a file lacks the given dtype or rank."""
    if data.dtype != dtype or data.ndim != ndim:
        raise LoopTypeError(
            f"The value of {name!r} must be {dtype} of rank {ndim}, but the file has {data.dtype} of "
            f"rank {data.ndim}, shape {data.shape}. Restore into a context of the same form as the "
            "saved one: a batch into a batch."
        )
