"""Primitives that move elements, and arrays of indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.type import Type
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.reading import out_aval, out_dtype, refuse, rule, tensor_type

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn


@rule("broadcast_in_dim", keys=True)
def _broadcast_in_dim(eqn: JaxprEqn, x: TensorVariable, *dynamic: Type) -> Any:
    if dynamic:
        raise refuse(eqn, "shapes known only at run time")
    shape, target_axes = _shape(eqn), tuple(eqn.params["broadcast_dimensions"])
    target_axes += tuple(range(len(eqn.params["shape"]), len(shape)))  # the integers of a key
    order = [target_axes.index(k) if k in target_axes else "x" for k in range(len(shape))]
    spread = x.dimshuffle(order) if order != [*range(x.type.ndim)] else x
    return spread if spread.type.shape == tuple(shape) else pt.broadcast_to(spread, shape)


@rule("reshape", keys=True)
def _reshape(eqn: JaxprEqn, x: TensorVariable, *dynamic: Type) -> Any:
    if dynamic:
        raise refuse(eqn, "shapes known only at run time")
    order = eqn.params.get("dimensions")  # the order in which the elements are read
    return reshaped(x if order is None else x.dimshuffle(list(order)), _shape(eqn))


def _shape(eqn: JaxprEqn) -> tuple[int, ...]:
    """The shape of the one output, in the IR."""
    return tuple(tensor_type(eqn.outvars[0].aval).shape)  # type: ignore[arg-type]


def reshaped(x: TensorVariable, shape: Sequence[int]) -> Any:
    """Reshape ``x``, by adding and dropping axes of length 1 if that suffices."""
    shape = tuple(shape)
    if x.type.shape == shape:
        return x
    if [n for n in x.type.shape if n != 1] == [n for n in shape if n != 1]:
        source_axes = iter([k for k, n in enumerate(x.type.shape) if n != 1])
        return x.dimshuffle(["x" if n == 1 else next(source_axes) for n in shape])
    return pt.reshape(x, shape, ndim=len(shape))


@rule("squeeze", "expand_dims", keys=True)
def _squeeze(eqn: JaxprEqn, x: TensorVariable) -> Any:
    return reshaped(x, _shape(eqn))


@rule("transpose")
def _transpose(eqn: JaxprEqn, x: TensorVariable) -> Any:
    return x.dimshuffle(list(eqn.params["permutation"]))


@rule("rev")
def _rev(eqn: JaxprEqn, x: TensorVariable) -> Any:
    reversed_axes = eqn.params["dimensions"]
    return x[tuple(slice(None, None, -1 if k in reversed_axes else 1) for k in range(x.type.ndim))]


@rule("slice", keys=True)
def _slice(eqn: JaxprEqn, x: TensorVariable) -> Any:
    starts, limits = eqn.params["start_indices"], eqn.params["limit_indices"]
    strides = eqn.params["strides"] or [1] * len(starts)
    return x[tuple(map(slice, map(int, starts), map(int, limits), map(int, strides)))]


@rule("concatenate", keys=True)
def _concatenate(eqn: JaxprEqn, *xs: TensorVariable) -> Any:
    axis = eqn.params["dimension"]
    if len(xs) == 1:
        return xs[0]
    xs = tuple(x for x in xs if x.type.shape[axis]) or xs[:1]
    return pt.join(axis, *xs) if len(xs) > 1 else xs[0]


@rule("tile")
def _tile(eqn: JaxprEqn, x: TensorVariable) -> Any:
    for axis, count in enumerate(eqn.params["reps"]):
        if not count:
            raise refuse(eqn, "zero repetitions")
        x = pt.join(axis, *[x] * count) if count > 1 else x
    return x


@rule("split")
def _split(eqn: JaxprEqn, x: TensorVariable) -> Any:
    axis, ends = eqn.params["axis"], np.cumsum(eqn.params["sizes"])
    prefix = (slice(None),) * axis
    return [
        x[(*prefix, slice(int(end - n), int(end)))]
        for end, n in zip(ends, eqn.params["sizes"], strict=True)
    ]


@rule("unstack", keys=True)
def _unstack(eqn: JaxprEqn, x: TensorVariable) -> Any:
    axis = eqn.params["axis"]
    prefix = (slice(None),) * axis
    return [x[(*prefix, k)] for k in range(x.type.shape[axis])]


@rule("stack", keys=True)
def _stack(eqn: JaxprEqn, *xs: TensorVariable) -> Any:
    return pt.stack(xs, axis=eqn.params["axis"])


@rule("empty", "empty2")
def _empty(eqn: JaxprEqn) -> Any:
    """An uninitialised array, filled with zeros."""
    aval = out_aval(eqn)
    return pt.zeros(aval.shape, dtype=str(aval.dtype))


@rule("iota")
def _iota(eqn: JaxprEqn, *dynamic: Type) -> Any:
    shape, axis = eqn.params["shape"], eqn.params["dimension"]
    if dynamic:
        raise refuse(eqn, "shapes known only at run time")
    numbers = np.arange(shape[axis]).astype(out_dtype(eqn))
    line = numbers.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return pt.constant(np.ascontiguousarray(np.broadcast_to(line, shape)))


@rule("pad")
def _pad(eqn: JaxprEqn, x: TensorVariable, value: TensorVariable) -> Any:
    """A write into an array of the padding value; negative padding cuts elements off."""
    shape = out_aval(eqn).shape
    source, target = [], []
    for n, (low, high, inner) in zip(x.type.shape, eqn.params["padding_config"], strict=True):
        low, high, step = int(low), int(high), int(inner) + 1
        padded_length = low + high + max(0, n + (n - 1) * (step - 1))
        positions = [k for k in range(n) if 0 <= low + k * step < padded_length]
        first, last = (positions[0], positions[-1]) if positions else (0, -1)
        source.append(slice(first, last + 1))
        target.append(slice(low + first * step, low + last * step + 1, step))
        if not positions:
            target[-1] = slice(0, 0)
    padded = pt.full(shape, value, dtype=out_dtype(eqn))
    if 0 in shape or 0 in x.type.shape:
        return padded
    if all(range(n)[at] == range(n) for n, at in zip(shape, target, strict=True)):
        return x[tuple(source)]  # a slice
    return pt.set_subtensor(padded[tuple(target)], x[tuple(source)])
