"""JAX's primitives as NumPy has them, where both mean the same.

A rule takes the arguments as NumPy arrays and the parameters by name. It gives an array (a list, where the
primitive has several results), or NotImplemented where NumPy's answer may be another: it is JAX's then.
Indices are in `numpy_indices`.
"""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_letters
from typing import Any

import numpy as np

RULES: dict[str, Callable[..., Any]] = {}


def rule(*names: str) -> Callable[[Any], Any]:
    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(names, f))
        return f

    return register


# -- elementwise -------------------------------------------------------------------------------------

UFUNCS = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "floor": np.floor,
    "ceil": np.ceil,
    "is_finite": np.isfinite,
    "nextafter": np.nextafter,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}
for _name, _ufunc in UFUNCS.items():
    RULES[_name] = lambda *xs, f=_ufunc, **_: f(*xs)


@rule("copy", "stop_gradient")
def identity(x: Any, **_: Any) -> Any:
    return x


@rule("optimization_barrier")
def optimization_barrier(*xs: Any, **_: Any) -> Any:
    return list(xs)


@rule("div")
def div(x: Any, y: Any, **_: Any) -> Any:
    """Of integers cut towards zero; by zero, or where it overflows, whatever XLA says."""
    if x.dtype.kind in "fc":
        return np.divide(x, y)
    if (y == 0).any() or (y.dtype.kind == "i" and (y == -1).any()):
        return NotImplemented
    actual = x // y
    return actual + ((x % y != 0) & ((x < 0) != (y < 0)))


@rule("rem")
def rem(x: Any, y: Any, **_: Any) -> Any:
    if x.dtype.kind in "iu" and ((y == 0).any() or (y.dtype.kind == "i" and (y == -1).any())):
        return NotImplemented
    return np.fmod(x, y)


@rule("one_minus_square")
def one_minus_square(x: Any, **_: Any) -> Any:
    return (1 - x) * (1 + x)


def _shift(name: str, ufunc: Any, unsigned: bool = False) -> None:
    def run(x: Any, by: Any, **_: Any) -> Any:
        if ((by < 0) | (by >= 8 * x.itemsize)).any():
            return NotImplemented
        bits = x.view(f"u{x.itemsize}") if unsigned else x
        return ufunc(bits, by.astype(bits.dtype)).view(x.dtype)

    RULES[name] = run


_shift("shift_left", np.left_shift)
_shift("shift_right_arithmetic", np.right_shift)
_shift("shift_right_logical", np.right_shift, unsigned=True)


@rule("bitcast_convert_type")
def bitcast_convert_type(x: Any, *, new_dtype: Any, **_: Any) -> Any:
    same = np.dtype(new_dtype).itemsize == x.itemsize
    return np.ascontiguousarray(x).reshape(x.shape).view(new_dtype) if same else NotImplemented


@rule("pow")
def pow_(x: Any, y: Any, **_: Any) -> Any:
    return np.power(x, y.astype(x.dtype)) if x.dtype.kind == "f" else NotImplemented


@rule("integer_pow")
def integer_pow(x: Any, *, y: int, **_: Any) -> Any:
    return x**y if x.dtype.kind == "f" or y >= 0 else NotImplemented


@rule("logistic")
def logistic(x: Any, **_: Any) -> Any:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


@rule("rsqrt")
def rsqrt(x: Any, **_: Any) -> Any:
    return x.dtype.type(1) / np.sqrt(x)


@rule("convert_element_type")
def convert_element_type(x: Any, *, new_dtype: Any, **_: Any) -> Any:
    """What does not fit into an integer is XLA's to say."""
    dtype = np.dtype(new_dtype)
    if x.dtype.kind in "fc" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if x.dtype.kind == "c" or not ((x > float(limits.min)) & (x < float(limits.max))).all():
            return NotImplemented
    if x.dtype.kind == "c" and dtype.kind != "c":
        return NotImplemented
    return x.astype(dtype)


@rule("select_n")
def select_n(which: Any, *cases: Any, **_: Any) -> Any:
    if which.dtype.kind == "b":
        return np.where(which, cases[1], cases[0])
    return np.choose(which, cases)


@rule("clamp")
def clamp(least: Any, x: Any, most: Any, **_: Any) -> Any:
    return np.minimum(np.maximum(x, least), most)


# -- shapes ------------------------------------------------------------------------------------------


@rule("broadcast_in_dim")
def broadcast_in_dim(x: Any, *_: Any, shape: Any, broadcast_dimensions: Any, **__: Any) -> Any:
    aligned = [1] * len(shape)
    for k, axis in enumerate(broadcast_dimensions):
        aligned[axis] = x.shape[k]
    return np.broadcast_to(x.reshape(aligned), shape)


@rule("reshape")
def reshape(x: Any, *, new_sizes: Any, dimensions: Any, **_: Any) -> Any:
    return x.reshape(new_sizes) if dimensions is None else NotImplemented


@rule("squeeze")
def squeeze(x: Any, *, dimensions: Any, **_: Any) -> Any:
    return np.squeeze(x, tuple(dimensions))


@rule("transpose")
def transpose(x: Any, *, permutation: Any, **_: Any) -> Any:
    return np.transpose(x, permutation)


@rule("concatenate")
def concatenate(*xs: Any, dimension: int, **_: Any) -> Any:
    return np.concatenate(xs, dimension)


@rule("stack")
def stack(*xs: Any, axis: int, **_: Any) -> Any:
    return np.stack(xs, axis)


@rule("tile")
def tile(x: Any, *, reps: Any, **_: Any) -> Any:
    return np.tile(x, reps)


@rule("split")
def split(x: Any, *, sizes: Any, axis: int, **_: Any) -> Any:
    return np.split(x, np.cumsum(sizes)[:-1], axis)


@rule("rev")
def rev(x: Any, *, dimensions: Any, **_: Any) -> Any:
    return np.flip(x, tuple(dimensions))


@rule("iota")
def iota(*_: Any, dtype: Any, shape: Any, dimension: int, **__: Any) -> Any:
    along = [n if k == dimension else 1 for k, n in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(along), shape)


@rule("empty", "empty2")
def empty(*_: Any, dtype: Any, shape: Any = (), **__: Any) -> Any:
    return np.zeros(shape, dtype)


@rule("slice")
def slice_(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any, **_: Any) -> Any:
    steps = strides or [1] * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


@rule("pad")
def pad(x: Any, value: Any, *, padding_config: Any, **_: Any) -> Any:
    if any(low < 0 or high < 0 or inside for low, high, inside in padding_config):
        return NotImplemented
    around = [(low, high) for low, high, _ in padding_config]
    return np.pad(x, around, constant_values=value)


# -- reductions --------------------------------------------------------------------------------------


def _reduction(name: str, ufunc: Any) -> None:
    def reduced(x: Any, *, axes: Any, **_: Any) -> Any:
        if not x.size and ufunc.identity is None:
            return NotImplemented
        return ufunc.reduce(x, axis=tuple(axes), dtype=x.dtype)

    RULES[name] = reduced


REDUCTIONS = {
    "reduce_sum": np.add,
    "reduce_prod": np.multiply,
    "reduce_max": np.maximum,
    "reduce_min": np.minimum,
    "reduce_and": np.bitwise_and,
    "reduce_or": np.bitwise_or,
    "reduce_xor": np.bitwise_xor,
}
for _name, _ufunc in REDUCTIONS.items():
    _reduction(_name, _ufunc)


def _extreme(name: str, find: Any) -> None:
    def at(x: Any, *, axes: Any, index_dtype: Any, **_: Any) -> Any:
        return find(x, axis=axes[0]).astype(index_dtype) if x.size else NotImplemented

    RULES[name] = at


_extreme("argmax", np.argmax)
_extreme("argmin", np.argmin)


def _cumulative(name: str, ufunc: Any) -> None:
    def run(x: Any, *, axis: int, reverse: bool, **_: Any) -> Any:
        x = np.flip(x, axis) if reverse else x
        out = ufunc.accumulate(x, axis=axis, dtype=x.dtype)
        return np.flip(out, axis) if reverse else out

    RULES[name] = run


CUMULATIVE = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}
for _name, _ufunc in CUMULATIVE.items():
    _cumulative(_name, _ufunc)


@rule("sort")
def sort(*xs: Any, dimension: int, num_keys: int, **_: Any) -> Any:
    if num_keys != 1:
        return NotImplemented
    order = np.argsort(xs[0], axis=dimension, kind="stable")
    return [np.take_along_axis(x, order, dimension) for x in xs]


@rule("dot_general")
def dot_general(x: Any, y: Any, *, dimension_numbers: Any, **_: Any) -> Any:
    (over_x, over_y), (batch_x, batch_y) = dimension_numbers
    letters = iter(ascii_letters)
    of_x = [next(letters) for _ in range(x.ndim)]
    of_y = [next(letters) for _ in range(y.ndim)]
    for a, b in [*zip(over_x, over_y, strict=True), *zip(batch_x, batch_y, strict=True)]:
        of_y[b] = of_x[a]
    free_x = [c for k, c in enumerate(of_x) if k not in (*over_x, *batch_x)]
    free_y = [c for k, c in enumerate(of_y) if k not in (*over_y, *batch_y)]
    out = [of_x[k] for k in batch_x] + free_x + free_y
    return np.einsum(f"{''.join(of_x)},{''.join(of_y)}->{''.join(out)}", x, y)
