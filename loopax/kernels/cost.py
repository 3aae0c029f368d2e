"""The cost of a program as XLA's thunks and as native code: nanoseconds of one CPU core, roughly.

Both are read off the jaxpr. The constants are what single operations of float64 took in loops of 2,000
steps on an x86-64 machine: they decide between forms that differ by a factor, and may be off by two where
caches, vector widths and libm are others. `python -m benchmarks kernels` measures whole programs.

Outside of loops XLA hands its thunks to a pool of threads. What that costs is fitted to the log-densities
with gradients of 40 models (`python -m benchmarks models`), of 28 to 270 thunks and 64 to 400 us each, that
took 0.3 to 1.6 us for each thunk beyond what their elements took.

XLA compiles a loop without library calls as one function, which has no thunks: with JAX 0.10 where its
estimate of the bytes of a step is below 1,024, with 0.12 always. This sum has thunks for every loop, and
takes XLA's loops of small steps for 2 to 30 times as slow as they are. It errs towards native code, which
is the faster form of nearly all of these; of the others `measurement` decides.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from loopax.base.upstream.jax import Jaxpr, Literal

_STEP = 15.0  # XLA: a return to the head of a loop
# XLA: a fusion, a slice, a reduction; in a loop, whose thunks run one after the other
_THUNK = 25.0
_TASK = 300.0  # XLA: a thunk outside of loops
_CALL = 400.0  # native: a call, with its results allocated and copied
# The factor by which XLA's programs took longer than this sum, from GARCH to an HMM, 1 to 64 rows.
_MARGIN = 1.4
# Native: the least time of rows that threads share. In a program called again and again, a sampler's,
# the threads are awake: 4 rows of 3 us take 0.5 of the time of one thread. Waking one that sleeps
# takes up to 10 us, but such a call is rare. Two threads take 0.54 of the time of one: they share
# memory, and one of them has to wait at the end.
_DIVIDED, _TOLL = 10_000.0, 0.08
_MOST_STEPS = 20.0  # the assumed steps of a loop whose number of steps depends on values
# Of 361 programs (42 functions, their values and gradients, of 1 to 1,024 rows, on JAX 0.10 and 0.12)
# the form with the lower cost was over 1.1 times as slow as the other for 108; where the native cost
# is not between these shares of XLA's, for 4.
_CLOSE = 1 / 8, 4.0
_LONGEST_RUN = 5e8  # half a second is the most to be spent on a run that nobody asked for

# An element of a simple operation, of a root or quotient, of exp, logarithms, tanh, sines, powers,
# of error functions, of gamma functions, of other functions; a multiplication of a product. From some
# elements on XLA uses vector code, but for sines and what follows them; native code has it for all but
# "function".
_VECTOR = {"simple": 0.35, "root": 1.0, "exp": 3.0, "log": 3.0, "tanh": 3.0, "function": 3.0}
_VECTOR |= {"sine": 10.0, "power": 15.0, "erf": 15.0, "gamma": 40.0, "product": 0.15}
_VECTOR |= {"bessel": 23.0, "polygamma": 95.0}
# XLA: an operation on few elements.
_NARROW = {"simple": 0.4, "root": 1.5, "exp": 14.0, "log": 13.0, "tanh": 11.0, "function": 14.0}
_NARROW |= {"sine": 6.0, "power": 15.0, "erf": 6.0, "gamma": 33.0, "product": 0.3}
_NARROW |= {"bessel": 30.0, "polygamma": 95.0}
# XLA: few elements in each of many rows, where fused values stay in registers. 64 rows of 500 steps
# of one tanh take 0.06 ms so, and 0.5 as native code, row by row; of Runge and Kutta's 0.34 and 0.58.
_OF_ROWS = {**_VECTOR, "simple": 0.08, "root": 0.5, "exp": 1.4, "log": 6.0, "tanh": 0.9}
_OF_ROWS |= {"sine": 5.0, "power": 7.0, "erf": 2.4, "gamma": 20.0}
# The residual of such an operation, which the backward loop reads from memory: XLA takes twice the
# time of native code for the gradients of 64 rows of 500 Runge-Kutta steps. A pushforward reads no
# residuals and is counted as the program is.
_RESIDUAL = 0.32
# Native: the throughput on few elements, and the latency, for which an operation that reads the
# result waits.
_SCALAR = {"simple": 0.4, "root": 1.5, "exp": 6.0, "log": 8.0, "tanh": 20.0, "function": 15.0}
_SCALAR |= {"sine": 8.0, "power": 18.0, "erf": 8.0, "gamma": 12.0, "product": 0.3}
_SCALAR |= {"bessel": 130.0, "polygamma": 210.0}
_LATENCY = {"simple": 1.1, "root": 4.0, "exp": 8.0, "log": 12.0, "tanh": 24.0, "function": 20.0}
_LATENCY |= {"sine": 9.0, "power": 21.0, "erf": 9.0, "gamma": 15.0, "product": 2.2}
_LATENCY |= {"bessel": 130.0, "polygamma": 210.0}
# Native: an operation on many elements.
_NATIVE = {"simple": 0.4, "root": 1.5, "exp": 1.5, "log": 1.5, "tanh": 1.5, "function": 6.0}
_NATIVE |= {"sine": 3.5, "power": 4.0, "erf": 4.0, "gamma": 5.0, "product": 0.3}
_NATIVE |= {"bessel": 130.0, "polygamma": 210.0}
_WIDE, _VECTOR_WIDTH = 8, 4  # elements: "many" begins here; a register of float64 holds so many
# Multiplications of a product in a loop's step which native code leaves to BLAS and XLA runs on one
# thread. A network of 32 units and 16 rows (RNN 100 of `benchmarks`) took 0.7 to 0.9 of XLA's time,
# 48 by 48 by 48 took 1.5, and a matrix by a vector of 64 to 512 elements 0.3 to 0.05.
_BLAS_LEAST, _BLAS_MOST, _BLAS_MOST_OF_VECTORS, _BLAS_PRODUCT = 4e3, 2.5e4, 1e6, 0.2

_ROOTS = {"div", "rem", "sqrt", "rsqrt", "cbrt"}
_FUNCTIONS = {
    *("exp2", "tan", "erf_inv"),
    *("sinh", "cosh", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh"),
}
_SPECIAL = {
    **dict.fromkeys(("exp", "expm1", "logistic"), "exp"),
    **dict.fromkeys(("log", "log1p"), "log"),
    "tanh": "tanh",
    **dict.fromkeys(("sin", "cos"), "sine"),
    "pow": "power",
    **dict.fromkeys(("erf", "erfc"), "erf"),
    **dict.fromkeys(("lgamma", "digamma"), "gamma"),
    **dict.fromkeys(("bessel_i0e", "bessel_i1e"), "bessel"),
    "polygamma": "polygamma",
}
# Multiplications divided by n^3, for a square matrix of length n (by m n min(m, n) for an m by n
# matrix).
_FACTORIZATIONS = {
    "cholesky": 1 / 3,
    "lu": 2 / 3,
    "qr": 4 / 3,
    "geqrf": 4 / 3,
    "householder_product": 4 / 3,
    "tridiagonal": 4 / 3,
    "hessenberg": 10 / 3,
    "eigh": 9.0,
    "svd": 20.0,
    "eig": 25.0,
    "schur": 25.0,
}
# Written into another operation's loop, or nothing at all.
_FREE = {"broadcast_in_dim", "reshape", "squeeze", "convert_element_type", "copy", "stop_gradient"}
_INDICES = {"transpose", "rev", "slice", "squeeze"}  # in native code, arithmetic on indices
_FUSED = {
    *("add", "sub", "mul", "neg", "max", "min", "abs", "sign", "integer_pow", "square", "select_n"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor", "floor", "ceil", "round"),
    *("is_finite", "clamp", "iota", "nextafter"),
    *_ROOTS,
    *_FUNCTIONS,
    *_SPECIAL,
}
_KINDS = {**dict.fromkeys(_ROOTS, "root"), **dict.fromkeys(_FUNCTIONS, "function"), **_SPECIAL}


@dataclass(frozen=True)
class Cost:
    """Nanoseconds: XLA's own for each operation, of its scalar and its vector code, and of native code.

    ``narrow`` is the time of XLA's operations on few elements: over many rows they are vector code
    too, ``vectorized``. ``residuals`` is the further time of a derivative over many rows in loops.
    ``assumed`` is the number of steps that are assumed of loops which end when a value says so.
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
        """The time that native code saves on a batch, all of whose rows each operation of XLA takes."""
        return self._xla(rows, is_backward) - self._native(rows)

    def is_close(self, rows: int, is_backward: bool = False) -> bool:
        """Whether the two costs are too close to tell which form is faster, and a measurement can tell."""
        native, xla = self._native(rows), self._xla(rows, is_backward)
        least, most = _CLOSE
        is_close = least * xla < native < most * xla
        return is_close and not self.assumed and max(native, xla) < _LONGEST_RUN

    def in_words(self) -> str:
        """A text with both costs."""
        return f"{self._native(1) / 1e3:.3g} us native, {self._xla(1) / 1e3:.3g} us as JAX's operations"

    def is_divided(self, rows: int) -> bool:
        """Whether native code is faster where threads share its ``rows`` rows."""
        return rows > 1 and _cores() > 1 and rows * self.native > _DIVIDED

    def _native(self, rows: int) -> float:
        threads = min(_cores(), rows) if self.is_divided(rows) else 1
        return _CALL + rows * self.native * (1 + (threads - 1) * _TOLL) / threads

    def _xla(self, rows: int, is_backward: bool = False) -> float:
        narrow = self.narrow
        if rows >= _VECTOR_WIDTH:  # one vector operation takes about as long as one of a number
            narrow = max(self.vectorized, narrow / rows) + (self.residuals if is_backward else 0)
        return _MARGIN * (self.thunks + rows * (narrow + self.wide))


def _cores() -> int:
    """The number of XLA's threads that may share rows: one for each core that this process may use.

    On Windows there is no ``sched_yield``, which `loopax.kernels.ffi.threads` calls.
    """
    if sys.platform == "win32":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cost_of(jaxpr: Jaxpr, in_loop: bool = False) -> Cost:
    """The cost of running ``jaxpr`` once, by itself or as a part of a loop's step."""
    total = Cost()
    fused = False  # whether the next operation can be fused with the previous one
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        inner = _inner(eqn, in_loop)
        if inner is not None:
            total, fused = total + inner, False
        elif name not in _FREE:
            if not (fused and name in _FUSED):
                total += Cost(_THUNK if in_loop else _TASK)
            total, fused = total + _operation(eqn, name, in_loop), name in _FUSED
    return total


def _inner(eqn: Any, in_loop: bool) -> Cost | None:
    """The cost of a loop, a branch, or a call."""
    params = eqn.params
    match eqn.primitive.name:
        case "scan":
            body = params["jaxpr"].jaxpr
            # A row of each sequence and trace costs XLA a thunk; native code reads and writes it in
            # place.
            n_read, n_written = _rows(eqn.invars, body.invars), _rows(eqn.outvars, body.outvars)
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


def _rows(outer: Sequence[Any], inner: Sequence[Any]) -> int:
    """The number of arrays that enter or leave a step row by row."""
    return sum(v.aval.shape != w.aval.shape for v, w in zip(outer, inner, strict=True))


def _chain(jaxpr: Jaxpr, states: Sequence[Any], following: Sequence[Any]) -> float:
    """The critical path of native code from the states of a step to the next states."""
    ready_at: dict[Any, float] = dict.fromkeys(states, 0.0)
    for eqn in jaxpr.eqns:
        operand_times = [
            ready_at[v] for v in eqn.invars if not isinstance(v, Literal) and v in ready_at
        ]
        if operand_times:
            ready_at.update(dict.fromkeys(eqn.outvars, max(operand_times) + _latency(eqn)))
    return max((ready_at.get(v, 0.0) for v in following if not isinstance(v, Literal)), default=0.0)


def _latency(eqn: Any) -> float:
    inner = _inner(eqn, in_loop=True)
    if inner is not None:
        return inner.native
    name = eqn.primitive.name
    if name in _FREE or name in _INDICES:
        return 0.0
    kind, size = _kind_and_size(eqn, name)
    return _LATENCY[kind] if size < _WIDE else _operation(eqn, name, in_loop=True).native


def _steps(eqn: Any) -> float:
    """The steps of a ``while``: a ``fori_loop`` compares a counter with its end."""
    ends = [
        int(v.val)
        for v in eqn.invars
        if isinstance(v, Literal) and np.ndim(v.val) == 0 and np.asarray(v.val).dtype.kind == "i"
    ]
    return float(max([*ends, _MOST_STEPS]))


def _operation(eqn: Any, name: str, in_loop: bool) -> Cost:
    """The cost of one operation without XLA's overhead for a thunk."""
    kind, size = _kind_and_size(eqn, name)
    native_size = 0.0 if name in _INDICES else size  # by native code
    if size < _WIDE:
        return Cost(
            narrow=_NARROW[kind] * size,
            vectorized=_OF_ROWS[kind] * size,
            residuals=_RESIDUAL * size if in_loop else 0.0,
            native=_SCALAR[kind] * native_size,
        )
    native = _BLAS_PRODUCT if in_loop and _is_for_blas(eqn, size) else _NATIVE[kind]
    return Cost(wide=_VECTOR[kind] * _share_of_register(eqn) * size, native=native * native_size)


def _share_of_register(eqn: Any) -> float:
    """The share of XLA's time for an element of 8 bytes that an element of a short integer takes.

    A register holds more of these, and native code, whose indices are of 64 bits, makes no use of it: 20
    steps of a stencil on 256 by 256 int8 took XLA 0.16 ms, of int32 0.56, and native code 0.77 and 0.66.
    """
    dtypes = (v.aval.dtype for v in (*eqn.invars, *eqn.outvars))
    types = [t for t in dtypes if isinstance(t, np.dtype)]  # a random key's is no NumPy dtype
    are_short = all(t.kind in "iub" and t.itemsize <= 2 for t in types)
    return max(t.itemsize for t in types) / 8 if are_short and types else 1.0


def _is_for_blas(eqn: Any, size: float) -> bool:
    """Whether an equation is a product of ``size`` multiplications that BLAS computes fast in a loop."""
    if eqn.primitive.name != "dot_general" or eqn.outvars[0].aval.dtype.kind not in "fc":
        return False
    (summed, _), (batched, _) = eqn.params["dimension_numbers"]
    left, right = (math.prod(v.aval.shape) for v in eqn.invars)
    length = math.prod(eqn.invars[0].aval.shape[k] for k in summed)
    limit = _BLAS_MOST_OF_VECTORS if length in (left, right) else _BLAS_MOST
    return not batched and _BLAS_LEAST <= size < limit


def _kind_and_size(eqn: Any, name: str) -> tuple[str, float]:
    """The kind and the number of scalar operations of an equation."""
    shapes = [v.aval.shape for v in eqn.invars]
    size = float(max((math.prod(v.aval.shape) for v in eqn.outvars), default=1))
    if name == "dot_general":
        (summed, _), _ = eqn.params["dimension_numbers"]
        return "product", size * math.prod(shapes[0][k] for k in summed)
    if name == "conv_general_dilated":
        out_channels = shapes[1][eqn.params["dimension_numbers"].rhs_spec[0]]
        return "product", size * math.prod(shapes[1]) / out_channels
    if name.startswith("reduce_window"):
        return "simple", size * math.prod(eqn.params["window_dimensions"])
    if name in _FACTORIZATIONS:
        shortest = min(shapes[0][-2:], default=1)
        return "product", _FACTORIZATIONS[name] * math.prod(shapes[0]) * shortest
    if name == "triangular_solve":
        return "product", size * shapes[0][-1]
    if name.startswith(("reduce", "cum", "arg")):
        size = float(math.prod(shapes[0]))
    return _KINDS.get(name, "simple"), size
