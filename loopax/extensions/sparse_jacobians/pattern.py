"""The pattern of a Jacobian: dependences of elements of the outputs on elements of the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort
from scipy import sparse

from loopax.extensions.sparse_jacobians.inner import known_node_outputs
from loopax.extensions.sparse_jacobians.known import Known, UnknownStructure, constant


def jacobian_pattern(
    wrt: Sequence[Any], outputs: Sequence[Any], values: Mapping[Any, Any] | None = None
) -> list[Any]:
    """The patterns of the Jacobians of ``outputs`` with respect to ``wrt``, root variables of their
    graph.

    Parameters
    ----------
    wrt
        Tensors of floats of known lengths.
    outputs
        Tensors.
    values
        Values of other variables, where they are known.

    Returns
    -------
    A ``scipy.sparse.csr_matrix`` of bools for each output, with a row for each of its elements, in C
    order, and a column for each element of ``wrt``, one variable after the other. The derivative is zero
    for all values of the inputs where an entry is False.

    Raises
    ------
    UnknownStructure
        A length, or the number of steps of a loop, is unknown.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax.extensions.sparse_jacobians.pattern import jacobian_pattern
    >>> x = pt.tensor("x", shape=(3,), dtype="float64")
    >>> jacobian_pattern([x], [x[1:] * x[:-1]])[0].toarray().astype(int)
    array([[1, 1, 0],
           [0, 1, 1]])
    """
    n = sum(_size(v) for v in wrt)
    env: dict[Any, Known] = {v: constant(x) for v, x in (values or {}).items()}
    at = 0
    for v in wrt:
        size = _size(v)
        rows = np.arange(size)
        deps = sparse.csr_matrix(
            (np.ones(size, dtype=bool), (rows, at + rows)), shape=(size, n), dtype=bool
        )
        env[v] = Known(v.type.shape, None, deps)
        at += size
    for node in toposort(list(outputs), blockers=[*env]):
        outs = known_node_outputs(node, [_known_of(env, v) for v in node.inputs])
        env.update(zip(node.outputs, outs, strict=True))
    known_outputs = [_known_of(env, v) for v in outputs]
    return [
        sparse.csr_matrix((k.size, n), dtype=bool)
        if k.deps is None
        else sparse.csr_matrix(k.deps, dtype=bool)
        for k in known_outputs
    ]


def _known_of(env: Mapping[Any, Known], v: Variable) -> Known:
    if v in env:
        return env[v]
    if isinstance(v, Constant):
        return constant(v.data)
    return Known(tuple(getattr(v.type, "shape", ())))


def _size(v: Variable) -> int:
    if any(n is None for n in v.type.shape):
        raise UnknownStructure(f"{v} of shape {v.type.shape}: a length is unknown")
    return prod(v.type.shape)
