"""`vmap`, `grad` and `value_and_grad` of functions of PyTensor variables.

They transform the graph that the function builds, so that the result is a graph again, for any backend and
any PyTensor mode. The function is called with fresh symbols: an argument that depends on another one is an
independent variable, as in JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType

from loopax.base.errors import LoopTypeError
from loopax.frontend.loops.leaves import variables_of
from loopax.frontend.loops.trees import mapped_axes, match_prefix
from loopax.frontend.mistakes import explained, name_of
from loopax.frontend.programs.batching import batched_outputs
from loopax.frontend.programs.symbols import Symbols, arguments
from loopax.ir.derivatives.graph_derivatives import gradients
from loopax.ir.derivatives.lazy import Grad


def vmap(f: Callable[..., Any], in_axes: object, out_axes: object) -> Callable[..., Any]:
    """See `loopax.vmap`."""

    @wraps(f)
    def batched(*args: object, **kwargs: object) -> Any:
        leaves, names, tree = arguments(args, kwargs)
        if isinstance(in_axes, list | tuple) and len(in_axes) != len(args):
            raise LoopTypeError(
                f"vmap has in_axes for {len(in_axes)} arguments, but {len(args)} were passed. Pass one "
                "axis (or None) for each of them, or one number for all."
            )
        axes = mapped_axes(in_axes, args, len(leaves))
        _check_axes(axes, names, "in_axes")
        if all(a is None for a in axes):
            raise LoopTypeError(
                "vmap has no axis to map over: in_axes is None for every argument. Pass an axis for "
                "at least one of them, in_axes=(0, None)."
            )
        batches = [
            x if a is None else _first(x, a, name)
            for x, a, name in zip(leaves, axes, names, strict=True)
        ]
        _check_lengths(
            {n: x for n, x, a in zip(names, batches, axes, strict=True) if a is not None}
        )
        rows = [
            x.type() if a is None else TensorType(x.type.dtype, x.type.shape[1:])()
            for x, a in zip(batches, axes, strict=True)
        ]
        row_args, row_kwargs = tree.build(rows)
        with explained(name_of(f)):
            returned = f(*row_args, **row_kwargs)
        outs, out_names, out_tree = variables_of(returned, "result")
        size = next(x.shape[0] for x, a in zip(batches, axes, strict=True) if a is not None)
        results = batched_outputs(outs, dict(zip(rows, batches, strict=True)))
        to_axes = match_prefix(out_axes, out_tree.build(outs), "out_axes")
        _check_axes(to_axes, out_names, "out_axes")
        result = [
            _placed(result_batch, out, axis, size)
            for result_batch, out, axis in zip(results, outs, to_axes, strict=True)
        ]
        return out_tree.build(result)

    return batched


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool, lazy: bool
) -> Callable[..., Any]:
    """See `loopax.value_and_grad`."""

    @wraps(f)
    def differentiated(*args: object, **kwargs: object) -> Any:
        call = Symbols.of(args, kwargs, argnums, "grad")
        value, aux, aux_tree = call.value(f, has_aux)
        if lazy:
            value, *slopes = Grad.of(call.roots, call.leaves, call.wrt, [value], name=name_of(f))
        else:
            value, *slopes = call.placed([value, *gradients(call.wrt, [value])])
        result = call.built(slopes)
        return ((value, aux_tree.build(call.placed(aux))) if has_aux else value), result

    return differentiated


def _check_axes(axes: Sequence[Any], names: Sequence[str], label: str) -> None:
    for axis, name in zip(axes, names, strict=True):
        if not (axis is None or isinstance(axis, int | np.integer)):
            raise LoopTypeError(
                f"{label} has {axis!r} for {name}, but an axis is a number, 0 for the first, or None."
            )


def _check_lengths(mapped: dict[str, Any]) -> None:
    """Raise if known lengths differ; others are checked when the program runs."""
    lengths = {n: x.type.shape[0] for n, x in mapped.items() if x.type.shape[0] is not None}
    if len({*lengths.values()}) > 1:
        listed = ", ".join(f"{length} of {name}" for name, length in lengths.items())
        raise LoopTypeError(
            f"vmap over axes of different lengths: {listed}. vmap does not broadcast: pass None in "
            "in_axes for an argument that is the same for all rows."
        )


def _first(x: Any, axis: int, name: str) -> Any:
    """Move the mapped axis of ``x`` to the front."""
    ndim = getattr(x.type, "ndim", None)
    if ndim is None:
        raise LoopTypeError(
            f"vmap over {name}, which is {x.type}: only tensors have axes. Pass None for it in "
            "in_axes."
        )
    if not -ndim <= axis < ndim:
        raise LoopTypeError(
            f"vmap over axis {axis} of {name}, which is {x.type} of rank {ndim}: it has no such axis."
        )
    return pt.moveaxis(x, axis, 0)


def _placed(batch: Any, row: Variable, axis: int | None, size: Variable) -> Any:
    """Move the mapped axis of a result to ``axis``."""
    mapped = getattr(batch.type, "ndim", 0) > getattr(row.type, "ndim", 0)
    if axis is None:
        if mapped:
            raise LoopTypeError(
                f"out_axes is None for a result that differs from row to row ({row}, {row.type}). "
                "Choose an axis for it, 0 for example."
            )
        return batch
    if not mapped:
        if not isinstance(batch.type, TensorType):
            return batch  # for example a random generator, which all rows share
        batch = pt.broadcast_to(batch, (size, *(batch.shape[k] for k in range(batch.type.ndim))))
    if not -batch.type.ndim <= axis < batch.type.ndim:
        raise LoopTypeError(
            f"out_axes has {axis}, but the result has {batch.type.ndim} axes, the new axis included."
        )
    return pt.moveaxis(batch, 0, axis)
