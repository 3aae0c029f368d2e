"""Differences between the supported PyTensor releases (3.0 to 3.3), and private names that loopax needs.

Remove an entry when the oldest supported release no longer needs it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytensor
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import Op, io_connection_pattern
from pytensor.graph.replace import _vectorize_node as vectorize_rules  # where a rule is registered
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import toposort
from pytensor.tensor import subtensor
from pytensor.tensor.basic import Join
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor
from pytensor.tensor.type_other import make_slice
from pytensor.tensor.variable import _tensor_py_operators as TensorOperators

__all__ = [
    "AdvancedIncSubtensor1",
    "AdvancedSubtensor1",
    "AddSparseDenseC",
    "AssumptionFeature",
    "ComplexFromPolar",
    "FactState",
    "Ger",
    "IfElse",
    "LazyIfElse",
    "StructuredAddSparseDenseVectorCSR",
    "TensorOperators",
    "WithShapes",
    "adds_last_only",
    "axis_of",
    "check_batch_shapes",
    "copy_origin",
    "core_node",
    "core_node_and_inputs",
    "freeze",
    "has_own_connections",
    "indices_from_subtensor",
    "joined_by",
    "joined_rows",
    "linalg_rewrite",
    "names_of_flags",
    "props_of",
    "shape_of_draw",
    "thaw",
    "vectorize_rules",
    "wrap_setting",
]

try:  # 3.3 moved IfElse; its old path warns
    from pytensor.conditional.op import IfElse, LazyIfElse
except ImportError:
    from pytensor.ifelse import IfElse

    class LazyIfElse:  # type: ignore[no-redef]
        """Stands for an op that 3.0 does not have: nothing is an instance of it."""


try:
    from pytensor.assumptions import AssumptionFeature, FactState
except ImportError:  # 3.0.1 infers nothing about matrices
    from enum import IntFlag

    from pytensor.graph.features import Feature as AssumptionFeature  # type: ignore[assignment]

    class FactState(IntFlag):  # type: ignore[no-redef]
        """The answers to a question about a matrix."""

        UNKNOWN = 0
        TRUE = 1


# It takes entries of any kind, and its annotations variables alone.
indices_from_subtensor: Callable[[Sequence[Any], Any], Sequence[Any]] = (
    subtensor.indices_from_subtensor
)


def _dropped(module: str, name: str) -> Any:
    """An Op class that only 3.0 has; on 3.3 a class without instances replaces it."""
    return getattr(importlib.import_module(module), name, type(name, (), {}))


ComplexFromPolar = _dropped("pytensor.scalar.basic", "ComplexFromPolar")
Ger = _dropped("pytensor.tensor.blas", "Ger")
AdvancedSubtensor1 = _dropped("pytensor.tensor.subtensor", "AdvancedSubtensor1")
AdvancedIncSubtensor1 = _dropped("pytensor.tensor.subtensor", "AdvancedIncSubtensor1")


def adds_last_only(op: IncSubtensor | AdvancedIncSubtensor) -> bool:
    """Whether a write adds only the last element for each place, as NumPy's ``x[i] += y`` does.

    `AdvancedIncSubtensor1` of 3.0 cannot.
    """
    return bool(getattr(op, "ignore_duplicates", False)) and not op.set_instead_of_inc


def _renamed(module: str, name: str, before: str) -> Any:
    """An Op class that 3.0 has under the name ``before``."""
    source = importlib.import_module(module)
    return getattr(source, name, None) or getattr(source, before)


def linalg_rewrite(module: str, name: str) -> Any:
    """PyTensor's linear algebra rewrite ``name``; for releases without it, one that changes nothing.

    3.0.1 has neither `eig_to_eigh` nor `generic_solve_to_structured_form`.
    """
    source = importlib.import_module(f"pytensor.tensor.rewriting.linalg.{module}")
    return getattr(source, name, _no_rewrite)


class _AbsentOp(Op):
    """An op that no node has."""


@node_rewriter([_AbsentOp])
def _no_rewrite(fgraph: FunctionGraph, node: Apply) -> Any:
    return None


AddSparseDenseC = _renamed("pytensor.sparse.rewriting", "AddSparseDenseC", "AddSD_ccode")
StructuredAddSparseDenseVectorCSR = _renamed(
    "pytensor.sparse.rewriting", "StructuredAddSparseDenseVectorCSR", "StructuredAddSVCSR"
)


_INFER_SHAPE_TAKES_FGRAPH = "fgraph" in inspect.signature(IfElse.infer_shape).parameters


class WithShapes:
    """An Op with `shapes_of`: `infer_shape` lost its ``fgraph`` argument between releases."""

    def shapes_of(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """The symbolic shapes of the outputs, one tuple (or None) each, given the shapes of the inputs."""
        raise NotImplementedError(type(self).__name__)

    if _INFER_SHAPE_TAKES_FGRAPH:

        def infer_shape(
            self, fgraph: FunctionGraph, node: Apply, shapes: Sequence[Sequence[Variable] | None]
        ) -> list[Any]:
            return self.shapes_of(node, shapes)

    else:

        def infer_shape(  # type: ignore[misc]  # one of the two is defined
            self, node: Apply, shapes: Sequence[Sequence[Variable] | None]
        ) -> list[Any]:
            return self.shapes_of(node, shapes)


def freeze(graph: FunctionGraph) -> FrozenFunctionGraph:
    """Freeze a copy of ``graph``, after merging its equal nodes in place.

    Otherwise 3.0 has one node for all of them, but lists it once for each, so that an evaluation of the
    list computes it as often. 3.3 has a node for each of them, so that equivalent graphs differ.
    """
    if sys.version_info < (3, 12):
        _without_constant_slices(graph)
    first: dict[Any, Apply] = {}
    for node in graph.toposort():
        operands = tuple(v.signature() if isinstance(v, Constant) else v for v in node.inputs)
        twin = first.setdefault((node.op, operands, tuple(v.type for v in node.outputs)), node)
        if twin is not node:
            for old, new in zip(node.outputs, twin.outputs, strict=True):
                new.name = new.name or old.name
                graph.replace(old, new, reason="freeze")
    return graph.freeze()


def _without_constant_slices(graph: FunctionGraph) -> None:
    """Replace constant slices in place, for example in typed lists: before Python 3.12 they lack a hash."""
    for node in graph.toposort():
        for k, v in enumerate(node.inputs):
            if isinstance(v, Constant) and isinstance(v.data, slice):
                computed: Any = make_slice(v.data.start, v.data.stop, v.data.step)
                graph.change_node_input(node, k, computed, import_missing=True)


def thaw(graph: AbstractFunctionGraph, written: FunctionGraph | None = None) -> FunctionGraph:
    """Make a mutable copy of an inner graph, of whichever kind the release stores (3.0 keeps both).

    A frozen graph has neither names nor source lines. If the graph that was frozen, ``written``, is known,
    the copy takes them from its variables.

    A frozen graph's own ``unfreeze`` fails on 3.0 where an output is a constant that no node uses.
    """
    if isinstance(graph, FunctionGraph):
        memo: dict[Any, Any] = graph.clone_get_equiv(attach_feature=False)[1]
        inputs, outputs = [memo[v] for v in graph.inputs], [memo[v] for v in graph.outputs]
        return FunctionGraph(inputs, outputs, clone=False)
    # `make_variable`: calling the type walks the stack for the user's line, a third of the time here.
    new: dict[Variable, Variable] = {v: v.type.make_variable() for v in graph.inputs}
    for node in graph.toposort():
        copied = Apply(
            node.op,
            [new.get(v, v) for v in node.inputs],
            [v.type.make_variable() for v in node.outputs],
        )
        new.update(zip(node.outputs, copied.outputs, strict=True))
    if written is not None:
        _copy_origins(written, graph, new)
    return FunctionGraph(
        [new[v] for v in graph.inputs], [new.get(v, v) for v in graph.outputs], clone=False
    )


def _copy_origins(
    written: FunctionGraph, frozen: AbstractFunctionGraph, new: Mapping[Variable, Variable]
) -> None:
    """Give ``new[v]``, for each variable ``v`` of a frozen graph, the origin of its unfrozen variable.

    Freezing keeps the order of the nodes. Nodes that do not correspond are left without names.
    """
    frozen_from: dict[Variable, Variable] = {}

    for old, v in zip(written.inputs, frozen.inputs, strict=True):
        frozen_from[old] = v
        copy_origin(old, new[v])
    if hasattr(FrozenFunctionGraph, "from_toposort"):  # the order that `FunctionGraph.freeze` takes
        order = written.toposort()
    else:
        order = list(toposort(written.outputs, blockers=written.inputs))
    for node, twin in zip(order, frozen.toposort(), strict=False):
        same = node.op == twin.op and all(
            isinstance(u, Constant) or frozen_from.get(u) is w
            for u, w in zip(node.inputs, twin.inputs, strict=True)
        )
        if not same:
            return
        for old, v in zip(node.outputs, twin.outputs, strict=True):
            frozen_from[old] = v
            copy_origin(old, new[v])


def copy_origin(old: Variable, new: Variable) -> None:
    """Give ``new`` the source lines of ``old``, and its name if it has none."""
    new.name = new.name or old.name
    if (trace := getattr(old.tag, "trace", None)) is not None:
        new.tag.trace = trace


def forget_history(node: Apply) -> None:
    """Drop what PyTensor (3.0 and 3.3.8) has noted on a node, and makes again when it is needed.

    The function in which a Blockwise was evaluated in Python cannot be pickled; the list of the graphs that
    imported the node grows with each of them.
    """
    for name in ("gufunc", "imported_by"):
        vars(node.tag).pop(name, None)


def joined_by(op: Join, inputs: Sequence[Any]) -> Sequence[Any]:
    """The variables that a Join joins; in 3.0 its first input is the axis."""
    return inputs if hasattr(op, "axis") else inputs[1:]


def axis_of(node: Apply) -> int | None:
    """The nonnegative axis of a join, a split or a sort, if it is known; in 3.0 it is an input."""
    if hasattr(node.op, "axis"):
        axis = node.op.axis
    else:
        v = node.inputs[0 if isinstance(node.op, Join) else 1]
        axis = v.data if isinstance(v, Constant) else None
    return None if axis is None else int(axis) % node.outputs[0].type.ndim


def joined_rows(node: Apply | None) -> list[Any] | None:
    """The variables that a Join joins along the first axis; None for any other node."""
    if node is None or not isinstance(node.op, Join) or axis_of(node) != 0:
        return None
    return list(joined_by(node.op, node.inputs))


# -- private attributes ------------------------------------------------------------------------------


def core_node(op: Any, inputs: Sequence[Any], keeps_shared: bool = False) -> Apply:
    """The node that the Blockwise ``op`` applies to one row of ``inputs``; its inputs are new variables.

    With ``keeps_shared`` an input that all rows share is used as an input of the node.
    """
    node: Apply = op._create_dummy_core_node(inputs, propagate_unbatched_core_inputs=keeps_shared)
    return node


def core_node_and_inputs(op: Any, inputs: Sequence[Any]) -> tuple[Apply, list[Any]]:
    """The `core_node`, and its new variables, which the op may cast to make the node's inputs."""
    node, dummies = op._create_dummy_core_node(inputs, return_dummy_inputs=True)
    return node, dummies


def check_batch_shapes(node: Apply, values: Sequence[Any]) -> None:
    """Raise PyTensor's error if an Elemwise or a Blockwise broadcasts a length of 1 that is not static."""
    op: Any = node.op
    op._check_runtime_broadcast(node, values)


def has_own_connections(op: OpFromGraph) -> bool:
    """Whether ``op`` was built with a connection pattern other than its graph's.

    PyTensor stores an inferred pattern in the same attribute.
    """
    pattern = io_connection_pattern(op.inner_inputs, op.inner_outputs)
    return op._connection_pattern not in (None, pattern)


def shape_of_draw(op: Any, parameters: Sequence[Variable]) -> Sequence[Any]:
    """The shape of one draw of a RandomVariable, as a graph of its parameters."""
    shape: Sequence[Any] = op._supp_shape_from_params(parameters)
    return shape


def props_of(op: Any) -> dict[str, Any]:
    """The properties of ``op`` by name."""
    props: dict[str, Any] = op._props_dict()
    return props


def names_of_flags() -> list[str]:
    """The names of all of PyTensor's flags."""
    return sorted(pytensor.config._config_var_dict)


def wrap_setting(name: str, wrapper: type) -> None:
    """Filter values of the flag ``name`` by ``wrapper(before)``; ``before`` is PyTensor's own filter."""
    setting: Any = vars(type(pytensor.config))[name]
    if not isinstance(setting._apply, wrapper):
        setting._apply = wrapper(setting._apply)
