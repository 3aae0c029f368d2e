"""Whether a program runs as a kernel, native on the CPU, or as JAX's operations."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from pytensor.graph.basic import Variable
from pytensor.tensor.type import DenseTensorType

from loopax.jax_backend.kernels.kernel import Kernel, Shape, Shapes
from loopax.jax_backend.kernels.primitive import bind
from loopax.jax_backend.staging.frame import Context


class _NotPlain(Exception):
    """An output is no array: a trace as long as its loop has taken steps, say."""


# What ``jaxify(..., loops=)`` may be, the default first: what the environment says, or JAX's operations.
_DEFAULT = os.environ.get("LOOPAX_LOOPS", "xla")
LOOPS = (_DEFAULT, *(choice for choice in ("xla", "native") if choice != _DEFAULT))


def program_kernel(
    as_read: tuple[list[Variable], list[Variable]],
    name: str,
    in_jax: Callable[[Context, Sequence[Any]], list[Any]],
    context: Context,
    static: Mapping[int, Any],
) -> Kernel | None:
    """The program as a kernel, or None where something in it is no array, or has no native code.

    Parameters
    ----------
    as_read
        The inputs and outputs of the graph from before the passes.
    in_jax
        The program in JAX's operations, of a value for each input, evaluated in a context.
    context
        That of the program.
    static
        The values of inputs, by position, that JAX must know.
    """
    inputs, outputs = as_read
    if not all(isinstance(v.type, DenseTensorType) for v in (*inputs, *outputs)):
        return None

    def with_static(context: Context, args: Sequence[Any]) -> list[Any]:
        return in_jax(context, [static.get(k, x) for k, x in enumerate(args)])

    # In native code a check raises: it is not to be said that JAX would leave it out.
    silent = context if context.checks == "raise" else replace(context, checks="ignore")

    def shapes(given: Shapes) -> list[Shape]:
        args = [jax.ShapeDtypeStruct(s, v.type.dtype) for s, v in zip(given, inputs, strict=True)]
        outs = jax.eval_shape(lambda *args: with_static(silent, args), *args)
        if not all(isinstance(x, jax.ShapeDtypeStruct) for x in outs):
            raise _NotPlain
        return [x.shape for x in outs]

    kernel = Kernel(
        inputs,
        outputs,
        lambda *args: with_static(context, args),
        shapes,
        name,
        checks=context.checks != "ignore",
    )
    return kernel if kernel.code is not None else None


def run_kernel(kernel: Kernel, args: Sequence[Any]) -> list[Any] | None:
    """The outputs of ``kernel``; None where its arguments, or its outputs, are not for native code."""
    arrays = [np.asarray(x) if isinstance(x, bool | int | float | complex) else x for x in args]
    if not all(map(_is_plain, arrays)):
        return None
    if any(x.dtype != v.type.dtype for x, v in zip(arrays, kernel.inputs, strict=True)):
        return None  # JAX is in 32-bit mode
    try:
        kernel.shapes(tuple(x.shape for x in arrays))
    except _NotPlain:
        return None
    return bind(kernel, arrays)


def _is_plain(x: Any) -> bool:
    """Whether ``x`` is an array, and of no part of a mesh: there JAX wants to see what is done to it."""
    if not isinstance(x, np.ndarray | np.generic | jax.Array):
        return False
    return not jax.typeof(x).mat.varying
