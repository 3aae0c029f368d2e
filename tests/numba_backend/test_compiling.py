"""How native code is compiled: by fewer of Numba's passes, and without collections."""

import gc

import pytensor.tensor as pt
import pytest
from numba.core.compiler import DefaultPassBuilder
from pytensor.graph.fg import FunctionGraph

from loopax import jaxify
from loopax.ir.collection import uncollected
from loopax.lowering import run_passes
from loopax.numba_backend.runtime import compiling

x = pt.dvector("x")


def names(passes):
    return [one.__name__ for one, _ in passes.passes]


def test_of_numbas_passes_those_are_left_out_that_emitted_code_has_no_use_for(monkeypatch):
    """All of them are there in this Numba, and those that are left stay in order."""
    used = []
    real = compiling.EmittedCode.define_pipelines

    def noted(self):
        (ours,) = real(self)
        used.append((names(ours), names(DefaultPassBuilder.define_nopython_pipeline(self.state))))
        return [ours]

    monkeypatch.setattr(compiling.EmittedCode, "define_pipelines", noted)
    jaxify([x], pt.exp(x).sum(), backend="numba")([0.0, 1.0])
    (ours, whole), *_ = used
    assert {*whole} >= compiling._OMITTED
    assert ours == [name for name in whole if name not in compiling._OMITTED]


def test_nothing_is_collected_meanwhile():
    found = []

    def look(graph):
        found.append(gc.isenabled())

    run_passes(FunctionGraph([x], [pt.exp(x)]), [look])
    with compiling.compilation_of(look):
        look(None)
    assert found == [False, False]
    assert gc.isenabled()


def test_the_collector_is_left_as_it_was():
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
