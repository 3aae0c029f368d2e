"""Numba's passes for emitted functions, and for functions that only native code calls."""

from __future__ import annotations

from functools import partial

from numba import njit

from loopax.base.compiling.call_types import EmittedTypeInference
from loopax.base.compiling.lifetimes import EmittedLegalization
from loopax.base.compiling.lowering import EmittedLowering, InnerEmittedLowering, InnerLowering
from loopax.base.compiling.rewrites import EmittedRewrites
from loopax.base.upstream.numba import CompilerBase, DefaultPassBuilder, PassManager

# Passes of Numba that do nothing for functions without closures and array expressions. Each pass walks
# the whole function and computes liveness again.
_OMITTED = frozenset(
    {"InlineClosureLikes", "FindLiterallyCalls", "LiteralUnroll", "NopythonRewrites"}
)
# And these for an emitted function, which has no local that changes its type, and so no phi nodes. Nothing
# reads the lifetimes of its locals, which IRProcessing computes, before IRLegalization computes them again.
# With the others, a gradient of 775 lines, 80 loops, took one and a half times as long to compile.
_OMITTED_FROM_EMITTED = _OMITTED | {"ReconstructSSA", "PreLowerStripPhis", "IRProcessing"}


class InnerCode(CompilerBase):  # type: ignore[misc]  # Numba has no types
    """Numba's compiler for functions that only native code calls."""

    omitted = _OMITTED
    replaced = {
        "NativeLowering": InnerLowering,
        "NopythonTypeInference": EmittedTypeInference,
        "IRLegalization": EmittedLegalization,
    }

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("loopax")
        for define in (
            DefaultPassBuilder.define_untyped_pipeline,
            DefaultPassBuilder.define_typed_pipeline,
            DefaultPassBuilder.define_nopython_lowering_pipeline,
        ):
            for pass_class, description in define(self.state).passes:
                if pass_class.__name__ not in self.omitted:
                    passes.add_pass(self.replaced.get(pass_class.__name__, pass_class), description)
        passes.finalize()
        return [passes]


class EmittedCode(InnerCode):
    """Numba's compiler for emitted functions: ``njit(pipeline_class=EmittedCode)``."""

    omitted = _OMITTED_FROM_EMITTED
    replaced = {
        **InnerCode.replaced,
        "GenericRewrites": EmittedRewrites,
        "NativeLowering": EmittedLowering,
    }


class InnerEmittedCode(InnerCode):
    """Numba's compiler for emitted functions that only native code calls."""

    omitted = EmittedCode.omitted
    replaced = {
        **InnerCode.replaced,
        "GenericRewrites": EmittedRewrites,
        "NativeLowering": InnerEmittedLowering,
    }


# Without the wrappers for calls from Python and C, which take as long to compile as the function: 18
# ms instead of 61 for one of numbers, 65 instead of 140 for one of arrays. A call from Python would
# end the process; a call of its ``py_func`` does not.
njit_inner = partial(njit, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=InnerCode)
