"""Which of Numba's passes compile native code, and that nothing is collected meanwhile."""

import gc

import numpy as np
import pytensor.tensor as pt
import pytest
from numba import njit
from numba.core.compiler import DefaultPassBuilder
from pytensor.graph.fg import FunctionGraph

from loopax import jaxify
from loopax.base.compiling import (
    call_types,
    elements,
    folding,
    libraries,
    lifetimes,
    lowering,
    pipeline,
    rewrites,
)
from loopax.base.compiling.compile_status import compilation_of
from loopax.base.gc_pause import gc_paused
from loopax.lowering import run_passes

x = pt.dvector("x")


def names(passes):
    return [one.__name__ for one, _ in passes.passes]


def test_of_numbas_passes_those_are_left_out_that_emitted_code_has_no_use_for(monkeypatch):
    """All of them are there in this Numba, and those that are left stay in order."""
    used = []
    real = pipeline.InnerCode.define_pipelines

    def noted(self):
        (ours,) = real(self)
        whole = DefaultPassBuilder.define_nopython_pipeline(self.state)
        used.append((self, names(ours), names(whole)))
        return [ours]

    monkeypatch.setattr(pipeline.InnerCode, "define_pipelines", noted)
    # A program of no other test: equal ones share their code.
    jaxify([x], pt.exp(x).sum() * 0.8125, backend="numba")([0.0, 1.0])
    (compiler, ours, whole), *_ = [one for one in used if isinstance(one[0], pipeline.EmittedCode)]
    omitted, replaced = compiler.omitted, compiler.replaced
    assert omitted == pipeline._OMITTED_FROM_EMITTED > pipeline._OMITTED
    assert {*whole} >= omitted | replaced.keys()
    kept = [name for name in whole if name not in omitted]
    assert ours == [replaced[n].__name__ if n in replaced else n for n in kept]


@pytest.mark.parametrize(
    ("ours", "names"),
    [
        (
            lowering.LowerEmitted,
            "_find_singly_assigned_variable setup_function lower_normal_function lower_function_body "
            "incref decref storevar lower_block lower_assign lower_binop",
        ),
        (elements.LowerElements, "init lower_expr lower_inst lower_getitem lower_setitem"),
        (
            folding.FoldingBuilder,
            "alloca gep store load phi _insert extract_value add sub mul call",
        ),
        (libraries.InnerLibrary, "codegen _optimize_final_module _finalize_final_module"),
        (libraries.InnerEmittedLibrary, "_optimize_functions"),
        (libraries.EmittedLibrary, "_optimize_functions"),
        (lowering.EmittedLowering, "lowering_class run_pass"),
        (lifetimes.EmittedLegalization, "run_pass"),
        (call_types.EmittedTypeInference, "run_pass"),
        (rewrites.EmittedRewrites, "run_pass"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_methods_that_take_the_place_of_numbas_exist_there(ours, names):
    """Under another name nobody would call ours, and all would be as slow as Numba's."""
    theirs = [base for base in ours.__mro__ if not base.__module__.startswith("loopax")]
    for name in names.split():
        assert name in vars(ours)
        assert any(name in vars(base) for base in theirs), name


def test_inner_functions_have_no_machine_code_of_their_own():
    """They are optimized in the functions that call them, which have all of them in themselves."""
    inner = pipeline.njit_inner(lambda a: a[0] + 1.0)
    outer = njit(lambda a: inner(a) * 2.0)
    assert outer(np.array([3.0])) == 8.0
    engine = outer.overloads[outer.signatures[0]].library._codegen._engine
    symbols = [compiled.fndesc.mangled_name for compiled in inner.overloads.values()]
    assert symbols and not any(engine.is_symbol_defined(symbol) for symbol in symbols)


def test_errors_of_inner_functions_reach_the_caller():
    @pipeline.njit_inner
    def refuse(n):
        if n > 2:
            raise ValueError("more than two")
        return n

    outer = njit(lambda n: refuse(n))
    assert outer(2) == 2
    with pytest.raises(ValueError, match="more than two"):
        outer(3)


def test_nothing_is_collected_meanwhile():
    actual = []

    def look(graph):
        actual.append(gc.isenabled())

    run_passes(FunctionGraph([x], [pt.exp(x)]), [look])
    with compilation_of(look):
        look(None)
    assert actual == [False, False]
    assert gc.isenabled()


def test_the_collector_is_left_as_it_was():
    with pytest.raises(KeyError), gc_paused():
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
