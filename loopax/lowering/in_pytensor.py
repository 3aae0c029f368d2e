"""Our passes in PyTensor's own modes: one entry in its database of rewrites.

PyTensor rewrites the bodies of its own ops only. With this entry every mode that includes
``fast_run`` (the default, CVM, JAX, NUMBA) prunes our loops, rewrites their bodies, and computes
before them what is the same at every step. It runs before PyTensor's canonicalize, so that what a
loop no longer needs is gone by then, and long before the rewrites that work in place, which no body
of ours may see.
"""

from __future__ import annotations

from pytensor.compile.mode import optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter

from loopax.ir.inner_graph_op import InnerGraphOp
from loopax.ir.sizes import without_dims
from loopax.lowering.canonical.stabilize import IN_PYTENSOR, stabilize_bodies
from loopax.lowering.redundancy.hoist_invariants import hoist_invariants
from loopax.lowering.redundancy.merge_loops import merge_loops
from loopax.lowering.redundancy.remove_unused import remove_unused


class LoopaxRewriter(GraphRewriter):
    """`merge_loops`, `remove_unused`, `hoist_invariants` on a graph, `stabilize` on the bodies in it."""

    def apply(self, fgraph: FunctionGraph) -> None:
        if not any(isinstance(node.op, InnerGraphOp) for node in fgraph.apply_nodes):
            return
        merge_loops(fgraph)
        remove_unused(fgraph)
        stabilize_bodies(fgraph)
        hoist_invariants(fgraph)
        without_dims(fgraph)

    def __str__(self) -> str:
        return "LoopaxRewriter"


def register_with_pytensor() -> None:
    """Add the entry, once."""
    if IN_PYTENSOR not in optdb:
        # merge1 is at 0, canonicalize at 1.
        optdb.register(IN_PYTENSOR, LoopaxRewriter(), "fast_run", position=0.9)
