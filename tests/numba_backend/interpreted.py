"""A native program run as the Python that it is: no compiling, so that there can be many of them."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, wraps
from typing import Any

import numpy as np
from numba import njit
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from pytensor.graph.fg import FunctionGraph

from loopax.calling import register_backend
from loopax.lowering import lower_to_loops
from loopax.numba_backend import NUMBA
from loopax.numba_backend.callable.program import emitted
from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.size_specializations import Sizes, SizeSpecializations
from loopax.numba_backend.runtime.checks import StateChangesShape
from tests.support.compare import imported
from tests.support.evaluating_backend import EvaluatedFunction

UNKNOWN = 10**9  # no length that a program would be written for


def lowered(inputs: list[Any], outputs: list[Any]) -> FunctionGraph:
    graph = imported(inputs, outputs).graph
    lower_to_loops(graph)
    return graph


def as_python(graph: FunctionGraph) -> SizeSpecializations:
    """The functions of a lowered graph for some lengths. Numba would compile one at its first call."""

    def write(sizes: Sizes, keeps_shapes: bool) -> Emitter:
        emit = emitted(graph, sizes, keeps_shapes)
        emit.namespace = {name: _from_python(f) for name, f in emit.namespace.items()}
        emit.namespace["as_scalar"] = lambda x: np.asarray(x)[()]
        return emit

    return SizeSpecializations(write)


def _from_python(f: Any) -> Any:
    """``f`` as Python may call it: uncompiled, unless it calls what only native code may.

    PyTensor compiles what its conversions consist of without an entry for Python: a call from there is a
    segmentation fault.
    """
    function = getattr(f, "py_func", f)
    if function is f:
        return f
    code, known = function.__code__, function.__globals__
    used = [known.get(name) for name in code.co_names]
    used += [cell.cell_contents for cell in function.__closure__ or ()]
    return _compiled(f, function) if any(map(_is_native_only, used)) else _of_arrays(function)


_COMPILED: dict[Any, Any] = {}


def _compiled(f: Any, function: Any) -> Any:
    """``f`` with an entry for Python. PyTensor writes one for each use of SciPy's functions: all alike."""
    code, known = function.__code__, function.__globals__
    name = known.get("unique_func_name")
    dtypes = [(k, v) for k, v in known.items() if isinstance(v, np.dtype)]
    alike = (name, code.co_code, code.co_consts, tuple(sorted(dtypes, key=str)))
    key = alike if name else function
    if key not in _COMPILED:
        options = {"error_model": f.targetoptions.get("error_model", "python")}
        _COMPILED[key] = _of_numpy(njit(**options)(function))
    return _COMPILED[key]


_SCALARS = {bool: np.bool_, int: np.int64, float: np.float64}


def _of_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numba returns numbers of Python, which do not wrap where those of NumPy and of native code do."""

    @wraps(function)
    def run(*values: Any) -> Any:
        out = function(*values)
        if type(out) is tuple:
            return tuple(_SCALARS.get(type(x), lambda x: x)(x) for x in out)
        return _SCALARS.get(type(out), lambda x: x)(out)

    return run


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """SciPy sums a sparse matrix along an axis to an ``np.matrix``, where native code has a vector."""

    @wraps(function)
    def run(*values: Any) -> Any:
        out = function(*values)
        return out.A1 if isinstance(out, np.matrix) else out

    return run


def _is_native_only(f: Any) -> bool:
    options = f.targetoptions if isinstance(f, Dispatcher) else {}
    return isinstance(f, _Intrinsic) or options.get("no_cpython_wrapper", False)


def interpreted(graph: FunctionGraph, sized: bool = False) -> Callable[..., list[Any]]:
    """The program of a lowered graph as a Python function of one value for each input.

    With ``sized`` it is written for the small lengths that its arguments have, wherever a step uses
    them. A state that changes its shape is found as it is by native code, and the program written anew.
    Its ``source`` is the program as it was written first, its ``by_python`` the ops that nothing native is
    known for.
    """
    variants = as_python(graph)

    def run(*values: Any) -> list[Any]:
        # In C order, as native code is entered.
        given = [
            np.asarray(x, order="C") if isinstance(x, np.ndarray | float | int) else x
            for x in values
        ]
        given = [x[()] if getattr(x, "ndim", 1) == 0 else x for x in given]
        lengths = tuple(given[k].shape[axis] if sized else UNKNOWN for k, axis in variants.axes)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # overflow of integers, which wrap
            try:
                actual = variants.find(lengths).py_func(*given)
            except StateChangesShape:
                variants.changing()
                actual = variants.find(lengths).py_func(*given)
        return [
            np.asarray(y, v.type.dtype) if hasattr(v.type, "dtype") and np.ndim(y) == 0 else y
            for y, v in zip(actual, graph.outputs, strict=True)
        ]

    run.source = variants.source  # type: ignore[attr-defined]
    run.by_python = variants.by_python  # type: ignore[attr-defined]
    return run


class InterpretedFunction(EvaluatedFunction):
    """What `loopax.jaxify` makes for Numba, with its program run as Python."""

    backend_name = "numba as Python"
    sized = False

    @cached_property
    def _program(self) -> Callable[..., list[Any]]:
        return interpreted(self.program.graph, self.sized)

    def _computed(self, values: Sequence[Any]) -> list[Any]:
        return self._program(*values)


class SizedFunction(InterpretedFunction):
    """The same, written for the lengths of its arguments."""

    backend_name = "numba as Python, sized"
    sized = True


_CHOICES = {**NUMBA.choices, "checks": ("raise",)}

for _function in (InterpretedFunction, SizedFunction):
    register_backend(
        replace(NUMBA, name=_function.backend_name, function=_function, choices=_CHOICES)
    )
