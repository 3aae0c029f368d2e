"""A cell of the table: what became of an example, compared with what it should be.

Each is one of these, and anything else is an error:

native          JAX's own operations, or the emitter's native code, with the right values
callback        right, and the op runs on the host in Python
discrete        there is no float to differentiate
no derivative   PyTensor defines none, and neither does JAX
no shape        the value of an input makes a shape, which JAX has to know
inexact in PyTensor   the gradient is PyTensor's, which is not the derivative
in C alone      PyTensor itself has the op in C, and in no other language
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedInputError, NullTypeGradError
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import graph_inputs

import loopax
from loopax import DynamicShapeError, PaddedArray, UnsupportedOpError, jaxify
from tests.every_op.record import COLUMNS, PLAIN, Example, value_of
from tests.jax_backend.interpreted import InterpretedFunction as InterpretedJax
from tests.jax_backend.interpreted import evaluate
from tests.numba_backend.interpreted import InterpretedFunction
from tests.support.compare import primitives

NATIVE, CALLBACK, DISCRETE = "native", "callback", "discrete"
NO_DERIVATIVE, NO_SHAPE, IN_C = "no derivative", "no shape", "in C alone"
INEXACT = "inexact in PyTensor"
_STEP = 1e-5
_WIDE = 1e-3  # for second differences
_NEXT_ROW = 0.97  # a second row of a batch: every float of the first times this


class Wrong(AssertionError):
    """A number, a shape or a dtype that is not the reference's."""


def direction_of(floats: Sequence[Any]) -> list[Any]:
    """A direction that every element of every float input has its part in."""
    return [
        np.sin(1.0 + k + np.arange(np.size(x))).reshape(np.shape(x)) for k, x in enumerate(floats)
    ]


class Subject:
    """One example, run through every column."""

    def __init__(self, example: Example) -> None:
        self.example = example
        outputs = example.outputs
        self.outputs = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
        self.inputs = [
            v for v in dict.fromkeys(graph_inputs(self.outputs)) if hasattr(v.tag, "value")
        ]
        self.values = [value_of(v) for v in self.inputs]
        self.arrays = [k for k, x in enumerate(self.values) if isinstance(x, np.ndarray)]
        self.floats = [k for k in self.arrays if self.values[k].dtype.kind == "f"]
        self.differentiable = [
            k
            for k, v in enumerate(self.outputs)
            if getattr(v.type, "dtype", "")[:3] in ("flo", "com")
        ]

    def cells(self, columns: Sequence[str] = COLUMNS) -> dict[str, str]:
        return {c: self.cell(c) for c in columns}

    def cell(self, column: str) -> str:
        of_derivatives = column in ("jax.grad", "second", "loopax.grad")
        if of_derivatives and not (self.floats and self.differentiable):
            return DISCRETE
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                return str(
                    getattr(self, f"_{column.replace('.', '_').replace(' ', '_').lower()}")()
                )
            except DynamicShapeError:
                return NO_SHAPE
            except UnsupportedOpError as error:
                if "pullback" in str(error) or "undefined" in str(error):
                    return NO_DERIVATIVE
                raise
            except (NullTypeGradError, NotImplementedError, DisconnectedInputError) as error:
                if of_derivatives:
                    return NO_DERIVATIVE
                if "No Python implementation" in str(error):
                    return IN_C
                raise

    @cached_property
    def graph(self) -> FunctionGraph:
        return FunctionGraph(self.inputs, self.outputs, clone=True)

    # -- the reference

    @cached_property
    def _run_reference(self) -> Any:
        expected = self.example.expected
        outputs = self.outputs if expected is None else expected
        outputs = outputs if isinstance(outputs, list) else [outputs]
        return pytensor.function(self.inputs, outputs, mode=PLAIN, on_unused_input="ignore")

    def reference(self, values: Sequence[Any]) -> list[Any]:
        return [np.asarray(x) for x in self._run_reference(*map(copy.deepcopy, values))]

    @cached_property
    def expected(self) -> list[Any]:
        return self.reference(self.values)

    def same(self, actual: Sequence[Any], expected: Sequence[Any] | None = None) -> None:
        """Values, shapes and dtypes."""
        expected = self.expected if expected is None else expected
        for x, y, v in zip(actual, expected, self.outputs, strict=True):
            x = np.asarray(x)
            if x.dtype != v.type.dtype:
                raise Wrong(f"{v} has the dtype {x.dtype}, not {v.type.dtype}")
            if x.shape != y.shape:
                raise Wrong(f"{v} has the shape {x.shape}, not {y.shape}")
            rtol = self.example.rtol if x.dtype.itemsize >= 8 else 1e-5
            if not self.example.draws and not np.allclose(x, y, rtol, 1e-12, equal_nan=True):
                raise Wrong(f"{v} is\n{x}, not\n{y}")

    def moved(
        self, direction: Sequence[Any], by: float, values: Sequence[Any] | None = None
    ) -> list[Any]:
        values = list(self.values if values is None else values)
        for k, d in zip(self.floats, direction, strict=True):
            values[k] = values[k] + np.asarray(by * d, values[k].dtype)
        return values

    @cached_property
    def direction(self) -> list[Any]:
        return direction_of(self._floats)

    def cost(self, outputs: Sequence[Any], xp: Any = np) -> Any:
        """A number that every element of every float output has its part in."""
        total = 0.0
        for k in self.differentiable:
            y = outputs[k]
            y = y.data if isinstance(y, PaddedArray) else y
            weights = np.cos(1.0 + np.arange(np.size(y))).reshape(np.shape(y))
            total = total + (weights * xp.real(y)).sum()
            if self.outputs[k].type.dtype.startswith("complex"):
                total = total + (weights[::-1] * xp.imag(y)).sum()
        return total

    def slope(self, f: Callable[[list[Any]], Any]) -> Any:
        """The derivative of ``f`` along the direction, by differences."""
        up, down = (f(self.moved(self.direction, s * _STEP)) for s in (1, -1))
        return jax.tree.map(lambda a, b: (np.asarray(a) - b) / (2 * _STEP), up, down)

    # -- JAX

    @cached_property
    def _in_jax(self) -> Any:
        return jaxify(self.inputs, self.outputs, jit=False, checks="ignore", loops="xla")

    def _called(self, places: Sequence[int]) -> Callable[..., Any]:
        """The program as a function of the inputs at ``places``; the others are constants of JAX's."""
        return self.of_inputs(self._in_jax, places)

    def of_inputs(self, f: Callable[..., Any], places: Sequence[int]) -> Callable[..., Any]:
        """``f``, a function of all inputs, as one of those at ``places``."""

        def of_some(*some: Any) -> Any:
            values = self.with_key
            for k, x in zip(places, some, strict=True):
                values[k] = x
            return f(*values)

        return of_some

    @property
    def with_key(self) -> list[Any]:
        return [x if isinstance(x, np.ndarray) else jax.random.key(3) for x in self.values]

    def floats_of(self, values: Sequence[Any]) -> list[Any]:
        """Of a value for each input, or of the inputs, those of floats."""
        return [values[k] for k in self.floats]

    def _at(self, places: Sequence[int]) -> list[Any]:
        return [self.values[k] for k in places]

    @property
    def _floats(self) -> list[Any]:
        return self.floats_of(self.values)

    def _traced(self, f: Callable[..., Any], *args: Any) -> tuple[list[Any], str]:
        """What ``f`` gives at ``args`` when JAX has traced it, and whether a part of it is on the host."""
        jaxpr = jax.make_jaxpr(f)(*args)
        on_host = any(name.endswith("callback") for name in primitives(jaxpr))
        actual = self._evaluated(jaxpr, jax.tree.leaves(args))
        return actual, CALLBACK if on_host else NATIVE

    def _evaluated(self, jaxpr: Any, values: Sequence[Any]) -> list[Any]:
        if self.example.many:
            return list(jax.jit(jax.extend.core.jaxpr_as_fun(jaxpr))(*values))
        return evaluate(jaxpr, values)

    @cached_property
    def _under_jit_result(self) -> str:
        f, values = self._called(self.arrays), self._at(self.arrays)
        structure = jax.tree.leaves(jax.eval_shape(f, *values), is_leaf=_is_padded)
        if any(map(_is_padded, structure)):
            raise DynamicShapeError("the number of rows hangs on a value")
        actual, cell = self._traced(f, *values)
        self.same(actual)
        return cell

    def _under_jit(self) -> str:
        return self._under_jit_result

    def _jax(self) -> str:
        """A direct call: inputs that make shapes are static."""
        try:
            return self._under_jit_result
        except DynamicShapeError:
            options = {"checks": "ignore", "loops": "xla", "jit": False}
            f = jaxify(self.inputs, self.outputs, backend=InterpretedJax.backend_name, **options)
            actual = jax.tree.leaves(f(*self.with_key), is_leaf=_is_padded)
            self.same([np.asarray(x) for x in actual])
            return NATIVE

    def _jax_cost(self, *floats: Any) -> Any:
        return self.cost(self._called(self.floats)(*floats), jnp)

    @cached_property
    def _gradient_in_jax(self) -> Any:
        argnums = tuple(range(len(self.floats)))
        return jax.make_jaxpr(jax.grad(self._jax_cost, argnums=argnums))(*self._floats)

    def _gradient_at(self, values: Sequence[Any]) -> list[Any]:
        return self._evaluated(self._gradient_in_jax, self.floats_of(values))

    def _expected_cost(self, values: Sequence[Any]) -> Any:
        if self.example.draws:
            return self.cost(self.example.moved(self.drawn, self.values, values))
        return self.cost(self.reference(values))

    @cached_property
    def drawn(self) -> Any:
        return np.asarray(self._traced(self._called([]))[0][0])

    @cached_property
    def expected_slope(self) -> Any:
        if self.example.by_pytensor:
            return sum(
                (g * d).sum() for g, d in zip(self._pytensor_at(1), self.direction, strict=True)
            )
        return self.slope(self._expected_cost)

    def _pytensor_at(self, order: int) -> list[Any]:
        """PyTensor's gradient, or of its product with the direction the gradient again."""
        wrt = self.floats_of(self.inputs)
        actual = pytensor.grad(self._graph_cost(), wrt)
        if order == 2:
            along = sum((g * d).sum() for g, d in zip(actual, self.direction, strict=True))
            actual = pytensor.grad(along, wrt, disconnected_inputs="ignore")
        run = pytensor.function(self.inputs, actual, mode=PLAIN, on_unused_input="ignore")
        return run(*self.values)

    def _is_slope(self, gradient: Sequence[Any]) -> None:
        actual = sum((g * d).sum() for g, d in zip(gradient, self.direction, strict=True))
        expected = self.expected_slope
        if not np.isclose(actual, expected, 1e-5, self.example.atol_slope):
            raise Wrong(f"the slope is {actual}, not {expected}")

    def _jax_grad(self) -> str:
        self._is_slope(self._gradient_at(self.values))
        return _by(self._gradient_in_jax)

    def _second(self) -> str:
        argnums = tuple(range(len(self.floats)))
        gradient = jax.grad(self._jax_cost, argnums=argnums)
        directions = tuple(
            np.asarray(d, self.values[k].dtype)
            for d, k in zip(self.direction, self.floats, strict=True)
        )

        def along(*xs: Any) -> Any:
            return sum((g * d).sum() for g, d in zip(gradient(*xs), directions, strict=True))

        def second(*xs: Any) -> Any:
            if self.example.by_pytensor:  # whose second derivatives are in reverse mode, too
                return jax.grad(along, argnums=argnums)(*xs)
            return jax.jvp(gradient, xs, directions)[1]

        jaxpr = jax.make_jaxpr(second)(*self._floats)
        actual = self._evaluated(jaxpr, self._floats)
        if self.example.draws:
            return self._second_of_draws(actual, jaxpr)
        expected = (
            self._pytensor_at(2) if self.example.by_pytensor else self.slope(self._gradient_at)
        )
        for x, y in zip(actual, expected, strict=True):
            if not np.allclose(x, y, 1e-4, 1e-6):
                raise Wrong(f"the second derivative is\n{x}, not\n{y}")
        return _by(jaxpr)

    def _second_of_draws(self, actual: Sequence[Any], jaxpr: Any) -> str:
        """Along the direction, twice: what is drawn moves as its law does."""
        along = sum((g * d).sum() for g, d in zip(actual, self.direction, strict=True))
        up, middle, down = (
            self._expected_cost(self.moved(self.direction, s * _WIDE)) for s in (1, 0, -1)
        )
        expected = (up - 2 * middle + down) / _WIDE**2
        if not np.isclose(along, expected, 1e-3, self.example.atol_second):
            raise Wrong(f"the second derivative is {along}, not {expected}")
        return _by(jaxpr)

    def _vmap(self) -> str:
        places = self.floats or self.arrays
        rows = [
            [x, np.asarray(x * _NEXT_ROW, x.dtype) if self.floats else x] for x in self._at(places)
        ]
        batch = [np.stack(r) for r in rows]
        f = jax.vmap(self._called(places)) if places else self._called([])
        structure = jax.tree.leaves(jax.eval_shape(f, *batch), is_leaf=_is_padded)
        if any(map(_is_padded, structure)):
            raise DynamicShapeError("the number of rows hangs on a value")
        actual, cell = self._traced(f, *batch)
        for r in range(2 if places else 0):
            values = list(self.values)
            for k, x in zip(places, rows, strict=True):
                values[k] = x[r]
            self.same([x[r] for x in actual], self.reference(values))
        return cell

    # -- Numba

    def _in_numba(self, outputs: Any) -> Any:
        return jaxify(self.inputs, outputs, backend=InterpretedFunction.backend_name)

    def _numba(self) -> str:
        f = self._in_numba(self.outputs)
        try:
            actual = f(*map(copy.deepcopy, self.values))
        except Wrong:
            raise
        except Exception:  # it calls what is native code only
            actual = jaxify(self.inputs, self.outputs, backend="numba")(*self.values)
        self.same(actual)
        return CALLBACK if f._program.by_python else NATIVE

    def _graph_cost(self) -> Any:
        total: Any = 0.0
        for k in self.differentiable:
            y, shape = self.outputs[k], self.expected[k].shape
            weights = np.cos(1.0 + np.arange(np.prod(shape, dtype=int))).reshape(shape)
            if y.type.dtype.startswith("complex"):
                total = total + (weights * pt.real(y)).sum() + (weights[::-1] * pt.imag(y)).sum()
            else:
                total = total + (weights * y).sum()
        return total

    def _pytensor_fails(self, cost: Any) -> bool:
        """Whether ``pytensor.grad`` has no derivative, or fails, or gives what it does not declare."""
        try:
            gradients = pytensor.grad(cost, self.floats_of(self.inputs))
            f = pytensor.function(self.inputs, gradients, mode=PLAIN, on_unused_input="ignore")
            actual = f(*map(copy.deepcopy, self.values))
        except Exception:
            return True
        return any(not isinstance(x, np.ndarray | np.generic) for x in actual)

    def _loopax_grad(self) -> str:
        total = self._graph_cost()
        try:
            f = loopax.grad(self._in_numba(total), argnums=tuple(self.floats))
            actual = f(*map(copy.deepcopy, self.values))
        except Exception:
            if self._pytensor_fails(total):
                return NO_DERIVATIVE
            raise
        try:
            self._is_slope(actual)
        except Wrong:
            pairs = zip(actual, self._pytensor_at(1), strict=True)
            if all(np.allclose(x, y, 1e-9) for x, y in pairs):
                return INEXACT
            raise
        return CALLBACK if f._program.by_python else NATIVE


def _is_padded(x: Any) -> bool:
    return isinstance(x, PaddedArray)


def _by(jaxpr: Any) -> str:
    return CALLBACK if any(n.endswith("callback") for n in primitives(jaxpr)) else NATIVE
