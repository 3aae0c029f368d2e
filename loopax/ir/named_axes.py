"""Tensors with named axes, `pytensor.xtensor`, replaced by plain tensors when a program is read.

Loops, branches and callables hold arrays, which have no names: names stay in the structure of
arguments and results, and PyTensor's own rewrites replace operations on named tensors by plain ones.
"""

from __future__ import annotations

from typing import Any

from pytensor.compile.mode import optdb
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.printing import Print

# Ops whose output has the type of their input.
_IDENTITIES = (ViewOp, DeepCopyOp, Print)


def axis_names(v: Any) -> tuple[str, ...] | None:
    """The names of the axes of ``v``, a variable or a type; None for a plain tensor and all others."""
    t = v.type if isinstance(v, Variable) else v
    return t.dims if type(t).__module__.startswith("pytensor.xtensor.type") else None


def with_names(x: Any, names: tuple[str, ...]) -> Any:
    from pytensor.xtensor.basic import xtensor_from_tensor

    return xtensor_from_tensor(x, dims=names)


def without_names(v: Any) -> Any:
    """Convert ``v`` to a plain tensor; itself where it has no named axes."""
    if axis_names(v) is None:
        return v
    if v.owner is not None and type(v.owner.op).__name__ == "XTensorFromTensor":
        return v.owner.inputs[0]  # the same variable, whose derivative may be taken
    return v.values


def lower_names(graph: FunctionGraph) -> None:
    """Replace operations on named tensors by plain ones, in place, but not in bodies of ops."""
    if any(axis_names(v) is not None for node in graph.apply_nodes for v in node.outputs):
        for node in graph.toposort():
            # PyTensor's rewrites cover only the ops for named tensors, and PyMC's deterministics are
            # views.
            if (
                isinstance(node.op, _IDENTITIES)
                and (names := axis_names(node.outputs[0])) is not None
            ):
                plain = node.op(without_names(node.inputs[0]))
                graph.replace(node.outputs[0], with_names(plain, names))
        tags = RewriteDatabaseQuery(include=["fast_run"])
        optdb["lower_xtensor"].query(tags).rewrite(graph)
