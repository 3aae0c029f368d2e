"""A graph as one native function."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.sparse import SparseTensorType
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.type_other import NoneTypeT
from pytensor.typed_list import TypedListType

from loopax.base.errors import UnsupportedOpError, describe
from loopax.base.upstream.numba import numba_config
from loopax.ir.evaluation.first_failure import first_failure
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.lowering.scan_to_loop import scan_to_loop
from loopax.numba_backend import rules
from loopax.numba_backend.callable.entry import entry
from loopax.numba_backend.callable.opaque_arguments import FUNCTIONS, nested
from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.expressions import Expr, call, local, tuple_of
from loopax.numba_backend.emit.opaque import as_list, changeable, constant, copied, is_opaque
from loopax.numba_backend.emit.program_length import LINES, largest_to_try
from loopax.numba_backend.emit.size_specializations import Sizes, SizeSpecializations
from loopax.numba_backend.emit.statements import Function, Return
from loopax.numba_backend.emit.tree_passes.outlining import outline
from loopax.numba_backend.emit.tree_passes.repeats import share_repeats
from loopax.numba_backend.emit.tree_passes.rolled_loops import keep_rolled
from loopax.numba_backend.emit.tree_passes.safepoints import add_safepoints
from loopax.numba_backend.emit.tree_passes.stack_arrays import promote_to_stack
from loopax.numba_backend.emit.values import Array, Opaque, Rows, Small, Value, small

_DTYPES = {"bool", "float32", "float64"} | {
    f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}
_DTYPES |= {"complex64", "complex128"}
# `numba_funcify.register` is not asked for scalar ops.
_REGISTER = (
    "Register one with pytensor.link.numba.dispatch.basic.register_funcify_and_cache_key(OpClass)"
)


ListArgument = Callable[[Emitter, Expr, Any], Opaque]


class NativeProgram:
    """A native function of one value for each input, which returns a list of arrays.

    It is compiled at the first call.
    """

    def __init__(self, graph: FunctionGraph, variants: SizeSpecializations) -> None:
        self.inputs = [v.type for v in graph.inputs]
        self.outputs = [v.type for v in graph.outputs]
        self.variants = variants
        self.by_python = self.variants.by_python  # ops without a native form
        self._graph = graph

    def entry(self, labels: Sequence[str], **options: Any) -> Any:
        """Wrap the program as a function of Python values, which ``labels`` name in errors."""
        return entry(
            self.variants, self.inputs, self.outputs, labels, explained=self._explained, **options
        )

    def _explained(self, error: Exception, values: Sequence[Any]) -> Exception:
        """Add the op that fails, and its operands, to a short error of native code."""
        plain = all(isinstance(t, DenseTensorType | ScalarType) for t in self.inputs)
        is_explained = getattr(error, "__notes__", None)  # by an op that runs as Python
        if type(error) not in (ValueError, IndexError) or not plain or is_explained:
            return error
        inputs = [
            t.filter(x, allow_downcast=True) for t, x in zip(self.inputs, values, strict=True)
        ]
        reason = first_failure(self._graph, inputs)
        return error if reason is None else type(error)(f"{error}: {reason}.")

    @property
    def source(self) -> str:
        """The latest text of the program: see `SizeSpecializations`."""
        return self.variants.source

    def __call__(self, *values: object) -> list[Any]:
        if len(values) != len(self.inputs):
            raise TypeError(f"The program takes {len(self.inputs)} inputs, got {len(values)}.")
        return self._call(*values)

    @cached_property
    def _call(self) -> Any:
        return self.entry([f"Argument {k}" for k in range(len(self.inputs))])


def compile_program(graph: FunctionGraph, on_missing: str = "callback") -> NativeProgram:
    """Compile ``graph``, imported and lowered, to one native function; ``graph`` itself stays
    unchanged.

    Parameters
    ----------
    graph
        A graph of tensors, scalars, random generators, sparse matrices, slices, None, and typed lists.
    on_missing
        ``"callback"`` runs ops without a native form as Python, through their ``perform``, and one
        warning names them all; ``"raise"`` refuses them.

    Raises
    ------
    UnsupportedOpError
        The graph has types that native code does not know, or, with ``"raise"``, ops without a
        conversion; all of them are listed.

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
            t1 = exp(t0)
            sum0 = plus(sum0, t1)
        return (sum0,)
    """
    if on_missing not in ("callback", "raise"):
        raise ValueError(f"on_missing must be 'callback' or 'raise', got {on_missing!r}.")
    return NativeProgram(graph, native_variants(graph, on_missing))


def native_variants(
    graph: FunctionGraph, on_missing: str, inner: bool = False, longest: int = LINES
) -> SizeSpecializations:
    """The native functions of ``graph``; see `compile_program`. ``inner`` ones serve native callers
    alone.

    Small arrays are in locals as long as the program has no more than ``longest`` lines.
    """
    if numba_config.DISABLE_JIT:
        raise UnsupportedOpError(
            "Numba compiles nothing, because NUMBA_DISABLE_JIT is set. Unset it for native code."
        )
    graph = graph.clone()
    scan_to_loop(graph)
    refuse_unknown_types(graph)
    variants = SizeSpecializations(
        lambda sizes, keeps: emitted(graph, sizes, keeps, longest=longest), inner
    )
    if lines := list(dict.fromkeys(variants.by_python)):
        if on_missing == "raise":
            raise UnsupportedOpError(
                f"These ops have no conversion to Numba:\n{_listed(lines)}\n{_REGISTER}, or let them run "
                "as Python with on_missing='callback'.",
                lines,
            )
        warn_of_python(lines)
    return variants


def refuse_unknown_types(graph: FunctionGraph) -> None:
    """Raise an `UnsupportedOpError` that lists the variables whose types native code does not know."""
    if lines := list(dict.fromkeys(_unsupported(graph))):
        raise UnsupportedOpError(
            "The program has types that native code does not support:\n"
            f"{_listed(lines)}\n"
            "Cast the values, as in x.astype('float64'), or use PyTensor's mode 'CVM'.",
            lines,
        )


def warn_of_python(lines: Sequence[str]) -> None:
    """Warn of the ops that run as Python in a native program."""
    warnings.warn(
        "These ops have no conversion to Numba and run as Python, which costs microseconds per "
        "call:\n"
        f"{_listed(lines)}\n"
        f"{_REGISTER}. To refuse such ops, use jaxify(..., on_missing='raise').",
        UserWarning,
        stacklevel=3,
    )


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _unsupported(graph: Any, inner: bool = False) -> Any:
    """Yield a line for each variable whose type does not exist in native code."""
    if not inner:
        yield from (describe(v) for v in graph.inputs if not is_known(v.type))
    for node in graph.toposort():
        for v in [*(v for v in node.inputs if isinstance(v, Constant)), *node.outputs]:
            if not is_known(v.type) and not (v in node.inputs and _is_text(v)):
                yield describe(v)
        if isinstance(node.op, InnerGraphOp):
            yield from _unsupported(node.op.fgraph, inner=True)


def is_known(declared: Type) -> bool:
    """Whether native code has values of a type."""
    if isinstance(declared, TypedListType):
        return is_known(declared.ttype)
    if isinstance(declared, DenseTensorType | ScalarType | SparseTensorType):
        return declared.dtype in _DTYPES
    return is_opaque(declared)


def _is_text(v: Constant) -> bool:
    """Whether a constant is text that the conversion of an op reads, for example the name of a mode."""
    return not hasattr(v.type, "dtype")


def _unpacked(emit: Emitter, name: Expr, v: Variable) -> Opaque:
    """Rebuild the list that an argument of the program encodes: see `opaque_arguments`."""
    emit.namespace.update(FUNCTIONS)
    return Opaque(emit.temp(nested(name, v.type), "list"))


def emitted(
    graph: FunctionGraph,
    sizes: Sizes,
    keeps_shapes: bool,
    lists: ListArgument = _unpacked,
    longest: int = LINES,
) -> Emitter:
    """Emit the function of ``graph``; ``lists`` decodes the arguments that hold lists."""
    assert rules
    *tries, last = largest_to_try(graph, sizes, longest)
    for largest in tries:
        emit = _emitted(graph, sizes, largest, keeps_shapes, lists)
        if emit.n_lines <= longest:
            break
    else:
        emit = _emitted(graph, sizes, last, keeps_shapes, lists)
    promote_to_stack(emit.source, emit.array_uses)
    return emit


def _emitted(
    graph: FunctionGraph, sizes: Sizes, largest: int, keeps_shapes: bool, lists: ListArgument
) -> Emitter:
    names = [local(f"x{k}") for k in range(len(graph.inputs))]
    emit = Emitter(Function("program", names), largest, keeps_shapes)
    arguments: list[Any] = []
    for k, (name, v) in enumerate(zip(names, graph.inputs, strict=True)):
        if isinstance(v.type, TypedListType):
            arguments.append(lists(emit, name, v))
        elif is_opaque(v.type):
            arguments.append(Opaque(name))
        elif v.type.ndim:
            static_lengths = {axis: n for (i, axis), n in sizes.items() if i == k}
            arguments.append(emit.localized(emit.argument(k, name, v, static_lengths), v))
        else:  # a Python number is a float64 or an int64
            typed = call("bool", name) if v.type.dtype == "bool" else name.astype(v.type.dtype)
            arguments.append(small(emit.temp(typed, "v"), v.type.dtype))
    outs = emit.run(graph, arguments)
    emit.add(Return(tuple_of(_returned(emit, outs, graph.outputs))))
    outline(emit)
    share_repeats(emit)
    add_safepoints(emit.source, emit.namespace)
    keep_rolled(emit.source)
    return emit


def _returned(emit: Emitter, outs: Sequence[Any], variables: Sequence[Any]) -> list[Expr]:
    """Returned values, copied where another array shares memory, so that callers may write to them."""
    names: list[Expr] = []
    returned: list[Expr] = []  # lists and generators
    for out, v in zip(outs, variables, strict=True):
        if isinstance(out, Small) and v.type.ndim == 0:
            names.append(emit.scalar(out))
            continue
        if isinstance(out, Rows):
            out = as_list(emit, out)
        if not isinstance(out, Value):
            names.append(_unshared(emit, out, v, returned))
            continue
        if not isinstance(out, Array) or not out.fresh or out.name in names:
            out = emit.fresh(out)
        names.append(out.name)
    return names


def _unshared(emit: Emitter, out: Opaque, v: Variable, returned: list[Expr]) -> Expr:
    if not isinstance(out, Opaque):
        return constant(emit, v).name
    # The rows of a list may be shared with another list, or with an argument.
    if isinstance(v.type, TypedListType):
        return copied(emit, out).name
    if isinstance(v.type, NoneTypeT):
        return out.name
    return changeable(emit, out, returned).name
