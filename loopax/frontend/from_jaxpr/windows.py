"""Convolutions with small kernels, and reductions of sliding windows: one term for each window place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor import TensorLike
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.reading import out_aval, out_dtype, refuse, rule
from loopax.frontend.from_jaxpr.reductions import extreme_number

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn

_MOST_PLACES = 64  # for a larger window XLA's code is faster


def _at_places(
    x: TensorVariable,
    axes: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    lengths: Sequence[int],
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield each place of a window, with the elements at that place of all windows along ``axes``."""
    for place in product(*map(range, window)):
        index = [slice(None)] * x.type.ndim
        for axis, k, stride, step, n in zip(axes, place, strides, dilation, lengths, strict=True):
            index[axis] = slice(k * step, k * step + (n - 1) * stride + 1, stride)
        yield place, x[tuple(index)]


def _padded(
    x: TensorVariable,
    axes: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    value: TensorLike,
) -> Any:
    """Pad ``x`` with ``value`` around and between its elements; negative padding cuts elements off."""
    for axis, (low, high), step in zip(axes, padding, dilation, strict=True):
        n = x.type.shape[axis]
        inner = (n - 1) * step + 1
        before = (slice(None),) * axis
        if (low, high, step) != (0, 0, 1):
            shape = [*x.type.shape]
            shape[axis] = inner + max(low, 0) + max(high, 0)
            first = max(low, 0)
            place = (*before, slice(first, first + inner, step))
            spread = pt.set_subtensor(pt.full(shape, value, dtype=x.type.dtype)[place], x)
            end = shape[axis] - max(-high, 0)
            x = spread[(*before, slice(max(-low, 0), end))]
    return x


def _refuse_sizes(eqn: JaxprEqn, x: TensorVariable, window: Sequence[int]) -> None:
    if 0 in x.type.shape or 0 in out_aval(eqn).shape:
        raise refuse(eqn, "empty arrays")
    if np.prod(window) > _MOST_PLACES:
        raise refuse(eqn, "large windows")


@rule("conv_general_dilated")
def _convolution(eqn: JaxprEqn, x: TensorVariable, kernel: TensorVariable) -> Any:
    """A convolution; axes are batch, channel, places, and output channel, input channel, places."""
    params, dtype = eqn.params, out_dtype(eqn)
    numbers = params["dimension_numbers"]
    x = x.dimshuffle(list(numbers.lhs_spec)).astype(dtype)
    kernel = kernel.dimshuffle(list(numbers.rhs_spec)).astype(dtype)
    window = kernel.type.shape[2:]
    _refuse_sizes(eqn, x, window)
    if params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
        raise refuse(eqn, "feature groups and batch groups")
    if len(window) > 1 and kernel.type.shape[:2] == (1, 1):  # XLA takes 0.6 to 0.8 times as long
        raise refuse(eqn, "images with one channel")
    axes = range(2, x.type.ndim)
    lengths = [out_aval(eqn).shape[numbers.out_spec[axis]] for axis in axes]
    strides, dilation = params["window_strides"], params["rhs_dilation"]
    sizes = x.type.shape[2:], params["padding"], params["lhs_dilation"]
    is_element = [
        _is_element(*of_axis)
        for of_axis in zip(*sizes, window, strides, dilation, lengths, strict=True)
    ]
    x = _padded(x, axes, params["padding"], params["lhs_dilation"], np.array(0, dtype))
    terms = []
    for place, at_place in _at_places(x, axes, window, strides, dilation, lengths):
        weights = kernel[(slice(None), slice(None), *place)]
        weights = weights.dimshuffle(["x", 0, 1, *["x"] * len(axes)])
        values = at_place.dimshuffle([0, "x", *range(1, x.type.ndim)])
        term = pt.sum(weights * values, axis=2, dtype=dtype, acc_dtype=dtype)
        masks = [rows[k] for rows, k in zip(is_element, place, strict=True)]
        mask = reduce(np.logical_and.outer, masks)
        # Padding is no factor: an infinite or nan weight there does not enter the sum.
        terms.append(term if mask.all() else pt.switch(mask, term, np.array(0, dtype)))
    return reduce(pt.add, terms).dimshuffle(list(np.argsort(numbers.out_spec)))


def _is_element(
    n: int,
    padding: tuple[int, int],
    spacing: int,
    window: int,
    stride: int,
    dilation: int,
    length: int,
) -> Any:
    """Whether an element of the padded axis is one of the ``n``, with a row for each window place."""
    positions = np.arange(length) * stride + np.arange(window)[:, None] * dilation - padding[0]
    return (positions >= 0) & (positions % spacing == 0) & (positions < n * spacing)


_REDUCED = {"reduce_window_sum": pt.add, "reduce_window_max": pt.maximum}
_REDUCED |= {"reduce_window_min": pt.minimum}


@rule(*_REDUCED)
def _windows(eqn: JaxprEqn, x: TensorVariable) -> Any:
    params, name, dtype = eqn.params, eqn.primitive.name, np.dtype(x.type.dtype)
    window = params["window_dimensions"]
    _refuse_sizes(eqn, x, window)
    if dtype.kind not in "fiu":
        raise refuse(eqn, str(dtype))
    neutral = dtype.type(0)
    if name != "reduce_window_sum":
        neutral = extreme_number(dtype, largest=name == "reduce_window_min")
    axes = range(x.type.ndim)
    padded = _padded(x, axes, params["padding"], params["base_dilation"], neutral)
    strides, dilation = params["window_strides"], params["window_dilation"]
    lengths = out_aval(eqn).shape
    return reduce(
        _REDUCED[name],
        [part for _, part in _at_places(padded, axes, window, strides, dilation, lengths)],
    )
