"""One program at one set of arguments: its derivatives in every form, and as differences have them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
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
        cost = subject._graph_cost()
        self.cost = _in_a_loop(subject, cost) if in_a_loop else cost
        self.places = tuple(subject.floats)
        self.direction = [
            np.asarray(d, subject.values[k].dtype)
            for d, k in zip(subject.direction, self.places, strict=True)
        ]
        self._jaxpr = cache(self._traced)

    @property
    def is_single(self) -> bool:
        return any(self.subject.values[k].dtype.itemsize < 8 for k in self.places)

    def numba(self) -> Results:
        """Run as Python, or compiled where it calls what only native code may."""
        try:
            return self._numba(InterpretedFunction.backend_name)
        except NO_DERIVATIVE:
            raise
        except Exception:
            return self._numba("numba")

    def _numba(self, backend: str) -> Results:
        def arguments() -> list[Any]:
            return [copy.deepcopy(x) for x in self.subject.values]

        f = loopax.jaxify(self.subject.inputs, self.cost, backend=backend)
        along = dict(zip(self.places, self.direction, strict=True))
        tangents = tuple(along.get(k) for k in range(len(self.subject.values)))
        products = loopax.hvp(f, arguments(), tangents)
        return {
            "grad": [*loopax.grad(f, argnums=self.places)(*arguments())],
            "jvp": [loopax.jvp(f, arguments(), tangents)[1]],
            "hvp": [*products] if isinstance(products, tuple) else [products],
        }

    def native(self) -> Results:
        return self._in_jax("native")

    def xla(self, moved: float = 0.0) -> Results:
        """At the arguments, or where rounding might have put them."""
        return self._in_jax("xla", moved)

    def _in_jax(self, loops: str, moved: float = 0.0) -> Results:
        values = self.subject.moved(self.direction, moved)
        floats = [values[k] for k in self.places]
        jaxpr = self._jaxpr(loops)
        try:
            out = evaluate(jaxpr, floats)
        except Exception:  # a kernel that calls what only native code may
            if loops == "xla":
                raise
            out = jax.jit(jax.extend.core.jaxpr_as_fun(jaxpr))(*floats)
        n = len(self.places)
        return {"grad": out[:n], "hvp": out[n : 2 * n], "jvp": out[2 * n :]}

    def _traced(self, loops: str) -> Any:
        inputs = self.subject.inputs
        f = loopax.jaxify(inputs, self.cost, jit=False, checks="ignore", loops=loops)

        def of_floats(*xs: Any) -> Any:
            values = self.subject.with_key
            for k, x in zip(self.places, xs, strict=True):
                values[k] = x
            return f(*values)

        gradient = jax.grad(of_floats, argnums=tuple(range(len(self.places))))
        along = tuple(self.direction)

        def derivatives(*xs: Any) -> Any:
            return jax.jvp(gradient, xs, along), jax.jvp(of_floats, xs, along)[1]

        return jax.make_jaxpr(derivatives)(*(self.subject.values[k] for k in self.places))

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


def _in_a_loop(subject: Subject, cost: Any) -> Any:
    """The cost in each of two steps, of inputs that only the step has."""
    floats = [subject.inputs[k] for k in subject.floats]

    def step(carry: Any, factor: Any) -> Any:
        (inside,) = replaced([cost], {v: v * factor.astype(v.dtype) for v in floats})
        return 0.5 * carry + pt.tanh(0.1 * inside), None

    return loopax.scan(step, pt.zeros((), dtype=cost.dtype), pt.constant([1.0, 1.0]))[0]


def disagreements(subject: Subject, in_a_loop: bool = False) -> list[str]:
    """Where the forms, or differences, do not have the same derivative.

    In a loop `jax.grad` of native code and of JAX's operations are compared, outside native derivatives
    with those of JAX's operations.

    Raises
    ------
    Refused
        PyTensor has no value there, or a form has no derivative.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if not (subject.floats and subject.differentiable):
            raise Refused("no float to differentiate")
        try:
            subject.__dict__["expected"] = subject.reference(subject.values)
            forms = Derivatives(subject, in_a_loop)
        except Exception as error:
            raise Refused(f"PyTensor has no value: {type(error).__name__}") from error
        results = []
        for form in (forms.native if in_a_loop else forms.numba, forms.xla):
            try:
                results.append(form())
            except NO_DERIVATIVE as error:
                raise Refused(f"{form.__name__}: {error}") from error
            except Exception as error:
                return [f"{form.__name__}: {type(error).__name__}: {error}"]
        found = list(_compared(forms, *results))
        return found if in_a_loop else [*found, *_by_differences(forms, results[0])]


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


def _by_differences(forms: Derivatives, native: Results) -> Iterator[str]:
    if forms.is_single or forms.subject.example.draws:
        return
    slope = forms.slope()
    along = sum((g * d).sum() for g, d in zip(native["grad"], forms.direction, strict=True))
    if slope is not None and not np.isclose(along, slope, 1e-4, 1e-5):
        yield f"the slope is {along}, by differences {slope}"
