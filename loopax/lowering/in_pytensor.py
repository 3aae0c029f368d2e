"""Our passes in PyTensor's own modes: four entries in its database of rewrites. One removes watch points,
one takes derivatives.

(Our corrected versions of PyTensor's rewrites, `corrected_rewrites` and `shifted_exponents`, are registered
with them.)

PyTensor rewrites the bodies of its own ops only. With the third every mode that includes
``fast_run`` (the default, CVM, JAX, NUMBA) prunes our loops, rewrites their bodies, and hoists
loop-invariant computations. It runs before PyTensor's canonicalize, so that
unneeded parts of loops are gone by then, and long before the rewrites that work in place, which no body of
loopax may see. The last merges loops once more after canonicalize.
"""

from __future__ import annotations

from pytensor.compile.mode import optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter

from loopax.ir.derivatives.lazy_grammar import has_derivatives
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.sizes import without_dims
from loopax.lowering.canonical.corrected_rewrites import register_corrected_rewrites
from loopax.lowering.canonical.even_powers import register_even_powers
from loopax.lowering.canonical.shifted_exponents import register_shifted_exponents
from loopax.lowering.canonical.stabilize import DERIVATIVES, IN_PYTENSOR, TWINS, stabilize_bodies
from loopax.lowering.derivatives.copy_writes import copy_writes
from loopax.lowering.derivatives.take_derivatives import take_derivatives
from loopax.lowering.redundancy.hoist_invariants import hoist_invariants
from loopax.lowering.redundancy.merge_loops import merge_loops
from loopax.lowering.redundancy.remove_unused import remove_unused
from loopax.lowering.watching.drop import drop_watches, has_watches

_WATCHES = "loopax_watches"


class _Rewriter(GraphRewriter):
    """A rewriter that appears in PyTensor's profiles under the name of its class."""

    def __str__(self) -> str:
        return type(self).__name__


class LoopaxRewriter(_Rewriter):
    """Runs `merge_loops`, `remove_unused` and `hoist_invariants` on a graph, `stabilize` on its bodies."""

    def apply(self, fgraph: FunctionGraph) -> None:
        if not any(isinstance(node.op, InnerGraphOp) for node in fgraph.apply_nodes):
            return
        merge_loops(fgraph)
        remove_unused(fgraph)
        stabilize_bodies(fgraph)
        hoist_invariants(fgraph)
        without_dims(fgraph)


class WatchesRewriter(_Rewriter):
    """Runs `drop_watches`."""

    def apply(self, fgraph: FunctionGraph) -> None:
        if has_watches(fgraph):
            drop_watches(fgraph)


class DerivativesRewriter(_Rewriter):
    """Runs `take_derivatives`, and `copy_writes` on the nodes that it adds."""

    def apply(self, fgraph: FunctionGraph) -> None:
        if has_derivatives(fgraph):
            users = set(fgraph.apply_nodes)
            take_derivatives(fgraph)
            copy_writes(fgraph, users)


class TwinsRewriter(_Rewriter):
    """Runs `merge_loops` once more: inputs and bodies of equal loops now have one form.

    A function under a lazy derivative has been stabilized before, and its loop may be equal to the loop
    that computes the value.
    """

    def apply(self, fgraph: FunctionGraph) -> None:
        merge_loops(fgraph)
        without_dims(fgraph)


def register_with_pytensor() -> None:
    """Add the entries, once."""
    register_corrected_rewrites()
    register_shifted_exponents()
    register_even_powers()
    if DERIVATIVES not in optdb:
        # After merge1, which is at 0, and before the rewrites of loops: two gradients of one function at
        # one point are one. In all modes that rewrite at all: elsewhere it runs as a function of its own.
        tags = "fast_run", "fast_compile", "minimum_compile"
        optdb.register(DERIVATIVES, DerivativesRewriter(), *tags, position=0.02)
    if _WATCHES not in optdb:
        optdb.register(_WATCHES, WatchesRewriter(), "fast_run", "fast_compile", position=0.01)
    if IN_PYTENSOR not in optdb:
        # merge1 is at 0, canonicalize at 1.
        optdb.register(IN_PYTENSOR, LoopaxRewriter(), "fast_run", position=0.9)
        optdb.register(TWINS, TwinsRewriter(), "fast_run", position=1.1)
