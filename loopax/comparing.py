"""The function `compare`: one program in every form on a user's own data, before it is trusted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.base.time_limits import time_limit
from loopax.builders import Builder
from loopax.calling import Backend, backend_named
from loopax.comparison import Comparison, Row
from loopax.comparison.derivatives import wrong_pullback
from loopax.comparison.differences import joined_difference, largest
from loopax.comparison.finite_differences import (
    along,
    contradiction,
    directions,
    function_of,
    least,
)
from loopax.comparison.first_difference import first_difference
from loopax.comparison.narrow import narrowed
from loopax.diagnosing import read_call
from loopax.diagnosis import Finding
from loopax.diagnosis.frames import Failed, Frame
from loopax.diagnosis.graph import GraphRun
from loopax.diagnosis.pullbacks import Pullbacks
from loopax.diagnosis.runner import Runner
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.program import Program
from loopax.ir.sequences import with_items
from loopax.products import hvp
from loopax.transforms import grad

_PYTHON = "PyTensor's Python mode"
_DIFFERENCES = "finite differences"
# Another order of summation rounds differently in a long sum; finite differences lose half of the digits.
_VALUES, _GRADIENTS, _BY_DIFFERENCES, _SINGLE = 1e-8, 1e-6, 1e-3, 1e-2
_DIRECTIONS = 3
_LONGEST = 20.0  # seconds for the program in single precision
_UNKNOWN = float("nan")  # a difference that was not computed


def compare(fn: object, /, *args: object, **kwargs: object) -> Comparison:
    """Compare a program in all its forms, with its derivatives and in single precision, for one call.

    Run it before you trust a program, and include it in bug reports. It compares the values of JAX's
    operations, of native code in JAX and of native code alone with the ops' own Python code. It
    compares gradients and second derivatives in these forms with one another and with finite
    differences, and float32 with float64.

    Parameters
    ----------
    fn
        Any function that `loopax.diagnose` takes, except transformations.
    args, kwargs
        The arguments of the call.

    Returns
    -------
    A table with the largest relative difference of each pair, and the op, line and step of the first
    difference. ``ok`` is true if everything agrees.

    Raises
    ------
    TypeError
        ``fn`` is not such a function.

    Notes
    -----
    Derivatives are taken of the sum of all float outputs. At a kink, for example a maximum of equal
    numbers, forms may differ, and finite differences do not exist. Random numbers are not compared,
    because JAX draws different ones.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from loopax import compare, jaxify, scan
    >>> f = jaxify(lambda x: scan(lambda c, r: (pt.tanh(c + r), None), 0.0, x)[0])
    >>> compare(f, np.linspace(0.0, 1.0, 5)).ok
    True
    """
    return _Comparison(read_call(fn, args, kwargs)).run()


@dataclass(frozen=True)
class _Form:
    """A way to compile a program."""

    name: str
    build: Callable[[Program], Any]


def _forms() -> list[_Form]:
    jax, numba = backend_named("jax"), backend_named("numba")

    def builder(backend: Backend, **options: object) -> Builder:
        return Builder(backend, backend.options(True, "callback", **options))

    return [
        _Form("JAX's operations", builder(jax, loops="xla")),
        _Form("native code in JAX", builder(jax, loops="native")),
        _Form("native code", builder(numba)),
    ]


class _Comparison:
    def __init__(self, call: GraphRun) -> None:
        self.call = call
        self.rows: list[Row] = []
        self.first: Finding | None = None
        self.forms = _forms()
        self.native = self.forms[-1]
        self._totals: dict[str, Any] = {}

    def run(self) -> Comparison:
        with np.errstate(all="ignore"), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._values()
            if self.floats:
                self._derivatives()
            self._single_precision()
        notes = tuple(dict.fromkeys(str(w.message) for w in caught))
        return Comparison(self.call.name, tuple(self.rows), self.first, notes)

    # -- values ----------------------------------------------------------------------------------

    @cached_property
    def frame(self) -> Frame:
        return Frame(self.call.graph, self.call.values)

    @cached_property
    def runner(self) -> Runner:
        return Runner(self.native.build, flushes=False)

    def _program(self, outputs: Sequence[Any], name: str) -> Program:
        graph = FunctionGraph(self.call.graph.inputs, list(outputs), clone=True)
        return Program.of_graph(graph, name)

    def _values(self) -> None:
        graph = self.call.graph
        try:
            reference = self.runner.run(self.frame)
        except Failed as failure:
            self.rows.append(
                Row("value", _PYTHON, "", _UNKNOWN, _VALUES, f"raises {failure.cause}")
            )
            return
        at = [k for k, x in enumerate(reference) if isinstance(x, np.ndarray | np.generic)]
        for form in self.forms:
            try:
                results = form.build(self._program(graph.outputs, "value"))(*self.call.values)
                apart = largest([reference[k] for k in at], [np.asarray(results[k]) for k in at])
            except Exception as error:  # reported in the table
                self._add_error("value", _PYTHON, form.name, _VALUES, error)
                continue
            tolerance = _VALUES if self._is_double else _BY_DIFFERENCES
            self.rows.append(Row("value", _PYTHON, form.name, apart, tolerance))
            if apart > tolerance and self.first is None:
                self.first = first_difference(
                    self.runner, self.frame, form.build, form.name, tolerance, self.call.names
                )

    # -- derivatives -----------------------------------------------------------------------------

    @cached_property
    def floats(self) -> list[int]:
        """Positions of the arguments by which derivatives are taken."""
        inputs = self.call.graph.inputs[: self.call.n_inputs]
        return [
            k for k, v in enumerate(inputs) if is_float(v) and isinstance(v.type, DenseTensorType)
        ]

    @cached_property
    def _is_double(self) -> bool:
        return all(
            getattr(v.type, "dtype", "") not in ("float32", "float16", "complex64")
            for v in (*self.call.graph.inputs, *self.call.graph.outputs)
        )

    def _total(self, form: _Form) -> Any:
        """The sum of all float outputs as a function in a form, compiled once."""
        if form.name not in self._totals:
            outs: list[Any] = [v for v in self.call.graph.outputs if is_float(v)]
            sums = [v.sum() for v in outs]
            program = self._program([pt.add(*sums) if sums[1:] else sums[0]], "total")
            program.build = lambda outputs: outputs[0]
            self._totals[form.name] = form.build(program)
        return self._totals[form.name]

    def _derivatives(self) -> None:
        if not any(map(is_float, self.call.graph.outputs)):
            return
        values = list(self.call.values)
        moving = [np.asarray(values[k], float) for k in self.floats]
        direction = directions(moving, seed=2)
        typed = [
            d.astype(np.asarray(values[k]).dtype)
            for k, d in zip(self.floats, direction, strict=True)
        ]
        tangents = with_items([None] * len(values), self.floats, typed)
        gradients: dict[str, Any] = {}
        slopes: dict[str, list[Any]] = {}
        seconds: dict[str, list[Any]] = {}
        for form in self.forms:
            try:
                total = self._total(form)
                gradients[form.name] = grad(total, tuple(self.floats))
                slopes_of_form = [np.asarray(g) for g in gradients[form.name](*values)]
                second = hvp(total, values, tangents)
            except Exception as error:  # reported in the table
                self._add_error("gradient", form.name, "", _GRADIENTS, error)
                continue
            second = second if isinstance(second, tuple | list) else [second]
            slopes[form.name] = slopes_of_form
            seconds[form.name] = [np.asarray(x) for x in second]
        self._compared("gradient", slopes)
        self._compared("second derivative", seconds)
        if not slopes:
            return
        name = next(iter(slopes))
        if not self._is_double:
            remark = "float32 is too coarse"
            self.rows.append(Row("gradient", name, _DIFFERENCES, _UNKNOWN, _BY_DIFFERENCES, remark))
            return
        total = self._total(self.native)
        of_floats = function_of(lambda *args: [total(*args)], values, self.floats)
        for form_name, own in slopes.items():
            self._by_differences(form_name, own, of_floats, moving)
        gradient = function_of(gradients[name], values, self.floats)
        apart = [joined_difference(seconds[name], x) for x in along(gradient, moving, direction)]
        self.rows.append(
            Row("second derivative", name, _DIFFERENCES, least(apart), _BY_DIFFERENCES)
        )

    def _compared(self, kind: str, by_form: Mapping[str, Sequence[Any]]) -> None:
        tolerance = _GRADIENTS if self._is_double else _BY_DIFFERENCES
        names = list(by_form)
        for name in names[1:]:
            apart = largest(by_form[names[0]], by_form[name])
            self.rows.append(Row(kind, names[0], name, apart, tolerance))

    def _by_differences(
        self, name: str, slopes: Sequence[Any], f: Callable[..., Any], moving: Sequence[Any]
    ) -> None:
        worst = max(contradiction(f, moving, slopes, seed) for seed in range(_DIRECTIONS))
        self.rows.append(Row("gradient", name, _DIFFERENCES, worst, _BY_DIFFERENCES))
        if worst > _BY_DIFFERENCES and self.first is None:
            self.first = wrong_pullback(
                Pullbacks(self.native.build), self.frame, self.call.names, _BY_DIFFERENCES
            )

    # -- precision -------------------------------------------------------------------------------

    def _single_precision(self) -> None:
        """Compare the program in float32 with the program in float64."""
        if not self._is_double:
            return
        form = self.native
        try:
            graph = narrowed(self.call.graph)
            values = [
                np.asarray(x).astype(v.type.dtype)
                if hasattr(v.type, "dtype") and not hasattr(x, "indptr")
                else x
                for x, v in zip(self.call.values, graph.inputs, strict=True)
            ]
            with time_limit(_LONGEST):  # a loop may wait for a tolerance below float32's precision
                single = form.build(Program.of_graph(graph, "float32"))(*values)
            double = form.build(self._program(self.call.graph.outputs, "float64"))(
                *self.call.values
            )
        except Exception as error:  # an op without float32
            self._add_error("value", "float64", "float32", _SINGLE, error)
            return
        at = [k for k, v in enumerate(graph.outputs) if is_float(v) and hasattr(v.type, "ndim")]
        apart = largest([double[k] for k in at], [single[k] for k in at])
        remark = f"{-np.log10(apart):.0f} digits agree" if 0 < apart < 1 else ""
        self.rows.append(Row("value", "float64", "float32", apart, _SINGLE, remark))

    def _add_error(
        self, kind: str, first: str, second: str, tolerance: float, error: Exception
    ) -> None:
        message = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:100]}"
        self.rows.append(Row(kind, first, second, _UNKNOWN, tolerance, f"raises {message}"))
