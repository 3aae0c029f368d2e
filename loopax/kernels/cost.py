"""The cost of a program as XLA's thunks and as native code: nanoseconds of one CPU core, roughly.

Both are estimated from the jaxpr. The constants are times of single operations of float64 in loops of 2,000
steps on an x86-64 machine: they decide between forms that differ by a factor, and may be off by two with
other caches, vector widths and libm. `python -m benchmarks kernels` measures whole programs.

Outside of loops XLA hands its thunks to a pool of threads. That overhead is fitted to the log-densities
with gradients of 40 models (`python -m benchmarks models`), of 28 to 270 thunks and 64 to 400 us each.
They took 0.3 to 1.6 us per thunk on top of the time for their elements.

XLA compiles a loop without library calls as one function, which has no thunks: with JAX 0.10 where its
estimate of the bytes of a step is below 1,024, with 0.12 always. This estimate counts thunks in every loop,
and overestimates XLA's loops of small steps by factors of 2 to 30. It errs towards native code, which is
the faster form of nearly all of these; `measurement` decides about the others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from loopax.base.upstream.jax import Jaxpr, JaxprEqn, Literal, Var
from loopax.kernels.native_call.equations import n_rows
from loopax.kernels.operation_times import (
    BLAS_PRODUCT,
    FREE,
    FUSED,
    INDICES,
    LEVEL_3,
    OUTER_BLAS_PRODUCT,
    RESIDUAL,
    TIMES,
    VECTOR_WIDTH,
    WIDE,
    is_for_blas,
    is_level_3,
    kind_and_size,
    share_of_register,
)

_STEP = 15.0  # XLA: a return to the head of a loop
# XLA: a fusion, a slice, a reduction; in a loop, whose thunks run one after the other
_THUNK = 25.0
_TASK = 300.0  # XLA: a thunk outside of loops
_CALL = 400.0  # native: a call, with its results allocated and copied
# The factor by which XLA's programs took longer than this sum, from GARCH to an HMM, 1 to 64 rows.
_MARGIN = 1.4
# Native: the least time of rows that threads share. In a program called again and again, as by a sampler,
# the threads are awake: 4 rows of 3 us take 0.5 of the time of one thread. Waking a sleeping thread takes
# up to 10 us, but such a call is rare. Two threads take 0.54 of the time of one: they share memory, and one
# of them has to wait at the end.
_DIVIDED, _TOLL = 10_000.0, 0.08
_MOST_STEPS = 20.0  # the assumed steps of a loop whose number of steps depends on values
# Of 361 programs (42 functions, their values and gradients, of 1 to 1,024 rows, on JAX 0.10 and 0.12), the
# form with the lower cost was over 1.1 times as slow as the other for 108; with a native cost outside these
# shares of XLA's, for 4.
_CLOSE = 1 / 8, 4.0
# For second derivatives a measurement doubles the time to the first result: JAX's form takes as long to
# compile as native code. Of the Hessians of eight loops, all with a lower share were faster natively.
_CLOSE_SECOND = 0.6, 4.0
_LONGEST_RUN = 5e8  # half a second: the longest measurement that a user should have to wait for


@dataclass(frozen=True)
class Cost:
    """Estimated nanoseconds: of XLA's overhead, of its scalar and its vector code, and of native code.

    ``narrow`` is the time of XLA's operations on few elements: over many rows they are vector code
    too, ``vectorized``. ``residuals`` is the additional time of a derivative over many rows in loops.
    ``assumed`` is the trip count assumed for loops that end on a condition.
    """

    thunks: float = 0.0
    narrow: float = 0.0
    wide: float = 0.0
    vectorized: float = 0.0
    residuals: float = 0.0
    native: float = 0.0
    assumed: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def times(self, n: float) -> Cost:
        return Cost(*(n * a for a in astuple(self)))

    def saved(self, rows: int, is_backward: bool = False) -> float:
        """The time that native code saves on a batch; each operation of XLA takes all rows at once."""
        return self._xla(rows, is_backward) - self._native(rows)

    def is_close(self, rows: int, is_backward: bool = False, is_second: bool = False) -> bool:
        """Whether the two costs are too close to tell which form is faster, but a measurement can."""
        native, xla = self._native(rows), self._xla(rows, is_backward)
        least, most = _CLOSE_SECOND if is_second else _CLOSE
        return least * xla < native < most * xla and self.is_measurable(rows, is_backward)

    def is_measurable(self, rows: int, is_backward: bool = False) -> bool:
        """Whether a run on made-up values ends, and soon."""
        longest = max(self._native(rows), self._xla(rows, is_backward))
        return not self.assumed and longest < _LONGEST_RUN

    def least(self, rows: int, is_backward: bool = False) -> float:
        """The lower of both costs of a batch."""
        return min(self._native(rows), self._xla(rows, is_backward))

    def in_words(self) -> str:
        """Describe both costs in words."""
        return f"{self._native(1) / 1e3:.3g} us native, {self._xla(1) / 1e3:.3g} us as JAX's operations"

    def is_divided(self, rows: int) -> bool:
        """Whether native code is faster if threads share its ``rows`` rows."""
        return rows > 1 and _cores() > 1 and rows * self.native > _DIVIDED

    def _native(self, rows: int) -> float:
        threads = min(_cores(), rows) if self.is_divided(rows) else 1
        return _CALL + rows * self.native * (1 + (threads - 1) * _TOLL) / threads

    def _xla(self, rows: int, is_backward: bool = False) -> float:
        narrow = self.narrow
        if rows >= VECTOR_WIDTH:  # one vector operation takes about as long as one of a number
            narrow = max(self.vectorized, narrow / rows) + (self.residuals if is_backward else 0)
        return _MARGIN * (self.thunks + rows * (narrow + self.wide))


def _cores() -> int:
    """The number of XLA's threads that may share rows: one for each core available to this process.

    On Windows there is no ``sched_yield``, which `loopax.kernels.ffi.threads` calls.
    """
    if sys.platform == "win32":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cost_of(jaxpr: Jaxpr, in_loop: bool = False) -> Cost:
    """The cost of running ``jaxpr`` once, by itself or as part of the step of a loop."""
    total = Cost()
    fused = False  # whether the next operation can be fused with the previous one
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        inner = _inner(eqn, in_loop)
        if inner is not None:
            total, fused = total + inner, False
        elif name not in FREE:
            if not (fused and name in FUSED):
                total += Cost(_THUNK if in_loop else _TASK)
            total, fused = total + _operation(eqn, name, in_loop), name in FUSED
    return total


def _inner(eqn: JaxprEqn, in_loop: bool) -> Cost | None:
    """The cost of a loop, a branch, or a call."""
    params = eqn.params
    match eqn.primitive.name:
        case "scan":
            body = params["jaxpr"].jaxpr
            # A row of each sequence and trace costs XLA a thunk; native code reads and writes it in
            # place.
            n_read = n_rows(eqn.invars, body.invars)
            n_written = n_rows(eqn.outvars, body.outvars)
            step = cost_of(body, in_loop=True) + Cost(thunks=_STEP + _THUNK * (n_read + n_written))
            following = body.outvars[: len(body.outvars) - n_written]
            states = body.invars[: len(body.invars) - n_read][-len(following) :]
            chain = _chain(body, states, following) if following else 0.0
            return replace(step, native=max(step.native, chain)).times(params["length"])
        case "while":
            body = cost_of(params["body_jaxpr"].jaxpr, in_loop=True)
            body += cost_of(params["cond_jaxpr"].jaxpr, in_loop=True)
            steps = _steps(eqn)
            return (body + Cost(thunks=_STEP)).times(steps) + Cost(assumed=steps)
        case "cond":
            branches = [cost_of(branch.jaxpr, in_loop) for branch in params["branches"]]
            overhead = Cost(_THUNK if in_loop else _TASK)
            return max(branches, key=lambda cost: cost.native) + overhead
    for value in params.values():
        jaxpr = getattr(value, "jaxpr", value)
        if hasattr(jaxpr, "eqns"):
            return cost_of(jaxpr, in_loop)
    return None


def _chain(jaxpr: Jaxpr, states: Sequence[Var], following: Sequence[Var]) -> float:
    """The critical path of native code from the states of a step to the next states."""
    ready_at: dict[Any, float] = dict.fromkeys(states, 0.0)
    for eqn in jaxpr.eqns:
        operand_times = [
            ready_at[v] for v in eqn.invars if not isinstance(v, Literal) and v in ready_at
        ]
        if operand_times:
            ready_at.update(dict.fromkeys(eqn.outvars, max(operand_times) + _latency(eqn)))
    return max((ready_at.get(v, 0.0) for v in following if not isinstance(v, Literal)), default=0.0)


def _latency(eqn: JaxprEqn) -> float:
    inner = _inner(eqn, in_loop=True)
    if inner is not None:
        return inner.native
    name = eqn.primitive.name
    if name in FREE or name in INDICES:
        return 0.0
    kind, size = kind_and_size(eqn, name)
    return TIMES[kind].native_wait if size < WIDE else _operation(eqn, name, in_loop=True).native


def _steps(eqn: JaxprEqn) -> float:
    """The trip count of a ``while``: a ``fori_loop`` compares a counter with its end."""
    ends = [
        int(v.val)
        for v in eqn.invars
        if isinstance(v, Literal) and np.ndim(v.val) == 0 and np.asarray(v.val).dtype.kind == "i"
    ]
    return float(max([*ends, _MOST_STEPS]))


def _operation(eqn: JaxprEqn, name: str, in_loop: bool) -> Cost:
    """The cost of one operation, without XLA's overhead for a thunk."""
    kind, size = kind_and_size(eqn, name)
    times = TIMES[kind]
    native_size = 0.0 if name in INDICES else size  # of native code
    if size < WIDE:
        return Cost(
            narrow=times.xla_few * size,
            vectorized=times.xla_rows * size,
            residuals=RESIDUAL * size if in_loop else 0.0,
            native=times.native_few * native_size,
        )
    if is_level_3(eqn, name):
        return Cost(wide=LEVEL_3 * size, native=LEVEL_3 * size)
    native = times.native_many
    if is_for_blas(eqn, size):
        native = BLAS_PRODUCT if in_loop else OUTER_BLAS_PRODUCT
    return Cost(wide=times.xla_many * share_of_register(eqn) * size, native=native * native_size)
