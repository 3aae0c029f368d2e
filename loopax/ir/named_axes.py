"""Tensors with names for their axes, `pytensor.xtensor`: they become plain ones where a program is read.

A loop, a branch and a callable hold arrays, which have no names: the names stay in the structure of what
goes in and comes out, and PyTensor's own rewrites write what is made of named tensors by plain operations.
"""

from __future__ import annotations

from typing import Any

from pytensor.compile.mode import optdb
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.printing import Print

# Their output is of the type of their input, whatever that is.
_IDENTITIES = (ViewOp, DeepCopyOp, Print)


def axis_names(v: Any) -> tuple[str, ...] | None:
    """The names of the axes of ``v``, a variable or a type; None of a plain tensor and anything else."""
    t = v.type if isinstance(v, Variable) else v
    return t.dims if type(t).__module__.startswith("pytensor.xtensor.type") else None


def with_names(x: Any, names: tuple[str, ...]) -> Any:
    """The tensor ``x`` with names for its axes."""
    from pytensor.xtensor.basic import xtensor_from_tensor

    return xtensor_from_tensor(x, dims=names)


def without_names(v: Any) -> Any:
    """``v`` as a plain tensor, where it has names; itself where it has none."""
    if axis_names(v) is None:
        return v
    if v.owner is not None and type(v.owner.op).__name__ == "XTensorFromTensor":
        return v.owner.inputs[0]  # the same variable again, which may be asked for a derivative
    return v.values


def lower_names(graph: FunctionGraph) -> None:
    """Write operations on named tensors as plain ones, in place; not those in bodies of ops."""
    if any(axis_names(v) is not None for node in graph.apply_nodes for v in node.outputs):
        for node in graph.toposort():
            # PyTensor's rewrites know the ops for named tensors only, and PyMC's deterministics are views.
            if (
                isinstance(node.op, _IDENTITIES)
                and (names := axis_names(node.outputs[0])) is not None
            ):
                plain = node.op(without_names(node.inputs[0]))
                graph.replace(node.outputs[0], with_names(plain, names))
        tags = RewriteDatabaseQuery(include=["fast_run"])
        optdb["lower_xtensor"].query(tags).rewrite(graph)
