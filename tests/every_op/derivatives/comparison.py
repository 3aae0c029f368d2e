"""One program at one set of arguments: its derivatives in every form, and as differences have them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import jax.extend
import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedInputError, NullTypeGradError
from pytensor.scalar.basic import MethodNotDefined

import loopax
from loopax import UnsupportedOpError
from loopax.ir.replace import replaced
from tests.every_op.cells import Subject
from tests.jax_backend.interpreted import evaluate
from tests.numba_backend.interpreted import InterpretedFunction

NO_DERIVATIVE = (
    NotImplementedError,
    NullTypeGradError,
    DisconnectedInputError,
    UnsupportedOpError,
    MethodNotDefined,
)
_STEP = 1e-5
Results = dict[str, list[Any]]


class Refused(Exception):
    """There is nothing to compare, and the message says why."""


class Derivatives:
    """The gradient, a product with the Jacobian and one with the Hessian, of the sum of all outputs."""

    def __init__(self, subject: Subject, in_a_loop: bool) -> None:
        self.subject = subject
        self.cost = _in_a_loop(subject) if in_a_loop else subject._graph_cost()
        self.direction = [
            np.asarray(d, subject.values[k].dtype)
            for d, k in zip(subject.direction, subject.floats, strict=True)
        ]
        self._jaxpr = cache(self._traced)

    @property
    def is_single(self) -> bool:
        return any(d.dtype.itemsize < 8 for d in self.direction)

    def numba(self) -> Results:
        """Run as Python, or compiled where it calls what only native code may."""
        try:
            return self._by_loopax(InterpretedFunction.backend_name)
        except NO_DERIVATIVE:
            raise
        except Exception:
            return self._by_loopax("numba")

    def _by_loopax(self, backend: str) -> Results:
        f = loopax.jaxify(self.subject.inputs, self.cost, backend=backend)
        along = dict(zip(self.subject.floats, self.direction, strict=True))
        values = self.subject.values
        tangents = tuple(along.get(k) for k in range(len(values)))
        products = loopax.hvp(f, copy.deepcopy(values), tangents)
        gradient = loopax.grad(f, argnums=tuple(self.subject.floats))
        return {
            "grad": [*gradient(*copy.deepcopy(values))],
            "jvp": [loopax.jvp(f, copy.deepcopy(values), tangents)[1]],
            "hvp": [*products] if isinstance(products, tuple) else [products],
        }

    def native(self) -> Results:
        jaxpr, floats = self._jaxpr("native"), self.subject.floats_of(self.subject.values)
        try:
            return self._named(evaluate(jaxpr, floats))
        except Exception:  # a kernel that calls what only native code may
            return self._named(jax.jit(jax.extend.core.jaxpr_as_fun(jaxpr))(*floats))

    def xla(self, moved: float = 0.0) -> Results:
        """At the arguments, or where rounding might have put them."""
        values = self.subject.moved(self.direction, moved)
        return self._named(evaluate(self._jaxpr("xla"), self.subject.floats_of(values)))

    def slope(self) -> Any:
        """The derivative along the direction where all differences have the same one, else None."""
        subject = self.subject
        up, beside, here, down = (
            subject.cost(subject.reference(subject.moved(self.direction, s * _STEP)))
            for s in (1, 0.5, 0, -1)
        )
        central = (up - down) / (2 * _STEP)
        others = (up - here) / _STEP, (here - down) / _STEP, (beside - here) / (_STEP / 2)
        smooth = all(np.isfinite(x) and np.isclose(x, central, 1e-2, 1e-3) for x in others)
        return central if smooth else None

    def _named(self, found: list[Any]) -> Results:
        n = len(self.direction)
        return {"grad": found[:n], "hvp": found[n : 2 * n], "jvp": found[2 * n :]}

    def _traced(self, loops: str) -> Any:
        options = {"jit": False, "checks": "ignore", "loops": loops}
        f = loopax.jaxify(self.subject.inputs, self.cost, **options)
        of_floats = self.subject.of_inputs(f, self.subject.floats)
        gradient = jax.grad(of_floats, argnums=tuple(range(len(self.direction))))
        along = tuple(self.direction)

        def derivatives(*xs: Any) -> Any:
            return jax.jvp(gradient, xs, along), jax.jvp(of_floats, xs, along)[1]

        return jax.make_jaxpr(derivatives)(*self.subject.floats_of(self.subject.values))


def _in_a_loop(subject: Subject) -> Any:
    """The cost in each of two steps, of inputs that only the step has."""
    cost = subject._graph_cost()
    floats = subject.floats_of(subject.inputs)

    def step(carry: Any, factor: Any) -> Any:
        (inside,) = replaced([cost], {v: v * factor.astype(v.dtype) for v in floats})
        return 0.5 * carry + pt.tanh(0.1 * inside), None

    return loopax.scan(step, pt.zeros((), dtype=cost.dtype), pt.constant([1.0, 1.0]))[0]


def disagreements(subject: Subject, in_a_loop: bool, by_differences: bool = True) -> list[str]:
    """Where native code has another derivative than JAX's operations, or none.

    In a loop both are by `jax`. Outside, native code takes its own, and differences have to agree as well.
    At a kink each of the three has another one, and at a singular matrix some have none, so numbers are
    compared where the program is smooth. Without ``by_differences`` nothing is compared with them.

    Raises
    ------
    Refused
        PyTensor has no value there, or a form has no derivative.
    AssertionError
        A form fails.
    """
    with _silence():
        forms = _forms(subject, in_a_loop)
        native, xla = _results(forms.native if in_a_loop else forms.numba, forms.xla)
        if in_a_loop or subject.example.draws or forms.is_single or not by_differences:
            return list(_compared(forms, native, xla))
        slope = forms.slope()
        if slope is None:
            return []
        faults = list(_compared(forms, native, xla))
        along = sum((g * d).sum() for g, d in zip(native["grad"], forms.direction, strict=True))
        if not np.isclose(along, slope, 1e-4, 1e-5):
            faults.append(f"the slope is {along}, by differences {slope}")
        return faults


@contextmanager
def _silence() -> Iterator[None]:
    """Singular arguments are what these tests are about."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _forms(subject: Subject, in_a_loop: bool) -> Derivatives:
    if not (subject.floats and subject.differentiable):
        raise Refused("no float to differentiate")
    try:
        return Derivatives(subject, in_a_loop)
    except Exception as error:
        raise Refused(f"PyTensor has no value: {type(error).__name__}") from error


def _results(*forms: Callable[[], Results]) -> list[Results]:
    results = []
    for form in forms:
        try:
            results.append(form())
        except NO_DERIVATIVE as error:
            raise Refused(f"{form.__name__}: {error}") from error
        except Exception as error:
            raise AssertionError(f"{form.__name__}: {type(error).__name__}: {error}") from error
    return results


def _compared(forms: Derivatives, native: Results, xla: Results) -> Iterator[str]:
    rtol, atol = (2e-3, 1e-4) if forms.is_single else (1e-6, 1e-8)

    def close(x: Any, y: Any) -> bool:
        return bool(np.allclose(x, y, rtol, atol, equal_nan=True))

    def decided_by_rounding(what: str, k: int) -> bool:
        """Whether a finite result goes on changing where its arguments move by rounding errors."""
        if not (np.isfinite(native[what][k]).all() and np.isfinite(xla[what][k]).all()):
            return False
        unit = 1e-6 if forms.is_single else 1e-14
        sides = [[forms.xla(sign * n * unit)[what][k] for n in (1, 2, 4)] for sign in (1, -1)]
        return any(not close(a, b) or not close(b, c) for a, b, c in sides)

    for what in ("grad", "jvp", "hvp"):
        for k, (x, y) in enumerate(zip(native[what], xla[what], strict=True)):
            x, y = np.asarray(x), np.asarray(y)
            if x.shape != y.shape or x.dtype != y.dtype:
                yield f"{what} {k}: native {x.dtype}{x.shape}, xla {y.dtype}{y.shape}"
            elif not close(x, y) and not decided_by_rounding(what, k):
                yield f"{what} {k}: native {x.tolist()}, xla {y.tolist()}"
