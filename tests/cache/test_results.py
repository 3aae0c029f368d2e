"""What is made of a graph, from disk: the graph that would be made, with the lines of this program."""

from functools import partial

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from pytensor.compile.mode import optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import FromFunctionNodeRewriter, PatternNodeRewriter

import loopax
from loopax import jaxify
from loopax.cache import results
from loopax.cache.environment import environment
from loopax.lowering import NATIVE_PASSES, PASSES, order, run_passes
from loopax.lowering.canonical.registered import _key, registered_rewrites
from tests.random_programs.in_ir import program
from tests.support.random_loops import RANDOM


@pytest.fixture
def place(tmp_path_factory, monkeypatch):
    environment()  # what it keeps of packages is not counted below
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("LOOPAX_CACHE_DIR", str(folder / "graphs"))
    monkeypatch.setattr(results, "_LEAST", 0.0)
    return folder / "graphs"


@pytest.fixture
def made(monkeypatch):
    """How often passes have run so far."""
    runs = []
    real = order._run

    def counted(graph, passes, keep=None):
        runs.append(passes)
        real(graph, passes, keep)

    monkeypatch.setattr(order, "_run", counted)
    return runs


def lowered(inputs, outputs, passes=PASSES):
    graph = FunctionGraph(inputs, outputs, clone=True)
    run_passes(graph, passes)
    graph.check_integrity()
    return graph


@pytest.mark.slow
@pytest.mark.parametrize("passes", [PASSES, NATIVE_PASSES], ids=["JAX", "native"])
def test_a_random_program_is_read_as_it_was_made(place, made, passes):
    @seed(0)
    @settings(RANDOM, max_examples=15)
    @given(st.integers(0, 2**32 - 1))
    def holds(which):
        one = program(which)
        first = lowered(one.inputs, one.outputs, passes)
        runs = len(made)
        second = lowered(one.inputs, one.outputs, passes)
        assert len(made) == runs
        assert first.freeze() == second.freeze()
        assert [v.name for v in first.inputs] == [v.name for v in second.inputs]

    holds()


def regression():
    x, b = pt.dmatrix("x"), pt.dvector("b")
    total, _ = loopax.scan(lambda s, r: (s + pt.log1p(pt.exp((r * b).sum())), None), 0.0, x)
    return [x, b], [total, pytensor.grad(total, b)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_program_from_disk(place, made, backend):
    inputs, outputs = regression()
    values = np.arange(6.0).reshape(3, 2) / 6, np.array([1.0, -1.0])
    expected = pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*values)
    for _ in range(2):
        outs = jaxify(*regression(), backend=backend)(*values)
        for out, wanted in zip(outs, expected, strict=True):
            np.testing.assert_allclose(out, wanted, rtol=1e-12)
    assert len(made) == 1


def lines(variables):
    return [line for v in variables for line in getattr(v.tag, "trace", None) or ()]


def test_the_lines_are_those_of_this_program(place, made):
    def with_check():
        x = pt.dvector("x")
        return [x], [pytensor.raise_op.Assert("positive")(pt.exp(x) + 1, (x > 0).all())]

    lowered(*with_check())
    inputs, outputs = with_check()
    kept = lines(lowered(inputs, outputs).variables)
    assert len(made) == 1
    own = lines(FunctionGraph(inputs, outputs, clone=True).variables)
    assert kept
    assert all(any(line is one for one in own) for line in kept)


def test_a_damaged_file_is_made_anew(place, made):
    first = lowered(*regression())
    for path in place.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert lowered(*regression()).freeze() == first.freeze()
    assert len(made) == 2
    assert lowered(*regression()).freeze() == first.freeze()
    assert len(made) == 2


def test_what_is_no_graph_is_made_anew(place, made):
    lowered(*regression())
    for path in list(place.iterdir()):
        results.folder.write(path.stem, b"written by us, whole, and no graph")
    lowered(*regression())
    lowered(*regression())
    assert len(made) == 2


def test_nothing_is_kept_where_there_is_no_folder(monkeypatch, made):
    monkeypatch.setenv("LOOPAX_CACHE_DIR", "")
    lowered(*regression())
    lowered(*regression())
    assert len(made) == 2


def nothing(fgraph, node):
    """A user's rewrite: what it does may be something else tomorrow."""


@pytest.mark.parametrize("function", [nothing, partial(nothing)], ids=["function", "partial"])
def test_with_a_users_rewrite_nothing_is_kept(place, made, canonicalize, function):
    assert registered_rewrites() is not None
    rewrite = FromFunctionNodeRewriter(function, [pt.exp])
    canonicalize.register("users_own", rewrite, "fast_run")
    lowered(*regression())
    lowered(*regression())
    assert len(made) == 2


def test_clear_cache_removes_graphs(place, made):
    lowered(*regression())
    assert loopax.clear_cache() == 1
    lowered(*regression())
    assert len(made) == 2


@pytest.mark.slow
def test_a_deep_graph_is_kept(place, made):
    """Of two thousand nodes one behind the other, of which a pickle as they hang together is too deep."""
    x = pt.dscalar("x")
    y = x
    for _ in range(1000):
        y = pt.sin(y) + 0.5
    passes = (loopax.lowering.canonical.stabilize.make_casts_explicit,)
    first = lowered([x], [y], passes)
    assert lowered([x], [y], passes).freeze() == first.freeze()
    assert len(made) == 1


def test_with_a_users_condition_in_a_pattern_nothing_is_kept(place, canonicalize):
    x = {"pattern": "x", "constraint": lambda v: v.ndim == 0}
    rewrite = PatternNodeRewriter((pt.exp, x), (pt.exp, (pt.abs, "x")))
    canonicalize.register("users_pattern", rewrite, "fast_run")
    assert registered_rewrites() is None


def test_a_rewrite_in_the_place_of_another_is_seen(canonicalize):
    """Under its name, so that there are as many as before."""
    patterns = [(pt.exp, (pt.neg, "x")), (pt.reciprocal, (pt.exp, "x"))]
    canonicalize.register("pattern", PatternNodeRewriter(*patterns), "fast_run")
    before = registered_rewrites()
    other = PatternNodeRewriter(patterns[0], (pt.exp, (pt.abs, "x")))
    canonicalize.register("pattern", other, "fast_run", overwrite_existing=True)
    assert None not in (before, registered_rewrites())
    assert registered_rewrites() != before
    canonicalize.remove_tags("pattern", "fast_run")
    assert "pattern" in canonicalize.__db__


def test_where_a_rewrite_stands_counts(monkeypatch):
    before = registered_rewrites()
    monkeypatch.setitem(optdb.__position__, "canonicalize", 47.0)
    _key.cache_clear()
    assert registered_rewrites() not in (before, None)
    monkeypatch.undo()
    _key.cache_clear()
    assert registered_rewrites() == before
