"""The structure of ops that move elements, or write some of them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.subtensor import IncSubtensor

from loopax.extensions.sparse_jacobians.axes import by_axes
from loopax.extensions.sparse_jacobians.known import Known, linked, rows_at, stacked, union
from loopax.facts.scalars import is_float

_EXACT = 2**24  # the largest range of integers that float32 represents


def moved_outputs(node: Apply, operands: Sequence[Known]) -> list[Known]:
    numbered, deps = _numbered(node, operands)
    if numbered is None:
        return by_axes(node, operands)
    moved = []
    for v, ids in zip(node.outputs, _performed(node, numbered), strict=True):
        ids = np.asarray(ids).astype("int64")
        moved.append(Known(ids.shape, None, rows_at(deps, ids - 1) if is_float(v) else None))
    return moved


def _numbered(node: Apply, operands: Sequence[Known]) -> tuple[Any, Any]:
    """The inputs with numbers from 1 on for elements with dependences, 0 for others; and all
    dependences.

    None if an unknown value decides where the elements go.
    """
    values, parts, n = [], [], 1
    for v, x in zip(node.inputs, operands, strict=True):
        if x.deps is not None:
            values.append(np.arange(n, n + x.size).reshape(x.full_shape))
            parts.append(x.deps)
            n += x.size
        elif is_float(v):
            values.append(np.zeros(x.full_shape, dtype="int64"))
        elif x.value is None:
            return None, None
        else:
            values.append(x.value)
    return (values, stacked(parts)) if n <= _EXACT else (None, None)


def written_outputs(node: Apply, operands: Sequence[Known]) -> list[Known]:
    numbered, deps = _numbered(node, operands)
    if numbered is None:
        return by_axes(node, operands)
    op: Any = node.op
    if isinstance(op, IncSubtensor):  # writes each element once
        setting_op = copy(op)
        setting_op.set_instead_of_inc = True
        (ids,) = _performed(node, numbered, setting_op)
        parts = [rows_at(deps, ids.astype("int64") - 1)]
        if not op.set_instead_of_inc:
            parts.append(rows_at(deps, numbered[0] - 1))
        return [Known(ids.shape, None, union(parts))]
    for k in range(2):  # tuples, which addition concatenates
        ids, numbered[k] = numbered[k], np.empty(numbered[k].shape, dtype=object)
        numbered[k][...] = np.frompyfunc(lambda i: (i,) if i else (), 1, 1)(ids)
    (written,) = _performed(node, numbered)
    links = [(row, i - 1) for row, ids in enumerate(written.ravel()) for i in ids]
    rows, columns = np.asarray(links, dtype="int64").reshape(-1, 2).T
    return [Known(written.shape, None, linked(rows, columns, (written.size, deps.shape[0]), deps))]


def _performed(node: Apply, values: Sequence[Any], like: Op | None = None) -> list[Any]:
    op: Any = like or node.op
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    op.perform(node, list(values), storage)
    return [cell[0] for cell in storage]
