"""`native`: a function of JAX whose loops are native code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar, overload

from loopax.frontend import from_jaxpr
from loopax.frontend.mistakes import refuse_no_function
from loopax.jax_backend.callable.forms import LOOPS
from loopax.kernels.native_call.function import NativeFunction
from loopax.kernels.native_call.native_parts import Plan, Reader, register_reader

F = TypeVar("F", bound=Callable[..., Any])
Loops = Literal["auto", "native", "xla"]

_NOTHING: Any = object()
register_reader(Reader(from_jaxpr.read_equations, from_jaxpr.tensor_type, from_jaxpr.NotImportable))


@overload
def native(f: F, *, loops: Loops | None = None) -> F: ...
@overload
def native(*, loops: Loops | None = None) -> Callable[[F], F]: ...
def native(f: Any = _NOTHING, *, loops: Loops | None = None) -> Any:
    """``f``, any function of JAX, with its loops as native code on the CPU.

    XLA takes tens of nanoseconds for each operation of a ``jax.lax.scan`` or ``while_loop`` of small steps,
    native code one. The function that this returns computes what ``f`` computes, to rounding, and JAX
    transforms it as it does ``f``: ``jit``, ``grad``, ``jvp``, ``vmap``, ``hessian``, ``checkpoint``, in
    any order. Derivatives are JAX's own, and what native code runs is the program that JAX made of them.

    Parameters
    ----------
    f
        A function that ``jax.jit`` takes: of pytrees to pytrees, with keywords, a method too. It is traced
        as by ``jax.jit``, once for each structure, shape and dtype. Leaves that are neither arrays nor
        numbers are static: words, functions. Without ``f`` it is a decorator:
        ``@native(loops="native")``.
    loops
        ``"auto"``: a loop is native where that is faster. ``"native"``: wherever there is native code for
        all that its step does. ``"xla"``: never, which is ``jax.jit(f)``. The environment's
        ``LOOPAX_LOOPS`` says which is the default, else it is ``"auto"``. On other platforms than the CPU,
        and where the function is exported, all loops are JAX's.

    Returns
    -------
    A function of the arguments of ``f``, whose results have the structure, the dtypes and the weak types of
    those of ``f``. `loopax.explain` says of each loop what it runs as, and which primitive of JAX has kept
    it from being native: what has no native code is never an error, and its loop stays JAX's.

    Raises
    ------
    TypeError
        ``f`` is no function.
    ValueError
        ``loops`` is none of the above.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from loopax import native
    >>> @native
    ... def smoothed(a, xs):
    ...     def step(level, x):
    ...         level = a * level + (1 - a) * x
    ...         return level, level
    ...     return jax.lax.scan(step, xs[0], xs)[1]
    >>> xs = jnp.array([1.0, 2.0, 4.0])
    >>> smoothed(0.5, xs)
    Array([1.  , 1.5 , 2.75], dtype=float64)
    >>> jax.grad(lambda a: smoothed(a, xs)[-1])(0.5)
    Array(-3., dtype=float64, weak_type=True)
    """
    loops = LOOPS[0] if loops is None else loops
    if loops not in LOOPS:
        raise ValueError(f"loops must be one of {LOOPS}, got {loops!r}")
    if f is _NOTHING:
        return partial(native, loops=loops)
    refuse_no_function(f, "loopax.native(f)", "f", "It returns f with its loops as native code.")
    return NativeFunction(f, Plan(loops))
