"""JAX's 32-bit and 64-bit modes, and the only global state that importing loopax changes.

PyTensor's own JAX mode turns ``jax_enable_x64`` on when its ``floatX`` is float64, and *off* otherwise.
loopax turns it on in the same case, never off, and never against a setting of the user: an environment
variable, or a value that differs from JAX's default.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from jax.experimental.sparse import BCOO
from pytensor.configdefaults import config
from pytensor.graph.basic import Variable

from loopax.base.errors import LoopTypeError, describe
from loopax.base.upstream.jax import jax_config
from loopax.jax_backend.staging.symbolic import is_symbolic

_WIDE = {"float64": "float32", "complex128": "complex64"}


def import_dispatch() -> None:
    """Import PyTensor's JAX registry without its side effect on ``jax_enable_x64``."""
    before = jax_config.jax_enable_x64
    import pytensor.link.jax.dispatch  # noqa: F401

    if jax_config.jax_enable_x64 != before:
        jax.config.update("jax_enable_x64", before)


def set_default_precision() -> None:
    """Turn x64 on if ``floatX`` is float64, unless the user has set it.

    An explicit ``jax.config.update("jax_enable_x64", False)`` cannot be distinguished from JAX's default;
    ``JAX_ENABLE_X64=0`` in the environment can, and is respected.
    """
    if config.floatX == "float64" and "JAX_ENABLE_X64" not in os.environ:
        jax.config.update("jax_enable_x64", True)


def _advice() -> str:
    if config.floatX == "float32":  # int32 and int64 with float32 are float64
        return "cast its integers where they meet floats: x.astype('float32')"
    return "build the program with PyTensor's floatX=float32"


@contextmanager
def without_narrowing_warnings() -> Iterator[None]:
    """Silence JAX's warning of integers of 32 bits in place of 64, which PyTensor's conversions ask for.

    The user has not written these conversions. What 32 bits do not hold is refused: see `refuse_narrowed`.
    """
    if jax_config.jax_enable_x64:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
        yield


def as_declared(x: object, variable: Variable) -> Any:
    """Cast ``x`` to the dtype that ``variable`` declares, without a weak type.

    Raises `LoopTypeError` if the dtype has 64 bits and JAX is in 32-bit mode: the result would be
    silently narrower.
    """
    if isinstance(x, BCOO):  # the values of a sparse matrix; JAX gives the indices 32 bits
        leaves, tree = jax.tree.flatten(x)
        return jax.tree.unflatten(tree, [as_declared(leaves[0], variable), *leaves[1:]])
    dtype = getattr(variable.type, "dtype", None)
    if dtype is None or not isinstance(
        x, jax.Array | np.ndarray | np.generic | int | float | complex
    ):
        return x
    if not isinstance(x, jax.Array):
        kept = isinstance(x, np.ndarray) and (x.dtype == dtype or is_symbolic(x))
        return x if kept else np.asarray(x, dtype=dtype)
    if dtype in _WIDE and not jax_config.jax_enable_x64:
        raise LoopTypeError(
            f"The program computes in {dtype} ({describe(variable)}), but JAX is in 32-bit mode, "
            f"where it would run in {_WIDE[dtype]}. Call jax.config.update('jax_enable_x64', True) "
            f"first, or {_advice()}."
        )
    if x.dtype != dtype or x.aval.weak_type:
        target = jax.dtypes.canonicalize_dtype(dtype)
        if x.dtype != target or x.aval.weak_type:
            return jax.lax.convert_element_type(x, target)
    return x


def narrowed(value: np.ndarray | np.generic) -> bool:
    """Whether ``value``, a NumPy integer array, does not fit the 32 bits JAX would give it."""
    if jax_config.jax_enable_x64 or value.dtype.name not in ("int64", "uint64") or not value.size:
        return False
    info = np.iinfo(np.int32 if value.dtype.name == "int64" else np.uint32)
    return bool(value.min() < info.min or value.max() > info.max)


def refuse_wrapping(value: np.ndarray | np.generic, what: str) -> None:
    """Refuse a caller's integers that are `narrowed`; ``what`` names them in messages."""
    if narrowed(value):
        raise LoopTypeError(
            f"{what} holds integers beyond 32 bits, and JAX is in 32-bit mode, where they would wrap. "
            "Call jax.config.update('jax_enable_x64', True) first."
        )


def holds(dtype: str, other: str) -> bool:
    """Whether ``dtype`` holds all values of ``other``, by PyTensor's rules, ignoring JAX's 32-bit mode."""
    if str(jax.dtypes.canonicalize_dtype(dtype)) == other:
        return True
    if jnp.issubdtype(other, np.floating) and np.dtype(other).kind != "f":
        other = "float32"  # it holds the floats of few bits that only JAX has, such as bfloat16
    return np.dtype(other).kind in "biufc" and bool(ps.upcast(other, dtype) == dtype)


def refuse_narrowed(value: object, variable: Variable, where: str = "") -> None:
    """Refuse known integers of ``variable`` that do not fit the bits that JAX would give them.

    Integers that are computed at run time have 32 bits in 32-bit mode, like all of JAX's: indices and
    lengths fit. Integers *known* not to fit are an error, as a float64 is; for products that may not fit
    see `loopax.jax_backend.staging.wrapping`.

    Raises `LoopTypeError` if an element of the integers ``value`` does not fit the 32 bits.
    """
    if isinstance(value, np.ndarray | np.generic) and narrowed(value):
        largest = max(np.ravel(value).tolist(), key=abs)
        raise LoopTypeError(
            f"The program computes with {largest}, in {describe(variable)}{where}: an integer beyond 32 "
            "bits, and JAX is in 32-bit mode, where it would wrap. Call "
            "jax.config.update('jax_enable_x64', True) first, or compute in floats of 32 bits: "
            "x.astype('float32')."
        )
