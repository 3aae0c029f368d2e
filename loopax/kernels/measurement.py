"""Measure both forms of a program, if their estimated costs are too close to tell.

The arguments are synthetic: a loop with a fixed trip count takes as long for any values. A loop that ends
on a condition might never end, and is not measured (`loopax.kernels.cost`).

A result is kept on disk, so that a program runs the same operations in every process, and a seed gives
equal draws. Where it cannot be kept, the costs decide; they also decide where several processes of JAX run
one program, as each would measure for itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from loopax.cache import cache_folder
from loopax.cache.environment import NotKnown, environment, native_environment
from loopax.cache.facts import Fact
from loopax.kernels.debug_flags import without_debug_flags

# Seconds. The forms alternate, so that a busy machine slows both; the least time of each counts. A run of
# 0.5 ms fits between two interruptions of a machine with many processes; a long run is not repeated.
_BATCH, _TURNS, _LONG, _ONCE = 0.0005, 20, 0.02, 0.2
# Elements of all arguments: larger programs are rare, and memory may not hold their arguments twice.
_MOST_ELEMENTS = 2e7

Form = Callable[..., Any]


class Times(NamedTuple):
    """Nanoseconds of a call in either form."""

    native: int
    in_jax: int

    @property
    def is_native_faster(self) -> bool:
        return self.native <= self.in_jax

    def in_words(self) -> str:
        """Describe both times in words."""
        return f"{self.native / 1e3:.3g} us native, {self.in_jax / 1e3:.3g} us as JAX's operations"


def is_possible() -> bool:
    """Whether a result can be kept, and no other JAX process runs this program."""
    return cache_folder() is not None and jax.process_count() == 1


def measured(
    fact: Callable[[], Fact], native: Form, in_jax: Form, avals: Sequence[ShapedArray]
) -> Times | None:
    """Measure a program in both forms, or read the times from disk; None where the costs must decide.

    Parameters
    ----------
    fact
        Runs the measurement, and keeps its result.
    native, in_jax
        The forms, each a function of arrays of the types ``avals``. ``native`` raises if there is no
        native code.
    """
    is_large = sum(aval.size for aval in avals) > _MOST_ELEMENTS
    # The part of a program for one device of a mesh runs only inside that mesh.
    if is_large or not is_possible() or not all(map(_is_outside_of_meshes, avals)):
        return None
    try:
        kept = fact()
        if not kept.has_key:
            return None
        if (numbers := kept.known()) is None:
            numbers = _times(native, in_jax, avals)
            kept.keep(*numbers)
        return Times(*numbers)
    except Exception:  # a call with made-up values may fail where the user's does not
        return None


def _is_outside_of_meshes(aval: ShapedArray) -> bool:
    return bool(aval.sharding.mesh.empty)


def conditions() -> tuple[str | int, ...] | None:
    """The parts of a cache key for times, besides the program; None where one is not known."""
    try:
        return *environment(), *native_environment(), len(os.sched_getaffinity(0))
    except (NotKnown, AttributeError):  # not every system says which cores a process may use
        return None


def _times(native: Form, in_jax: Form, avals: Sequence[ShapedArray]) -> tuple[int, ...]:
    with without_debug_flags(), jax.default_device(jax.local_devices(backend="cpu")[0]):
        args = jax.device_put([_value(aval) for aval in avals])
        lowered = jax.jit(in_jax).lower(*args)
        # XLA compiles without the interpreter, which Numba needs meanwhile: on two cores a derivative of a
        # Kalman filter takes 3.5 s to its first result, and 4.0 with one compiler after the other.
        compiler = ThreadPoolExecutor(1, thread_name_prefix="loopax measures")
        try:
            compilation = compiler.submit(lowered.compile)
            native_call = _call(jax.jit(native).lower(*args).compile(), args)
            return _least_times(native_call, _call(compilation.result(), args))
        finally:
            compiler.shutdown(wait=False)


def _value(aval: ShapedArray | jax.ShapeDtypeStruct) -> Any:
    """An array of numbers between 0 and 1; for integers and bools zeros, which are valid indices."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(
            jnp.zeros((*aval.shape, 2), jnp.uint32), impl="threefry2x32"
        )
    if np.issubdtype(aval.dtype, np.inexact):
        return np.random.default_rng(0).uniform(0.1, 0.9, aval.shape).astype(aval.dtype)
    return np.zeros(aval.shape, aval.dtype)


def _call(compiled: Callable[..., Any], args: Sequence[jax.Array]) -> Callable[[], Any]:
    def call() -> Any:
        return jax.block_until_ready(compiled(*args))

    call()
    return call


def _least_times(*calls: Callable[[], Any]) -> tuple[int, ...]:
    seconds = [_seconds(call, 1) for call in calls]
    if max(seconds) > _ONCE:
        return _nanoseconds(seconds)
    repeats = [max(1, round(_BATCH / max(s, 1e-7))) for s in seconds]
    turns = _TURNS if max(seconds) < _LONG else 2
    for _ in range(turns):
        for k, (call, n) in enumerate(zip(calls, repeats, strict=True)):
            seconds[k] = min(seconds[k], _seconds(call, n))
    return _nanoseconds(seconds)


def _nanoseconds(seconds: Sequence[float]) -> tuple[int, ...]:
    return tuple(max(1, round(1e9 * s)) for s in seconds)


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
