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
from tests.every_op.cells import Subject, direction_of
from tests.jax_backend.interpreted import evaluate
from tests.numba_backend.interpreted import InterpretedFunction
from tests.support.compare import primitives

NO_DERIVATIVE = (
    NotImplementedError,
    NullTypeGradError,
    DisconnectedInputError,
    UnsupportedOpError,
    MethodNotDefined,
)
_STEP = 1e-5
_KERNELS = {"loopax_kernel", "loopax_kernel_jvp", "loopax_native_call"}
Results = dict[str, list[Any]]


class Refused(Exception):
    """There is nothing to compare, and the message says why."""


class NotNative(AssertionError):
    """Native code has no derivative, and JAX's operations have been differentiated in its place."""


class Derivatives:
    """The gradient, a product with the Jacobian and one with the Hessian, of the sum of all outputs.

    All arguments of a program, zeros as well as ties, share what is traced and written for their shapes.
    """

    def __init__(self, subject: Subject, in_a_loop: bool) -> None:
        if not (subject.floats and subject.differentiable):
            raise Refused("no float to differentiate")
        self.subject, self.in_a_loop = subject, in_a_loop
        self.inputs, self._factors = list(subject.inputs), []
        try:
            with _silence():
                self.cost = subject._graph_cost()
                if in_a_loop:
                    self._put_in_a_loop()
        except Exception as error:
            raise Refused(f"PyTensor has no value: {type(error).__name__}") from error
        self._by_loopax = cache(self._transformations)
        self._jaxpr = cache(self._traced)

    def _put_in_a_loop(self) -> None:
        """Compute the cost in each of two steps, of inputs that only the step has.

        The factors are 1. They are an input, or passes would move the cost out of the loop. (No tanh: with
        an infinite tangent, its derivative in JAX before 0.12 is inf - inf.)
        """
        floats = self.subject.floats_of(self.subject.inputs)
        cost, factors = self.cost, pt.dvector("factors")

        def step(carry: Any, factor: Any) -> Any:
            (inside,) = replaced([cost], {v: v * factor.astype(v.dtype) for v in floats})
            return 0.5 * carry + pt.arctan(0.1 * inside), None

        self.cost = loopax.scan(step, pt.zeros((), dtype=cost.dtype), factors)[0]
        self.inputs.append(factors)
        self._factors.append(np.ones(2))

    @property
    def is_single(self) -> bool:
        return any(self.subject.values[k].dtype.itemsize < 8 for k in self.subject.floats)

    def numba(self, values: list[Any]) -> Results:
        """Run as Python, or compiled where it calls what only native code may."""
        try:
            return self._by_loopax(InterpretedFunction.backend_name)(values)
        except NO_DERIVATIVE:
            raise
        except Exception:
            return self._by_loopax("numba")(values)

    def _transformations(self, backend: str) -> Callable[[list[Any]], Results]:
        f = loopax.jaxify(self.inputs, self.cost, backend=backend)
        gradient = loopax.grad(f, argnums=tuple(self.subject.floats))

        def run(values: list[Any]) -> Results:
            along = dict(zip(self.subject.floats, self.direction(values), strict=True))
            tangents = tuple(along.get(k) for k in range(len(values)))
            products = loopax.hvp(f, copy.deepcopy(values), tangents)
            return {
                "grad": [*gradient(*copy.deepcopy(values))],
                "jvp": [loopax.jvp(f, copy.deepcopy(values), tangents)[1]],
                "hvp": [*products] if isinstance(products, tuple) else [products],
            }

        return run

    def native(self, values: list[Any]) -> Results:
        floats = self.subject.floats_of(values)
        jaxpr, remarks = self._jaxpr("native", _shapes(floats))
        if _KERNELS.isdisjoint(primitives(jaxpr)):
            raise NotNative(f"no part of it is native code. {'. '.join(remarks)}")
        args = [*floats, *self.direction(values)]
        try:
            return self._named(evaluate(jaxpr, args))
        except Exception:  # a kernel that calls what only native code may
            return self._named(jax.jit(jax.extend.core.jaxpr_as_fun(jaxpr))(*args))

    def xla(self, values: list[Any], by: float = 0.0) -> Results:
        """At the arguments, or where rounding might have put them."""
        direction = self.direction(values)
        floats = self.subject.floats_of(self.subject.moved(direction, by, values))
        jaxpr, _ = self._jaxpr("xla", _shapes(floats))
        return self._named(evaluate(jaxpr, [*floats, *direction]))

    def slope(self, values: list[Any]) -> Any:
        """The derivative along the direction where all differences have the same one, else None."""
        subject, direction = self.subject, self.direction(values)
        up, beside, here, down = (
            subject.cost(subject.reference(subject.moved(direction, s * _STEP, values)))
            for s in (1, 0.5, 0, -1)
        )
        central = (up - down) / (2 * _STEP)
        others = (up - here) / _STEP, (here - down) / _STEP, (beside - here) / (_STEP / 2)
        smooth = all(np.isfinite(x) and np.isclose(x, central, 1e-2, 1e-3) for x in others)
        return central if smooth else None

    def direction(self, values: list[Any]) -> list[Any]:
        floats = self.subject.floats_of(values)
        return [np.asarray(d, x.dtype) for d, x in zip(direction_of(floats), floats, strict=True)]

    def _named(self, results: list[Any]) -> Results:
        n = len(self.subject.floats)
        return {"grad": results[:n], "hvp": results[n : 2 * n], "jvp": results[2 * n :]}

    def _traced(self, loops: str, shapes: tuple[Any, ...]) -> Any:
        f = loopax.jaxify(self.inputs, self.cost, checks="ignore", loops=loops)
        of_floats = self.subject.of_inputs(lambda *xs: f(*xs, *self._factors), self.subject.floats)
        gradient = jax.grad(of_floats, argnums=tuple(range(len(shapes))))

        def derivatives(floats: Any, along: Any) -> Any:
            return jax.jvp(gradient, floats, along), jax.jvp(of_floats, floats, along)[1]

        dtypes = [self.subject.values[k].dtype for k in self.subject.floats]
        floats = tuple(map(jax.ShapeDtypeStruct, shapes, dtypes))
        return jax.make_jaxpr(derivatives)(floats, floats), f.remarks


def _shapes(values: list[Any]) -> tuple[Any, ...]:
    return tuple(map(np.shape, values))


def disagreements(forms: Derivatives, values: list[Any], by_differences: bool = True) -> list[str]:
    """Where native code has another derivative than JAX's operations, or none.

    In a loop both are by `jax`. Outside, native code takes its own, and differences have to agree as well.
    At a kink each of the three has another one, and at a singular matrix some have none, so numbers are
    compared where the program is smooth. Without ``by_differences`` nothing is compared with them.

    Raises
    ------
    Refused
        A form has no derivative.
    AssertionError
        A form fails.
    """
    with _silence():
        form = forms.native if forms.in_a_loop else forms.numba
        native, xla = _results(values, form, forms.xla)
        has_differences = not (forms.in_a_loop or forms.subject.example.draws or forms.is_single)
        if not (has_differences and by_differences):
            return list(_compared(forms, values, native, xla))
        slope = forms.slope(values)
        if slope is None:
            return []
        faults = list(_compared(forms, values, native, xla))
        direction = forms.direction(values)
        along = sum((g * d).sum() for g, d in zip(native["grad"], direction, strict=True))
        if not np.isclose(along, slope, 1e-4, 1e-5):
            faults.append(f"the slope is {along}, by differences {slope}")
        return faults


@contextmanager
def _silence() -> Iterator[None]:
    """Singular arguments are what these tests are about."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _results(values: list[Any], *forms: Callable[[list[Any]], Results]) -> list[Results]:
    results = []
    for form in forms:
        try:
            results.append(form(values))
        except NO_DERIVATIVE as error:
            raise Refused(f"{form.__name__}: {error}") from error
        except NotNative:
            raise
        except Exception as error:
            raise AssertionError(f"{form.__name__}: {type(error).__name__}: {error}") from error
    return results


def _compared(
    forms: Derivatives, values: list[Any], native: Results, xla: Results
) -> Iterator[str]:
    rtol, atol = (2e-3, 1e-4) if forms.is_single else (1e-6, 1e-8)

    def close(x: Any, y: Any) -> bool:
        return bool(np.allclose(x, y, rtol, atol, equal_nan=True))

    def decided_by_rounding(what: str, k: int) -> bool:
        """Whether a finite result goes on changing where its arguments move by rounding errors."""
        if not (np.isfinite(native[what][k]).all() and np.isfinite(xla[what][k]).all()):
            return False
        unit = 1e-6 if forms.is_single else 1e-14
        sides = [
            [forms.xla(values, sign * n * unit)[what][k] for n in (1, 2, 4)] for sign in (1, -1)
        ]
        return any(not close(a, b) or not close(b, c) for a, b, c in sides)

    for what in ("grad", "jvp", "hvp"):
        for k, (x, y) in enumerate(zip(native[what], xla[what], strict=True)):
            x, y = np.asarray(x), np.asarray(y)
            if x.shape != y.shape or x.dtype != y.dtype:
                yield f"{what} {k}: native {x.dtype}{x.shape}, xla {y.dtype}{y.shape}"
            elif not close(x, y) and not decided_by_rounding(what, k):
                yield f"{what} {k}: native {x.tolist()}, xla {y.tolist()}"
