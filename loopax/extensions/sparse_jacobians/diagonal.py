"""Colours for a square Jacobian of which only the diagonal is read."""

from __future__ import annotations

from typing import Any

from pytensor.graph.fg import FrozenFunctionGraph
from scipy import sparse

from loopax.base.upstream.pytensor import thaw
from loopax.extensions.sparse_jacobians.colouring import neighbour_colours
from loopax.extensions.sparse_jacobians.known import UnknownStructure
from loopax.extensions.sparse_jacobians.pattern import jacobian_pattern
from loopax.importer.import_graph import import_graph
from loopax.ir.derivatives.lazy_grammar import expand


def diagonal_colours(function: FrozenFunctionGraph, output: int, variable: int) -> Any:
    """Colour the columns of the Jacobian of one output with respect to one input of ``function``.

    Columns j and k of one colour have no entries (j, k) and (k, j). None where the structure is
    unknown, or the Jacobian is not square.
    """
    body = thaw(function)
    expand(body)
    import_graph(body)
    try:
        (pattern,) = jacobian_pattern([body.inputs[variable]], [body.outputs[output]])
    except UnknownStructure:
        return None
    if pattern.shape[0] != pattern.shape[1]:
        return None
    return neighbour_colours(sparse.csr_matrix(pattern + pattern.T))
