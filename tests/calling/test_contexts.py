"""Contexts of both backends: the same names, rules and errors; the values of each are its own."""

import pickle

import jax
import numpy as np
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.typed_list import append
from pytensor.typed_list.basic import TypedListVariable
from pytensor.typed_list.type import TypedListType

from loopax import LoopTypeError, SharedContext, StatefulFunctionError, jaxify
from loopax.calling.layout import Layout
from loopax.jax_backend import JaxContext
from loopax.numba_backend import NumbaContext

BACKENDS = {"jax": JaxContext, "numba": NumbaContext}
both = pytest.mark.parametrize("backend", list(BACKENDS))


class SharedList(TypedListVariable, SharedVariable):
    """PyTensor has no shared variable for its lists, but a place for one."""


def state(kind="PCG64"):
    """Shared variables of every type that PyTensor keeps, by name."""
    rows = TypedListType(pt.dvector)()
    bits = getattr(np.random, kind)(7)
    return {
        "w": pytensor.shared(np.arange(3.0), name="w"),
        "n": pytensor.shared(np.int32(2), name="n"),
        "rng": pytensor.shared(np.random.Generator(bits), name="rng"),
        "matrix": pytensor.shared(scipy.sparse.csr_matrix([[0.0, 2.0], [0.0, 0.0]]), name="matrix"),
        "rows": SharedList(rows.type, [np.ones(2), np.ones(1)], strict=False, name="rows"),
    }


def keeper(backend, **options):
    """A function that reads all of it. Nothing is compiled until it is called."""
    actual = state(**options)
    return actual, jaxify(
        [], [v * 1 if k in "wn" else v for k, v in actual.items()], backend=backend
    )


def same(a, b):
    """Whether two values of a context are equal, whatever they are."""
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.random.Generator):
        return a.bit_generator.state["state"] == b.bit_generator.state["state"]
    if scipy.sparse.issparse(a):
        return (a != b).nnz == 0 and a.dtype == b.dtype and a.format == b.format
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    if hasattr(a, "dtype") and str(a.dtype).startswith("key<"):
        return bool(a == b)
    return all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in leaves)


@both
def test_by_name_and_by_variable(backend):
    actual, f = keeper(backend)
    context = f.init_context()
    assert type(context) is BACKENDS[backend] is f.context_class
    assert isinstance(context, SharedContext)
    assert {*context} == {*actual} and len(context) == 5 and "w" in context
    assert repr(context).startswith(f"{BACKENDS[backend].__name__}(")
    assert "w: float64[3]" in repr(context) and "n: int32[]" in repr(context)
    for name, variable in actual.items():
        assert same(context[name], context[variable])
    assert context.get("v") is None and context.get("v", 3) == 3
    with pytest.raises(KeyError, match="no value named 'v': it has .*matrix"):
        context["v"]
    with pytest.raises(TypeError, match="by name or by shared variable, not by 3 of type int"):
        context[3]
    with pytest.raises(TypeError, match="unhashable"):
        hash(context)
    assert context == context and context != f.init_context()


@both
def test_set_leaves_the_context_as_it_is(backend):
    actual, f = keeper(backend)
    context = f.init_context()
    mine = np.full(3, 9.0)
    new = context.set("w", mine).set(actual["n"], 5)
    mine[0] = -1.0
    assert new["w"].tolist() == [9.0] * 3 and new["n"] == 5 and str(new["n"].dtype) == "int32"
    assert context["w"].tolist() == [0.0, 1.0, 2.0] and context["n"] == 2
    assert actual["w"].get_value().tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(LoopTypeError, match="The value of 'w' must be float64 of rank"):
        context.set("w", 1.0)
    with pytest.raises(LoopTypeError, match="The value of 'rng' must be a"):
        context.set("rng", 1.0)
    with pytest.raises(KeyError, match="no value of the shared variable"):
        context.set(pytensor.shared(1.0), 2.0)


@both
def test_what_pytensor_changes_in_place_is_not_seen(backend):
    actual, f = keeper(backend)
    context = f.init_context()
    before = {name: context[name] for name in context}
    actual["w"].get_value(borrow=True)[:] = -1.0
    actual["rng"].get_value(borrow=True).normal()
    actual["matrix"].get_value(borrow=True).data[:] = -1.0
    actual["rows"].get_value(borrow=True)[0][:] = -1.0
    actual["rows"].get_value(borrow=True).append(np.zeros(1))
    assert all(same(context[name], before[name]) for name in context)


@both
def test_saved_and_restored(backend, tmp_path):
    actual, f = keeper(backend)
    context = f.init_context().set("w", np.full(3, 4.0))
    context.save(tmp_path / "state.npz")
    actual["w"].set_value(np.zeros(3))
    actual["rng"].get_value(borrow=True).normal()
    restored = f.init_context().restore(tmp_path / "state.npz")
    assert type(restored) is type(context)
    for name in context:
        assert same(restored[name], context[name]), name
    other = jaxify([], pytensor.shared(1.0, name="other") * 1, backend=backend).init_context()
    with pytest.raises(LoopTypeError, match=r"has the values .*but the context has \['other'\]"):
        other.restore(tmp_path / "state.npz")
    narrow = pytensor.shared(np.zeros(3, dtype="float32"), name="v")
    jaxify([], narrow * 1, backend=backend).init_context().save(tmp_path / "narrow.npz")
    wide = jaxify([], pytensor.shared(np.zeros(3), name="v") * 1, backend=backend).init_context()
    with pytest.raises(
        LoopTypeError, match="'v' must be float64 of rank 1, but the file has float32"
    ):
        wide.restore(tmp_path / "narrow.npz")
    again = pickle.loads(pickle.dumps(context))
    assert type(again) is type(context) and all(
        same(again[name], context[name]) for name in context
    )


@both
def test_one_context_for_several_functions(backend):
    w = pytensor.shared(np.ones(2), name="w")
    train = jaxify([], w.sum(), updates={w: w * 2}, backend=backend)
    predict = jaxify([], w * pytensor.shared(3.0, name="scale"), backend=backend)
    context = SharedContext.of(train, predict)
    assert type(context) is BACKENDS[backend] and list(context) == ["w", "scale"]
    context, _ = train.apply(context)
    assert np.asarray(predict.apply(context)[1]).tolist() == [6.0, 6.0]
    assert BACKENDS[backend].of().set is not None and len(BACKENDS[backend].of()) == 0
    other = jaxify([], w * 1, backend="numba" if backend == "jax" else "jax")
    assert type(SharedContext.of(train, other)) is BACKENDS[backend]
    keeps = train.stateful()
    with pytest.raises(
        StatefulFunctionError, match=f"must be a {BACKENDS[backend].__name__}, such as f.init"
    ):
        keeps.context = {"w": 1.0}
    keeps.context = other.init_context()
    assert type(keeps.context) is BACKENDS[backend]
    keeps.context = context
    copy = keeps.copy()
    assert (float(keeps()), float(keeps()), float(copy())) == (4.0, 8.0, 4.0)


# -- those of Numba ------------------------------------------------------------------------------------


def test_what_is_read_from_a_context_is_a_copy():
    _, f = keeper("numba")
    context = f.init_context()
    context["w"][:] = -1.0
    context["rng"].normal()
    context["matrix"].data[:] = -1.0
    context["rows"][0][:] = -1.0
    context["rows"].append(np.zeros(1))
    fresh = f.init_context()
    assert all(same(context[name], fresh[name]) for name in context)
    for value in context.values():
        assert not isinstance(value, jax.Array)


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_replicated_generators_are_their_own(kind, tmp_path):
    _, f = keeper("numba", kind=kind)
    context = f.init_context()
    first, again = context.replicate(3), context.replicate(3)
    draws = [c["rng"].normal() for c in first]
    assert len({*draws, context["rng"].normal()}) == 4
    assert draws == [c["rng"].normal() for c in again]  # the context has not moved on
    assert draws[:2] == [c["rng"].normal() for c in context.replicate(2)]
    assert first[0].replicate(2)[1]["rng"].normal() not in draws
    assert type(first[0]["rng"].bit_generator).__name__ == kind
    assert all(same(c[name], context[name]) for c in first for name in ("w", "matrix", "rows"))
    first[0].save(tmp_path / "state.npz")
    assert context.restore(tmp_path / "state.npz")["rng"].normal() == draws[0]


def test_a_list_of_another_length_in_a_file(tmp_path):
    _, f = keeper("numba")
    context = f.init_context()
    context.set("rows", [np.ones(3)] * 5).save(tmp_path / "longer.npz")
    assert [len(row) for row in context.restore(tmp_path / "longer.npz")["rows"]] == [3] * 5
    context.set("rows", []).save(tmp_path / "empty.npz")
    assert context.restore(tmp_path / "empty.npz")["rows"] == []


def test_a_file_with_a_generator_that_is_none(tmp_path):
    rng = pytensor.shared(np.random.default_rng(1), name="a")
    text = pytensor.shared(np.arange(3, dtype="uint8"), name="a")
    of_rng, of_text = (jaxify([], v, backend="numba").init_context() for v in (rng, text))
    of_text.save(tmp_path / "state.npz")
    with pytest.raises(LoopTypeError, match="'a' must be the state of a NumPy generator.*uint8"):
        of_rng.restore(tmp_path / "state.npz")


def test_a_list_that_grows():
    rows = state()["rows"]
    x = pt.dvector("x")
    f = jaxify([x], [], updates={rows: append(rows, x)}, backend="numba")
    own, live = f.stateful(), f.stateful(live=True)
    for k in range(2):
        own(np.full(k, 0.5))
    live(np.zeros(4))
    assert [len(row) for row in own.context["rows"]] == [2, 1, 0, 1]
    assert [len(row) for row in rows.get_value()] == [2, 1, 4]


# -- contexts by themselves, for every backend ---------------------------------------------------------


def test_a_context_of_variables_and_values():
    a, b = pytensor.shared(np.ones(2), name="a"), pytensor.shared(2.0, name="b")
    context = SharedContext({a: [3.0, 4.0], b: 5})
    assert isinstance(context, SharedContext) and list(context) == ["a", "b"]
    assert (np.asarray(context[a]).tolist(), float(context["b"])) == ([3.0, 4.0], 5.0)
    assert b.get_value() == 2.0 and float(context.set(b, 7.0)[b]) == 7.0
    steps = {name: jaxify([], a * b, updates={b: b + 1}, backend=name) for name in BACKENDS}
    reads = {name: jaxify([], b * 2, backend=name) for name in BACKENDS}
    for name in (*BACKENDS, *BACKENDS):  # what one backend returns goes to the other
        context, actual = steps[name].apply(context)
        assert type(context) is BACKENDS[name]
    np.testing.assert_allclose(actual, [24.0, 32.0])
    assert {float(f.apply(context)[1]) for f in reads.values()} == {18.0}
    assert float(jax.jit(steps["jax"].apply)(SharedContext({a: [1.0, 1.0], b: 1.0}))[0][b]) == 2.0
    now = SharedContext.of(a, b)
    assert np.asarray(now[a]).tolist() == [1.0, 1.0] and len(SharedContext.of(steps["jax"], a)) == 2


def test_a_stateful_function_that_starts_from_a_context():
    n = pytensor.shared(np.int64(0), name="n")
    for name in BACKENDS:
        count = jaxify([], n, updates={n: n + 1}, backend=name).stateful(SharedContext({n: 5}))
        assert [int(count()), int(count())] == [5, 6]


def test_what_cannot_be_a_context():
    a = pytensor.shared(np.ones(2), name="a")
    with pytest.raises(TypeError, match="values of shared variables"):
        SharedContext({"a": 1.0})
    with pytest.raises(LoopTypeError, match="The value of 'a' must be float64 of rank 1"):
        SharedContext({a: 1.0})
    batch = jaxify([], a * 2).init_context().replicate(3)
    with pytest.raises(StatefulFunctionError, match="not a single known value"):
        batch.to("numba")


@pytest.mark.slow
def test_generators_lists_and_sparse_matrices_in_the_form_of_the_other_backend():
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    matrix = pytensor.shared(scipy.sparse.csr_matrix(np.eye(2)), name="matrix")
    next_rng, draw = pt.random.normal(rng=rng, return_next_rng=True)
    programs = [draw, pytensor.sparse.dense_from_sparse(matrix) * 2]
    f, g = (jaxify([], programs, updates={rng: next_rng}, backend=name) for name in BACKENDS)
    ours = SharedContext.of(f)
    there = ours.to("numba")
    assert isinstance(there["rng"], np.random.Generator) and ours.to("jax") is ours
    again, (first, doubled) = g.apply(ours)
    assert first == g.apply(there)[1][0] and (doubled == 2 * np.eye(2)).all()
    assert f.apply(again)[1][0] == f.apply(again.to("jax"))[1][0]
    assert float(f.apply(g.init_context())[1][0]) == float(f.apply(f.init_context())[1][0])


@both
def test_a_repeated_call_looks_no_variable_up(backend, monkeypatch):
    total = pytensor.shared(np.float64(1.0), name="total")
    f = jaxify([], total, updates={total: total + 1}, backend=backend).stateful()
    assert f() == 1

    def refuse(*args):
        raise AssertionError("a variable is looked up whose position is known")

    monkeypatch.setattr(Layout, "_position", refuse)
    assert (f(), f()) == (2, 3)
