"""An element from the end of a joined vector, with an index that is not a constant.

    concatenate([[0.0], y])[-1]     ->  concatenate([[0.0], y])[n - 1]
    tanh(concatenate([[0.0], y]))[-2]  ->  tanh(...)[switch(n >= 2, n - 2, -2)]      n: its length

Condition: PyTensor takes the element, also of a function of the joined vector, for a constant of the
first part (`loopax.facts.constants`). An index before the first element stays out of range.

Reason: ``x * concatenate([[0.0], y])[-1]`` became zeros. Remove it when PyTensor's
``get_underlying_scalar_constant_value`` is right for negative indices (still wrong in 3.3.8).
"""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.subtensor import Subtensor

from loopax.base.upstream.pytensor import joined_rows
from loopax.facts.constants import is_misread
from loopax.facts.elementwise import is_elementwise


def count_from_start(graph: FunctionGraph) -> None:
    """Run the rewrite on ``graph``, in place, without its bodies."""
    if not any(joined_rows(node) for node in graph.apply_nodes):
        return
    for node in graph.toposort():
        if not isinstance(node.op, Subtensor) or len(node.inputs) != 2:
            continue
        source: Any = node.inputs[0]
        index = node.inputs[1]
        is_element = source.type.ndim == 1 and not node.outputs[0].type.ndim
        if not (is_element and isinstance(index, Constant) and index.data < 0):
            continue
        if any(is_misread(joined[int(index.data)]) for joined in _joins_behind(source)):
            k, n = int(index.data), source.shape[0]
            new = source[n + k if k == -1 else pt.switch(pt.ge(n, -k), n + k, k)]
            graph.replace(node.outputs[0], new, import_missing=True, reason="count_from_start")


def _joins_behind(source: Any) -> list[Any]:
    """The joined vectors of which ``source`` is an elementwise function, or itself one."""
    joins: list[Any] = []
    stack: list[Variable] = [source]
    seen = {source}
    while stack:
        v: Any = stack.pop()
        if joined_rows(v.owner) is not None:
            joins.append(v)
        elif is_elementwise(v.owner):
            new = [u for u in v.owner.inputs if u not in seen and u.type.ndim == 1]
            seen.update(new)
            stack += new
    return joins
