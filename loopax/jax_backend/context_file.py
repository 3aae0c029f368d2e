"""A context in an ``.npz`` file: one array for each leaf, by name; keys as their data."""

from __future__ import annotations

import zipfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.ir.errors import LoopTypeError
from loopax.jax_backend.generators import is_key


def write(context: Any, file: Any) -> None:
    """Write the leaves of ``context``."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(context)
    # Not np.savez: variables may have the names of its own arguments.
    with zipfile.ZipFile(file, "w") as archive:
        for at, x in leaves:
            data = np.asarray(jax.random.key_data(x) if is_key(x) else x)
            with archive.open(f"{_path(at)}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, data, allow_pickle=False)


def read_into(context: Any, file: Any) -> Any:
    """What `write` wrote, in the structure of ``context``."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(context)
    with np.load(file, allow_pickle=False) as found:
        names = [_path(at) for at, _ in leaves]
        if {*found.files} != {*names}:
            raise LoopTypeError(
                f"The file has the values {sorted(found.files)}, but the context has {sorted(names)}: "
                "restore into a context of the function that the saved one was made for."
            )
        values = [_restored(found[n], x, n) for n, (_, x) in zip(names, leaves, strict=True)]
    return jax.tree.unflatten(tree, values)


def _path(at: Any) -> str:
    first, *rest = at
    return str(first.key) + jax.tree_util.keystr(tuple(rest))


def _restored(data: np.ndarray, like: Any, name: str) -> Any:
    kept = jax.random.key_data(like) if is_key(like) else like
    fits = data.dtype == kept.dtype and data.ndim == kept.ndim
    if is_key(like):
        fits = fits and data.shape[-1] == kept.shape[-1]
    if not fits:
        raise LoopTypeError(
            f"The value of {name!r} must be {kept.dtype} of rank {kept.ndim}, but the file has "
            f"{data.dtype} of rank {data.ndim}, shape {data.shape}: restore into a context of the form "
            "that was saved, a batch into a batch."
        )
    if is_key(like):
        return jax.random.wrap_key_data(jnp.array(data), impl=jax.random.key_impl(like))
    return jnp.array(data)
