"""Find the node at which a program fails, for the error message: native code does not name it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.raise_op import CheckAndRaise

from loopax.base.errors import describe
from loopax.ir.evaluation.evaluate import node_outputs, run_nodes
from loopax.ir.ops.inner_graph_op import InnerGraphOp

_ELEMENTS = 10_000  # elements that take as long as a small node


class _Failure(Exception):
    def __init__(self, node: Apply, inputs: Sequence[Any], cause: Exception) -> None:
        super().__init__(node, inputs, cause)
        self.node, self.inputs, self.cause = node, inputs, cause


class _TooLong(Exception):
    pass


def first_failure(
    graph: AbstractFunctionGraph, inputs: Sequence[Any], at_most: int = 20_000
) -> str | None:
    """The message for the first node in ``graph``, or a body of it, that raises in `evaluate`.

    None where no node raises, or none of the first ``at_most`` (a large array counts as several), or
    the node is a check, which has its own message.

    >>> import pytensor.tensor as pt
    >>> from pytensor.graph.fg import FunctionGraph
    >>> x, y = pt.dvectors("x", "y")
    >>> graph = FunctionGraph([x, y], [x[y.argmax()]], clone=False)
    >>> first_failure(graph, [np.zeros(2), np.arange(4.0)]).split("; ")[1].split(", for")[0]
    "Subtensor{i} was given 'x' of shape (2,), an output of ScalarFromTensor with the value 3"
    """
    budget = at_most

    def run_node(node: Apply, inputs: Sequence[Any]) -> list[Any]:
        nonlocal budget
        budget -= 1
        if budget < 0:
            raise _TooLong
        op = node.op
        try:
            if isinstance(op, InnerGraphOp):
                return op.run(
                    inputs, *[partial(run_nodes, run_node, body) for body in op.bodies_as_written]
                )
            outs = node_outputs(run_node, node, inputs)
        except (_Failure, _TooLong):
            raise
        except Exception as error:  # another library's op may raise anything
            raise _Failure(node, inputs, error) from error
        budget -= sum(np.size(x) for x in outs) // _ELEMENTS
        return outs

    try:
        run_nodes(run_node, graph, *inputs)
    except _Failure as failure:
        node, cause = failure.node, str(failure.cause).partition("\n")[0].strip()
        if isinstance(node.op, CheckAndRaise):  # its own message suffices
            return None
        return f"{cause}; {arguments_in_words(node, failure.inputs)}"
    except _TooLong:
        pass
    return None


def arguments_in_words(node: Apply, values: Sequence[Any]) -> str:
    """The op of ``node``, with the variables that it reads and the shapes of their ``values``."""
    pairs = zip(node.inputs, values, strict=True)
    arguments = ", ".join(_value_in_words(v, x) for v, x in pairs if not isinstance(v, Constant))
    return f"{node.op} was given {arguments}, for {describe(node.outputs[0])}"


def _value_in_words(v: Variable, x: Any) -> str:
    subject = f"'{v.name}'" if v.name else f"an output of {v.owner.op}" if v.owner else "a variable"
    if isinstance(x, np.ndarray | np.generic | int | float) and np.ndim(x) == 0:
        return f"{subject} with the value {x}"
    shape = getattr(x, "shape", None)
    return subject if shape is None else f"{subject} of shape {tuple(shape)}"
