"""Sparse derivatives of a function of variables: its program, the pattern, and the products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import graph_inputs
from scipy import sparse

from loopax.base.errors import LoopTypeError, UnsupportedOpError
from loopax.extensions.sparse_jacobians.compressed import Plan, plan, sparse_blocks
from loopax.extensions.sparse_jacobians.known import UnknownStructure
from loopax.extensions.sparse_jacobians.pattern import jacobian_pattern
from loopax.frontend.programs.symbols import Symbols
from loopax.importer.import_graph import import_graph
from loopax.ir.derivatives.lazy_grammar import expand


class UnknownLengths(LoopTypeError):
    """Raised if a sparse derivative needs a length that is unknown."""


def sparse_blocks_at(at: Symbols, outs: Sequence[Any], is_symmetric: bool) -> list[list[Any]]:
    """A sparse matrix for each of ``outs`` and each of ``at.wrt``, the symbols of the arguments.

    Raises `UnknownLengths` if the length of an argument or of the result is unknown.
    """
    for v in at.wrt:
        if None in v.type.shape:
            name = at.names[at.roots.index(v)]
            raise UnknownLengths(
                f"The structure of a sparse derivative depends on the lengths of {name}, which is "
                f"{v.type}. Declare them, pt.tensor('x', shape=(200,), dtype='float64') or "
                "pt.specify_shape(x, (200,)); or differentiate the result of jaxify, "
                "loopax.jacobian(jaxify(f), sparse=True), which looks at the arguments of each call."
            )
    return sparse_blocks(_plan(at, outs, is_symmetric), at.wrt, outs)


def _plan(at: Symbols, outs: Sequence[Any], is_symmetric: bool) -> Plan:
    """Plan the products on the program in the IR; an unknown pattern is dense."""
    parameters = [v for v in graph_inputs(outs) if v not in at.wrt and not isinstance(v, Constant)]
    graph = FunctionGraph([*at.wrt, *parameters], list(outs), clone=True)
    columns = [prod(v.type.shape) for v in at.wrt]
    known_leaves = {r: x.data for r, x in zip(at.roots, at.leaves, strict=True) if _is_number(x)}
    try:
        expand(graph)
        import_graph(graph)
        inner = dict(zip([*at.wrt, *parameters], graph.inputs, strict=True))
        values = {inner[r]: x for r, x in known_leaves.items() if r in inner and r not in at.wrt}
        patterns = jacobian_pattern([inner[v] for v in at.wrt], graph.outputs, values)
        rows = [p.shape[0] for p in patterns]
        pattern = sparse.vstack(patterns, format="csr")
    except (UnknownStructure, UnsupportedOpError) as error:
        unknown = [v for v in outs if None in v.type.shape]
        if unknown and not is_symmetric:
            raise UnknownLengths(
                "The structure of a sparse derivative depends on the lengths of its result, "
                f"{unknown[0].type}, which loopax cannot tell here: {error}. Declare them, "
                "pt.specify_shape(y, (200,)), or ask for a dense derivative."
            ) from error
        rows = columns if is_symmetric else [prod(v.type.shape) for v in outs]
        pattern = sparse.csr_matrix(np.ones((sum(rows), sum(columns)), dtype=bool))
    return plan(pattern, rows, columns, is_symmetric)


def _is_number(x: Variable) -> bool:
    return isinstance(x, Constant) and isinstance(x.data, np.ndarray)
