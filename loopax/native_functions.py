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
    """Run the loops of ``f``, any JAX function, as native code on the CPU.

    XLA takes tens of nanoseconds for each operation of a ``jax.lax.scan`` or ``while_loop`` of small steps,
    native code about one. The returned function computes the results of ``f`` up to rounding, and takes
    every JAX transformation in any order: ``jit``, ``grad``, ``jvp``, ``vmap``, ``hessian``,
    ``checkpoint``. Derivatives are JAX's own: JAX transforms the program before loopax compiles it
    natively.

    Parameters
    ----------
    f
        A function that ``jax.jit`` takes: from pytrees to pytrees, with keywords; methods, too. It is
        traced as by ``jax.jit``, once for each structure, shape and dtype. Leaves that are neither
        arrays nor numbers, such as strings and functions, are static. Without ``f``, `native` is a
        decorator: ``@native(loops="native")``.
    loops
        ``"auto"``: a loop is native if that is faster. ``"native"``: a loop is native if every
        primitive in its step has native code. ``"xla"``: no loop is, which is ``jax.jit(f)``. The
        environment variable ``LOOPAX_LOOPS`` sets the default, otherwise ``"auto"``. On platforms other
        than the CPU, and in exported functions, all loops are JAX's.

    Returns
    -------
    A function with the arguments of ``f``. Its results have the structure, the dtypes and the weak
    types of the results of ``f``. `loopax.explain` says how each loop runs, and which JAX primitive
    keeps it from being native. A primitive without native code is never an error: its loop stays a JAX
    loop.

    Raises
    ------
    TypeError
        ``f`` is not a function.
    ValueError
        The value of ``loops`` is unknown.

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
