"""Properties of nodes for the encoding: their names in the rules, and whether they may raise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.type import Type
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.summary import Det, SLogDet
from pytensor.tensor.math import All, Dot, Sum
from pytensor.tensor.math import Any as AnyOf
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor
from pytensor.tensor.type import TensorType

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1, IfElse
from loopax.extensions.egraph.op_table import FLOATS
from loopax.ir.effects import errors
from loopax.ir.ops.inner_graph_op import core_of


def name_of(node: Apply, output: int) -> str | None:
    """The name in the rules of an op that is not elementwise; None for most ops."""
    op = core_of(node.op)
    types = [v.type for v in node.inputs]
    if (
        not all(isinstance(t, TensorType) for t in types)
        or node.outputs[0].type.dtype not in FLOATS
    ):
        return None
    if len({t.dtype for t in (*types, node.outputs[0].type)}) > 1:
        return None
    ranks = [t.ndim for t in types]
    match op, ranks:
        case Sum(acc_dtype=acc_dtype), _ if node.outputs[0].type.ndim == 0:
            usual = acc_dtype in (None, "float64", types[0].dtype)
            return "sum" if usual and types[0].dtype == "float64" else None
        case Dot(), [1 | 2, 1 | 2]:
            return "dot"
        case MatrixInverse(), [2]:
            return "inv"
        case Det(), [2]:
            return "det"
        case SLogDet(), [2]:
            return ("signdet", "logdet")[output]
        case ExtractDiag(view=view), [2] if op == ExtractDiag(0, 0, 1, view):
            return "diag"
        case Solve(b_ndim=b_ndim), [2, rank] if op == Solve(b_ndim=b_ndim):
            return f"solve{b_ndim}" if rank == b_ndim else None
    return None


def is_total(node: Apply) -> bool:
    """Whether a node never raises, though `speculation` considers it too costly to run in vain."""
    if isinstance(node.op, Sum | All | AnyOf | CumOp):
        return all(0 not in v.type.shape for v in node.inputs)
    if isinstance(node.op, Reshape):
        lengths: Any = [v.type.shape for v in (node.inputs[0], node.outputs[0])]
        are_static = not any(None in shape for shape in lengths)
        return are_static and np.prod(lengths[0]) == np.prod(lengths[1])
    return False


def in_any_case(graph: FunctionGraph) -> list[Variable]:
    """Variables that are computed in every form of the program, so that their errors are never lost.

    Rules may drop the shape operand of a fill and the branches of a `switch`, with all their ancestors.
    """
    computed = dict.fromkeys(graph.outputs)
    stack = list(computed)
    while stack:
        node = stack.pop().owner
        if node is None or isinstance(node.op, HasInnerGraph | IfElse | Blockwise):
            continue
        scalar: Any = getattr(node.op, "scalar_op", None)
        if isinstance(scalar, ps.Switch):
            continue
        for v in node.inputs[1:] if isinstance(scalar, ps.Second) else node.inputs:
            if v not in computed:
                computed[v] = None
                stack.append(v)
    return [v for v in computed if v.owner is not None]


def is_within(node: Apply) -> bool:
    """Whether an access is in bounds, so that it raises nothing."""
    lengths: Any = node.inputs[0].type.shape  # of a tensor
    if isinstance(node.op, AdvancedSubtensor) and len(lengths) == 1 and lengths[0] is not None:
        index = [v.data for v in node.inputs[1:] if isinstance(v, Constant)]
        return len(index) == 1 and bool(np.all((-lengths[0] <= index[0]) & (index[0] < lengths[0])))
    return not errors(node)


def operand_type(op: Op, t: Type) -> Any:
    """The required type of an operand: exact for an op with a body, else only the broadcast axes."""
    if not isinstance(t, TensorType) or isinstance(op, HasInnerGraph | Blockwise):
        return t
    if isinstance(op, CheckAndRaise):
        return t.clone(shape=())  # it accepts any shape
    return TensorType(t.dtype, tuple(1 if n == 1 else None for n in t.shape))


def is_write(node: Apply) -> bool:
    """Whether a node sets or adds at constant positions, and so has two operands."""
    op: Any = node.op
    kinds = (IncSubtensor, AdvancedIncSubtensor, AdvancedIncSubtensor1)
    return isinstance(op, kinds) and all(isinstance(v, Constant) for v in node.inputs[2:])
