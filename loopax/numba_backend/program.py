"""A graph as one native function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import njit
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType

from loopax.ir.compat import InnerGraphOp
from loopax.ir.errors import UnsupportedOpError, describe
from loopax.ir.trace import TraceType
from loopax.lowering.scan_to_loop import scan_to_loop
from loopax.numba_backend import rules
from loopax.numba_backend.calling import caller
from loopax.numba_backend.emitter import Emitter, find_rule
from loopax.numba_backend.leaf import has_conversion, leaf
from loopax.numba_backend.source import Source, tuple_of
from loopax.numba_backend.values import Array, Small, small

# Small arrays are written out, element by element, up to so many elements, as long as the program
# stays this short: a line costs about 2 ms to compile.
_SIZES, _LINES = (64, 16, 1), 2000

_DTYPES = {"bool", "float32", "float64"} | {
    f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}


class NativeProgram:
    """A compiled graph: called with one value for each input, it returns a list of arrays.

    ``source`` is the program as text. It is compiled on the first call.
    """

    def __init__(self, graph: FunctionGraph) -> None:
        self.inputs = [v.type for v in graph.inputs]
        self.outputs = [v.type for v in graph.outputs]
        emit = _emitted(graph)
        self.source = str(emit.source)
        self.function = njit(error_model="numpy")(emit.source.function(emit.namespace))

        self.call = caller(self.function, self.inputs, self.outputs)

    def __call__(self, *values: Any) -> list[Any]:
        if len(values) != len(self.inputs):
            raise TypeError(f"The program takes {len(self.inputs)} inputs, got {len(values)}.")
        return self.call(*values)


def compile_program(graph: FunctionGraph) -> NativeProgram:
    """``graph``, imported and lowered, as one native function. It is left as it is.

    Raises
    ------
    UnsupportedOpError
        The graph has ops or types that cannot be emitted; all of them are listed.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pytensor.graph.fg import FunctionGraph
    >>> x = pt.dvector("x")
    >>> run = compile_program(FunctionGraph([x], [pt.exp(x).sum()]))
    >>> run([0.0, 0.0])
    [array(2.)]
    >>> print(run.source)
    def program(x0):
        n0 = x0.shape[0]
        sum0 = 0.0
        for i0 in range(n0):
            t0 = x0[i0]
            t1 = np.exp(t0)
            sum0 = sum0 + t1
        return (sum0,)
    """
    graph = graph.clone()
    scan_to_loop(graph)
    if lines := list(dict.fromkeys(_unsupported(graph))):
        listed = "\n".join(f"- {line}" for line in lines)
        raise UnsupportedOpError(
            f"The program has what cannot be written as native code:\n{listed}\n"
            "Compile it with pytensor.function(..., mode='NUMBA'), or run it in JAX with jaxify.",
            lines,
        )
    return NativeProgram(graph)


def _unsupported(graph: Any, inner: bool = False) -> Any:
    ends = [] if inner else [*graph.inputs, *graph.outputs]
    for v in ends:
        if not _emittable(v):
            yield f"{describe(v)}: a type that is no array of numbers"
    for node in graph.toposort():
        if find_rule(node.op) is leaf and not has_conversion(node.op):
            yield f"{node.op}, for {describe(node.outputs[0])}: no conversion to Numba is registered"
        constants = [v for v in node.inputs if isinstance(v, Constant) and hasattr(v.type, "dtype")]
        for v in [*node.outputs, *constants]:
            if not _emittable(v) and not _is_trace(v):
                yield f"{node.op}, for {describe(v)}: a type that is no array of numbers"
        if isinstance(node.op, InnerGraphOp):
            yield from _unsupported(node.op.fgraph, inner=True)


def _emittable(v: Any) -> bool:
    return isinstance(v.type, DenseTensorType | ScalarType) and v.type.dtype in _DTYPES


def _is_trace(v: Any) -> bool:
    """A list of tensors that loops make; none that the user has made."""
    return isinstance(v.type, TraceType) and _emittable(v.type.ttype())


def _emitted(graph: FunctionGraph) -> Emitter:
    assert rules
    for largest in _SIZES:
        emit = _emit(graph, largest)
        if len(emit.source.lines) <= _LINES:
            break
    return emit


def _emit(graph: FunctionGraph, largest: int) -> Emitter:
    args = [f"x{k}" for k in range(len(graph.inputs))]
    emit = Emitter(Source("program", args), largest)
    given: list[Any] = []
    for name, v in zip(args, graph.inputs, strict=True):
        if v.type.ndim:
            given.append(emit.held(emit.array(name, v), v))
        else:  # a Python number is a float64 or an int64
            cast = "bool" if v.type.dtype == "bool" else f"np.{v.type.dtype}"
            given.append(small(emit.temp(f"{cast}({name})", "v"), v.type.dtype))
    outs = emit.run(graph, given)
    emit.line(f"return {tuple_of(_returned(emit, outs, graph.outputs))}")
    return emit


def _returned(emit: Emitter, outs: Sequence[Any], variables: Sequence[Any]) -> list[str]:
    """Arrays that nothing else holds: a caller may write to what it gets."""
    names: list[str] = []
    for out, v in zip(outs, variables, strict=True):
        if isinstance(out, Small) and v.type.ndim == 0:
            names.append(emit.scalar(out))
            continue
        own = isinstance(out, Array) and out.fresh and out.name not in names
        names.append(out.name if own else emit.fresh(out).name)
    return names


__all__ = ["NativeProgram", "compile_program"]
