"""Numba's passes for functions that the emitter writes, and for those that native code alone calls."""

from __future__ import annotations

from functools import partial

from numba import njit

from loopax.base.compiling.call_types import EmittedTypeInference
from loopax.base.compiling.lowering import EmittedLowering, InnerLowering
from loopax.base.upstream.numba import CompilerBase, DefaultPassBuilder, PassManager

# Of Numba's passes, what an emitted function has no use for: there are no functions and no expressions of
# arrays in it, no local that changes its type, and so no phi nodes. Each pass goes through the whole, and
# computes afterwards which locals are live where: a third of the time of a gradient of 775 lines, 80 loops.
_OMITTED = {
    "InlineClosureLikes",
    "FindLiterallyCalls",
    "LiteralUnroll",
    "NopythonRewrites",
    "ReconstructSSA",
    "PreLowerStripPhis",
}


class InnerCode(CompilerBase):  # type: ignore[misc]  # Numba has no types
    """Numba's compiler for functions that native code alone calls."""

    omitted: frozenset[str] = frozenset()
    replaced = {"NativeLowering": InnerLowering}

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("loopax")
        for part in (
            DefaultPassBuilder.define_untyped_pipeline,
            DefaultPassBuilder.define_typed_pipeline,
            DefaultPassBuilder.define_nopython_lowering_pipeline,
        ):
            for one, description in part(self.state).passes:
                if one.__name__ not in self.omitted:
                    passes.add_pass(self.replaced.get(one.__name__, one), description)
        passes.finalize()
        return [passes]


class EmittedCode(InnerCode):
    """Numba's compiler for functions that the emitter writes: ``njit(pipeline_class=EmittedCode)``."""

    omitted = frozenset(_OMITTED)
    replaced = {"NativeLowering": EmittedLowering, "NopythonTypeInference": EmittedTypeInference}


class InnerEmittedCode(EmittedCode):
    """The two together: emitted functions that native code alone calls."""

    replaced = {**EmittedCode.replaced, **InnerCode.replaced}


# Without the wrappers by which Python and C call a function, which take as long to compile as the function:
# 18 ms instead of 61 for one of numbers, 65 instead of 140 for one of arrays. A call from Python would end
# the process; that of its ``py_func`` does not.
njit_inner = partial(njit, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=InnerCode)
