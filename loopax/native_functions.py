"""The function `native`: a JAX function whose loops are native code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar, overload

from loopax.frontend import from_jaxpr
from loopax.frontend.mistakes import refuse_no_function, refusing_arguments
from loopax.jax_backend.callable.forms import LOOPS
from loopax.kernels.native_call.function import NativeFunction
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.native_call.part_kernels import Reader, register_reader

F = TypeVar("F", bound=Callable[..., Any])
Loops = Literal["auto", "native", "xla"]
Checks = Literal["nan"]

_NOTHING: Any = object()
register_reader(Reader(from_jaxpr.read_equations, from_jaxpr.tensor_type, from_jaxpr.NotImportable))


_STATIC = "arguments that are neither arrays nor numbers are static automatically"
# Options of `jax.jit` and `jaxify`, and how to write them here.
_IN_PLACE_OF = {
    "static_argnames": _STATIC,
    "static_argnums": _STATIC,
    "donate_argnums": "donate them to the function around it: jax.jit(native(f), donate_argnums=0)",
    "donate_argnames": "donate them to the function around it: jax.jit(native(f), donate_argnames='x')",
    "loop": "it is called loops: native(f, loops='native')",
    "backend": "the form of the loops is an option: native(f, loops='native')",
    "jit": "native code compiles at the first call: native(f), or jax.jit(native(f))",
}


@overload
def native(
    f: F, *, loops: Loops | None = None, checks: Checks | None = None, cache: bool = True
) -> F: ...
@overload
def native(
    *, loops: Loops | None = None, checks: Checks | None = None, cache: bool = True
) -> Callable[[F], F]: ...
@refusing_arguments(_IN_PLACE_OF)
def native(
    f: Any = _NOTHING,
    *,
    loops: Loops | None = None,
    checks: Checks | None = None,
    cache: bool = True,
) -> Any:
    """Run the loops of ``f``, any JAX function, as native code on the CPU.

    XLA takes tens of nanoseconds for each operation of a ``jax.lax.scan`` or ``while_loop`` of small steps,
    native code about one nanosecond. The returned function computes the results of ``f`` up to rounding,
    and takes every JAX transformation in any order: ``jit``, ``grad``, ``jvp``, ``vmap``, ``hessian``,
    ``checkpoint``. Derivatives are JAX's own: JAX transforms the program before loopax compiles it
    natively.

    Parameters
    ----------
    f
        A function that ``jax.jit`` takes: from pytrees to pytrees, with keywords; methods, too. It is
        traced as by ``jax.jit``, once for each structure, shape and dtype. Leaves that are neither
        arrays nor numbers, such as strings and functions, are static. Python's integers are too, and
        if necessary its floats, if tracing needs their values, as ``range`` does. Without ``f``,
        `native` is a decorator: ``@native(loops="native")``.
    loops
        ``"auto"``: a loop is native if that is faster. ``"native"``: a loop is native if every
        primitive in its step has native code. ``"xla"``: no loop is, which is ``jax.jit(f)``. The
        environment variable ``LOOPAX_LOOPS`` sets the default, otherwise ``"auto"``. On platforms other
        than the CPU, and in exported functions, all loops are JAX's.
    checks
        ``"nan"``: a `NonFiniteError` is raised if a state or a trace row of a loop, or an output, is
        NaN or infinite. It names the first such value, its loop and its step. Under your own ``jit``,
        ``grad`` or ``vmap`` JAX raises its own exception, which contains the message. Native and JAX
        loops are both checked; in a function with a custom derivative, only its results are. None:
        values are not checked. The checks of ``jax.experimental.checkify`` work in either case.
    cache
        Whether native code is kept on disk for other processes, and read from there, as `jaxify` does.
        With False the disk is not used.

    Returns
    -------
    A function with the arguments of ``f``. Its results have the structure, the dtypes and the weak
    types of the results of ``f``. `loopax.explain` says how each loop runs, and which JAX primitive
    keeps it from being native. A primitive without native code is never an error: its loop stays a JAX
    loop.

    Raises
    ------
    TypeError
        ``f`` is not a function, or ``cache`` is not a bool.
    ValueError
        The value of ``loops`` or ``checks`` is unknown.

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

    >>> f = native(smoothed, checks="nan", cache=False)
    >>> try:
    ...     f(0.5, xs.at[1].set(jnp.inf))
    ... except FloatingPointError as error:
    ...     print(str(error).partition(" (")[0])
    smoothed: state level is infinite at step 1 of loop 'step'
    """
    form: str = LOOPS[0] if loops is None else loops
    if form not in LOOPS:
        raise ValueError(f"loops must be one of {LOOPS}, got {form!r}")
    if checks not in (None, "nan"):
        raise ValueError(
            f"checks must be None or 'nan', got {checks!r}. Other checks are JAX's own, by "
            "jax.experimental.checkify."
        )
    if not isinstance(cache, bool):
        raise TypeError(f"cache must be True or False, got {cache!r}")
    if f is _NOTHING:
        return partial(native, loops=loops, checks=checks, cache=cache)
    if isinstance(f, classmethod | staticmethod):  # decorated further in
        return type(f)(native(f.__func__, loops=loops, checks=checks, cache=cache))
    refuse_no_function(f, "loopax.native(f)", "f", "It returns f with its loops as native code.")
    if isinstance(f, NativeFunction):
        f = f.__wrapped__
    return NativeFunction(f, Plan(form, cache), checks)
