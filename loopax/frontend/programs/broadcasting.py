"""Programs that broadcast axes of length 1 of their arguments, as NumPy does.

PyTensor broadcasts by type, and its rewrites rely on that: the length of ``x + y`` is ``x``'s. So
lengths of 1 are declared before any rewrite, once for each pattern of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.compile.io import In
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.tensor import TensorLike
from pytensor.tensor.basic import as_tensor_variable
from pytensor.tensor.type import DenseTensorType

from loopax.base.errors import LoopTypeError, describe
from loopax.frontend.loops.trees import flatten
from loopax.frontend.programs.pytree_inputs import signature_of
from loopax.frontend.programs.read import variable_of


def with_declared_lengths(
    inputs: Sequence[Variable | In] | Variable | In, outputs: object, name: str | None
) -> Callable[..., Any]:
    """A function from variables of any static shapes, replacing ``inputs``, to ``outputs``."""
    specs = inputs if isinstance(inputs, Sequence) else [inputs]
    variables = [variable_of(v) for v in specs]
    leaves, tree = flatten(outputs)
    signature = signature_of(variables)

    def program(*args: object, **kwargs: object) -> Any:
        values = signature.bind(*args, **kwargs).arguments.values()
        replacements = {v: _as_input(v, x) for v, x in zip(variables, values, strict=True)}
        try:
            return tree.build(clone_replace(leaves, replacements, rebuild_strict=False))
        except (TypeError, ValueError) as error:
            raise LoopTypeError(
                f"An op cannot take an axis that has length 1 in this call: {error}. The step of a "
                "loop has its own types: declare the axis where you write the loop, with "
                "pt.specify_broadcastable(x, axis)."
            ) from error

    program.__signature__ = signature  # type: ignore[attr-defined]
    program.__name__ = program.__qualname__ = name or "program"
    return program


def _as_input(v: Variable, x: TensorLike) -> Any:
    """Cast ``x`` to the dtype of ``v``, with the lengths that either declares."""
    if not isinstance(v.type, DenseTensorType):
        return v.type.filter_variable(x)
    x = as_tensor_variable(x)  # a list arrives as a tuple of elements
    if getattr(x.type, "ndim", None) != v.type.ndim:
        raise LoopTypeError(
            f"{describe(v)} has {v.type.ndim} axes, but the argument is a {x.type}."
        )
    exact = np.can_cast(x.type.dtype, v.type.dtype)
    if not exact and (x.type.ndim or not np.can_cast(x.type.dtype, v.type.dtype, "same_kind")):
        raise LoopTypeError(
            f"The argument for {describe(v)} is of {x.type.dtype}, and converting it to {v.type.dtype} "
            f"may lose digits. Convert it yourself, x.astype({v.type.dtype!r})."
        )
    shape = [a if b is None else b for a, b in zip(x.type.shape, v.type.shape, strict=True)]
    return v.type.clone(shape=shape).filter_variable(x.astype(v.type.dtype))
