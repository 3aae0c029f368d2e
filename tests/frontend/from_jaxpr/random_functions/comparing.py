"""The transformations of a random function, the forms that it runs in, and how far these may differ.

How far a rounding reaches is measured: XLA runs the function again with its floats changed in the last
digits. What a comparison or a floor decides otherwise then is not held against anyone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import loopax
from tests.frontend.from_jaxpr.importing import in_the_ir
from tests.frontend.from_jaxpr.random_functions.writing import RandomFunction
from tests.jax_backend.interpreted import interpreted

Function = Callable[..., Any]
RELATIVE = {"float64": 1e-8, "float32": 2e-3}
CHANGE = {"float64": 1e-14, "float32": 3e-7}
HAS_NO_DERIVATIVE = [
    "Reverse-mode differentiation does not work",  # of a loop that stops
    "(jvp) to a custom_vjp",
    "not implemented",
    "is only implemented",
]


def _floats(f: Function) -> Function:
    """The floats among the results of ``f``."""
    return lambda *args: [x for x in jax.tree.leaves(f(*args)) if x.dtype.kind == "f"]


def _total(f: Function) -> Function:
    return lambda *args: sum(jnp.sum(jnp.sin(x)) for x in _floats(f)(*args)) + 0 * args[0]


def _moving(f: Function, others: Any) -> Function:
    """``f`` of its floats alone."""
    return lambda *floats: f(*floats, *others)


def _tangents(primals: Any) -> Any:
    return tuple(jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape) + 0.3 for x in primals)


def _pushed(f: Function, *primals: Any) -> Any:
    return jax.jvp(f, primals, _tangents(primals))


def _slopes(f: Function) -> Function:
    return jax.grad(f, (0, 1, 2))


def _value(f: Function, *args: Any) -> Any:
    return f(*args)


def _jvp(f: Function, *args: Any) -> Any:
    return _pushed(_moving(_floats(f), args[3:]), *args[:3])


def _jvp_of_jvp(f: Function, *args: Any) -> Any:
    total = _moving(_total(f), args[3:])
    return _pushed(lambda *xs: _pushed(total, *xs)[1], *args[:3])


def _grad(f: Function, *args: Any) -> Any:
    return _slopes(_moving(_total(f), args[3:]))(*args[:3])


def _forward_over_reverse(f: Function, *args: Any) -> Any:
    return _pushed(_slopes(_moving(_total(f), args[3:])), *args[:3])[1]


def _reverse_over_forward(f: Function, *args: Any) -> Any:
    total = _moving(_total(f), args[3:])
    return _slopes(lambda *xs: _pushed(total, *xs)[1])(*args[:3])


def _reverse_over_reverse(f: Function, *args: Any) -> Any:
    slopes = _slopes(_moving(_total(f), args[3:]))
    return _slopes(lambda *xs: sum(jnp.sum(jnp.sin(g)) for g in slopes(*xs)))(*args[:3])


def _batch(f: Function, *args: Any) -> Any:
    """A batch of three; the matrix has its axis last, the vector none, the integer and the flag theirs."""
    a, v, m, n, flag = args
    rows = jnp.arange(3)
    batched = a + 0.1 * rows.astype(a.dtype), v, m[..., None] - 0.2 * rows.astype(m.dtype)
    axes = 0, None, m.ndim, 0, 0
    return jax.vmap(f, axes)(*batched, n + rows, flag ^ (rows > 1))


def _batch_of_grad(f: Function, *args: Any) -> Any:
    return _batch(lambda *row: _grad(f, *row), *args)


def _grad_of_batch(f: Function, *args: Any) -> Any:
    return _grad(lambda *row: _batch(f, *row), *args)


def _batch_of_jvp(f: Function, *args: Any) -> Any:
    return _batch(lambda *row: _jvp(f, *row), *args)


FORWARD = {
    "value": _value,
    "jvp": _jvp,
    "jvp of jvp": _jvp_of_jvp,
    "vmap": _batch,
    "vmap of jvp": _batch_of_jvp,
}
BACKWARD = {
    "grad": _grad,
    "forward over reverse": _forward_over_reverse,
    "reverse over forward": _reverse_over_forward,
    "reverse over reverse": _reverse_over_reverse,
    "vmap of grad": _batch_of_grad,
    "grad of vmap": _grad_of_batch,
}
TRANSFORMATIONS = FORWARD | BACKWARD


def dtype_of(seed: int) -> str:
    """The dtype of the floats of a function: one of three is in single precision."""
    return "float64" if seed % 3 else "float32"


def transformations_of(seed: int, every: bool = False) -> list[str]:
    """Two transformations, one forwards, which change from seed to seed; or every one."""
    if every:
        return list(TRANSFORMATIONS)
    rng = np.random.default_rng([seed, 2])
    return [str(rng.choice(list(names))) for names in (FORWARD, BACKWARD)]


def _transformed(name: str, f: Function) -> Function:
    return lambda *args: TRANSFORMATIONS[name](f, *args)


def _by_xla(name: str, f: Function) -> Function:
    return jax.jit(_transformed(name, f))


def _in_the_ir(name: str, f: Function) -> Function:
    return lambda *args: in_the_ir(_transformed(name, f), *args)


def _as_python(name: str, f: Function) -> Function:
    return interpreted(_transformed(name, loopax.native(f, loops="native")))


def _native(name: str, f: Function) -> Function:
    return jax.jit(_transformed(name, loopax.native(f, loops="native")))


FORMS = {"ir": _in_the_ir, "python": _as_python, "native": _native}


def arguments_of(one: RandomFunction, dtype: str) -> tuple[Any, ...]:
    """The arguments with floats of ``dtype`` and integers as wide."""
    *floats, n, flag = one.arguments
    integer = "int64" if dtype == "float64" else "int32"
    return (*(np.asarray(x, dtype) for x in floats), np.asarray(n, integer), np.asarray(flag))


class Comparison:
    """One transformation of one function, for floats of one dtype, and what XLA computes of it.

    Raises
    ------
    NotDifferentiable
        JAX has no such derivative: of a loop that stops, backwards.
    """

    def __init__(self, one: RandomFunction, name: str, dtype: str) -> None:
        self.function, self.name = one.function, name
        self.arguments = arguments_of(one, dtype)
        by_xla = _by_xla(name, one.function)
        try:
            self.expected = _leaves(by_xla(*self.arguments))
        except (ValueError, TypeError, NotImplementedError) as error:
            if any(words in str(error) for words in HAS_NO_DERIVATIVE):
                raise NotDifferentiable(str(error)) from error
            raise
        rng = np.random.default_rng(one.seed)
        runs = [_leaves(by_xla(*self._changed(rng))) for _ in range(3)]
        self._reaches = [_reach(x, [run[k] for run in runs]) for k, x in enumerate(self.expected)]

    def _changed(self, rng: np.random.Generator) -> list[Any]:
        *floats, n, flag = self.arguments
        change = CHANGE[str(floats[0].dtype)]
        changed = [
            x * (1 + change * rng.uniform(-1, 1, x.shape)) + change * rng.uniform(-1, 1, x.shape)
            for x in floats
        ]
        return [*(np.asarray(y, x.dtype) for x, y in zip(floats, changed, strict=True)), n, flag]

    def difference(self, form: str) -> str | None:
        """What tells the results in a form from XLA's, in words; None where nothing does.

        What XLA computes otherwise than its own operations one by one is a fault of XLA: it has one for a
        write of a value that reads the array written to, on jaxlib 0.10 and 0.12.
        """
        results = _leaves(FORMS[form](self.name, self.function)(*self.arguments))
        difference = self._from(results, self.expected)
        if difference is None:
            return None
        one_by_one = interpreted(_transformed(self.name, self.function))(*self.arguments)
        return None if self._from(results, _leaves(one_by_one)) is None else difference

    def _from(self, results: list[np.ndarray], expected: list[np.ndarray]) -> str | None:
        if len(results) != len(expected):
            return f"{len(results)} results, not {len(expected)}"
        for k, (x, y, far) in enumerate(zip(results, expected, self._reaches, strict=True)):
            if (what := _difference(x, y, far)) is not None:
                return f"result {k}: {what}"
        return None

    @property
    def share_decided(self) -> float:
        """The share of the numbers for which a rounding does not decide the result."""
        far = np.concatenate([np.ravel(x) for x in self._reaches] or [np.zeros(0)])
        return float(np.mean(far < 1e-3)) if far.size else 1.0


class NotDifferentiable(Exception):
    """JAX has no such derivative, as of a loop that stops in reverse mode."""


def _leaves(results: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(results)]


def _reach(value: np.ndarray, runs: list[np.ndarray]) -> np.ndarray:
    """For each number how far it is from any of its ``runs``, infinity where one alone is finite."""
    far = np.zeros(value.shape)
    for run in runs:
        x, y = value.astype("float64"), run.astype("float64")
        with np.errstate(all="ignore"):
            apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        far = np.maximum(far, np.where(np.isnan(apart), np.inf, apart))
    return far


def _difference(actual: np.ndarray, expected: np.ndarray, far: np.ndarray) -> str | None:
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype}{actual.shape}, not {expected.dtype}{expected.shape}"
    x, y = actual.astype("float64"), expected.astype("float64")
    relative = RELATIVE.get(str(actual.dtype), 0.0)
    with np.errstate(all="ignore"):
        scale = np.max(np.abs(y), initial=0.0, where=np.isfinite(y))
        near = np.abs(x - y) <= relative * (np.abs(y) + 1e-2 * scale) + 100 * far + relative * 1e-3
    is_same = near | (x == y) | (np.isnan(x) & np.isnan(y)) | ~np.isfinite(far)
    if is_same.all():
        return None
    return f"{np.array2string(actual, threshold=20)}, not {np.array2string(expected, threshold=20)}"
