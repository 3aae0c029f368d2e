"""Numba's rewrites before type inference, without a liveness analysis after them."""

from __future__ import annotations

from loopax.base.upstream.numba import GenericRewrites, compiler, register_pass, rewrite_registry


@register_pass(mutates_CFG=True, analysis_only=False)
class EmittedRewrites(GenericRewrites):  # type: ignore[misc]  # Numba has no types
    """Numba's rewrites of single statements, such as an index that is a constant.

    Numba then computes where each local dies. Nothing reads that before ``IRLegalization``, which
    computes it again.
    """

    def run_pass(self, state: compiler.StateDict) -> bool:
        blocks = state.func_ir.blocks
        for rewrite_class in rewrite_registry.rewrites["before-inference"]:
            rewrite = rewrite_class(state)
            for label in list(blocks):
                while rewrite.match(state.func_ir, blocks[label], state.typemap, state.calltypes):
                    blocks[label] = rewrite.apply()
        return True
