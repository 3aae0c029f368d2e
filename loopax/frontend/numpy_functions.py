"""NumPy's functions on variables, while a function of variables runs.

NumPy dispatches on arguments that are not its own arrays (NEP 13 and 18). PyTensor's variables lack these
protocols, and NumPy treats them as objects: ``np.dot(x, y)`` multiplies the elements. Inside
`numpy_protocols` they have them, and the elementwise functions of `scipy.special` follow: a PyTensor
function with equal name and meaning is called; any other raises, with a fix. Remove this when PyTensor's
variables have these protocols.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from types import FrameType
from typing import Any

import numpy as np
import pytensor.tensor as pt
import scipy.special

from loopax.base.errors import LoopTypeError
from loopax.base.lock import free_in_children
from loopax.base.upstream.pytensor import TensorOperators

# Functions with the same meaning, order and names of arguments in PyTensor and NumPy.
_SAME = (
    *("all", "allclose", "any", "argmax", "argmin", "argsort", "broadcast_to", "concatenate"),
    *("cumprod", "cumsum", "diag", "diagonal", "diff", "dot", "einsum", "expand_dims", "flip"),
    *("full_like", "imag", "isclose", "max", "mean", "median", "min", "moveaxis", "nan_to_num"),
    *("nonzero", "ones_like", "outer", "pad", "prod", "ptp", "real", "repeat", "roll", "sort"),
    *("squeeze", "stack", "std", "sum", "swapaxes", "take", "take_along_axis", "tensordot"),
    *("tile", "trace", "transpose", "tril", "triu", "var", "where", "zeros_like"),
)
_SAME_IN_LINALG = (
    *("cholesky", "det", "eigh", "eigvalsh", "inv", "matrix_power", "norm", "pinv", "slogdet"),
    *("solve",),
)
# Functions that need no values, such as shapes: NumPy reads the attributes itself.
_ABOUT_TYPES = (np.ndim, np.shape, np.size, np.result_type, np.iscomplexobj, np.isrealobj)
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{getattr(np, name): getattr(pt, name) for name in _SAME if hasattr(pt, name)},
    **{getattr(np.linalg, name): getattr(pt.linalg, name) for name in _SAME_IN_LINALG},
    np.amax: pt.max,
    np.amin: pt.min,
    np.reshape: lambda a, /, shape: pt.reshape(a, shape),
    np.ravel: lambda a: a.ravel(),
    np.clip: lambda a, a_min=None, a_max=None: a.clip(a_min, a_max),
}
_UFUNCS: dict[Any, Callable[..., Any]] = {
    **{
        ufunc: getattr(pt, name)
        for library in (np, scipy.special)
        for name, ufunc in [*vars(library).items()]  # SciPy adds names when they are used
        if isinstance(ufunc, np.ufunc) and ufunc.nout == 1 and hasattr(pt, name)
    },
    np.absolute: pt.abs,
    np.divide: pt.true_div,
    np.equal: pt.eq,
    np.floor_divide: pt.int_div,
    np.greater: pt.gt,
    np.greater_equal: pt.ge,
    np.less: pt.lt,
    np.less_equal: pt.le,
    np.multiply: pt.mul,
    np.negative: pt.neg,
    np.not_equal: pt.neq,
    np.positive: lambda x: x,
    np.rint: pt.round,
    np.subtract: pt.sub,
}
# PyTensor's own code compares NumPy numbers with variables by ``==``, as objects: for the shape of
# ``x[:-1]`` it compares the bound -1 with the length of ``x``.
_IDENTITIES = (np.equal, np.not_equal)


def _array_function(
    self: object, function: Any, types: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> Any:
    if function in _ABOUT_TYPES:
        return function._implementation(*args, **kwargs)
    if function in _FUNCTIONS:
        return _FUNCTIONS[function](*args, **kwargs)
    raise _no_meaning(function.__name__)


def _array_ufunc(
    self: object, ufunc: np.ufunc, method: str, *args: object, **kwargs: object
) -> Any:
    if ufunc in _IDENTITIES and _is_pytensor(sys._getframe(1)):
        return ufunc is np.not_equal
    if method == "__call__" and ufunc in _UFUNCS and not kwargs:
        return _UFUNCS[ufunc](*args)
    name = ufunc.__name__ + ("" if method == "__call__" else f".{method}")
    if getattr(np, ufunc.__name__, None) is ufunc:
        raise _no_meaning(name)
    raise _no_meaning(name, "scipy.special", "jax.scipy.special")


def _is_pytensor(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("pytensor.")


def _no_meaning(name: str, module: str = "np", in_jax: str = "jnp") -> LoopTypeError:
    return LoopTypeError(
        f"{module}.{name} takes arrays, but one of its arguments is a PyTensor variable, whose numbers are "
        "known only when the program runs. Use PyTensor functions, for example pt.sum(x) or x[::-1], or "
        f"JAX's, if JAX has the function: loopax.from_jax({in_jax}.{name})(x)."
    )


_PROTOCOLS = {"__array_function__": _array_function, "__array_ufunc__": _array_ufunc}
_LOCK = Lock()
free_in_children(_LOCK)
_inside = 0  # the number of functions running on variables


@contextmanager
def numpy_protocols() -> Iterator[None]:
    """A block in which NumPy's functions on variables are PyTensor's, or raise with a fix.

    Raises `LoopTypeError` if a function has no meaning on variables.
    """
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(change: int) -> None:
    """Install the protocols on variables with the first block, and remove them after the last one."""
    global _inside
    with _LOCK:
        if _inside == 0:
            for name, method in _PROTOCOLS.items():
                setattr(TensorOperators, name, method)
        _inside += change
        if _inside == 0:
            for name in _PROTOCOLS:
                delattr(TensorOperators, name)
