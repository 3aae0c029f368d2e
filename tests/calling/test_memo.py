"""What follows from shared variables is computed once for each value of theirs; no number is stale."""

import pickle

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.raise_op import Assert

import loopax
from loopax import jaxify
from loopax.base.errors import LoopTypeError
from loopax.calling import memo as kept_module
from loopax.ir.program import Program
from loopax.jax_backend.callable import shared_values
from loopax.lowering.early_part import early_part
from tests.support.compare import FAST_COMPILE

X = pt.dvector("x")
XS = np.linspace(0.5, 1.5, 40)
BACKENDS = pytest.mark.parametrize("backend", ["jax", "numba"])


def data(name="w", rows=100):
    return pytensor.shared(np.linspace(0.0, 1.0, rows * 40).reshape(rows, 40), name=name)


def expected(w, x=XS):
    return np.exp(np.sin(w.get_value(borrow=True))) @ x


def product(w):
    return pt.exp(pt.sin(w)) @ X


@pytest.fixture
def evaluations(monkeypatch):
    """How often the part that follows from shared variables has been computed."""
    calls = []

    def evaluate(graph, *values):
        calls.append(graph)
        return evaluate_itself(graph, *values)

    evaluate_itself = kept_module.evaluate
    monkeypatch.setattr(kept_module, "evaluate", evaluate)
    return calls


@BACKENDS
def test_it_is_computed_once_and_again_after_every_kind_of_change(backend, evaluations):
    w = data()
    f = jaxify([X], product(w), backend=backend)
    add = pytensor.function([], [], updates={w: w + 1}, mode="CVM")

    def in_place():
        w.get_value(borrow=True, return_internal_type=True)[3, 5] = -2.0

    def borrowed():
        w.set_value(mine, borrow=True)
        mine[0, 0] += 1

    mine = np.ones((100, 40))
    changes = [lambda: w.set_value(np.zeros((100, 40))), in_place, add, add, borrowed, borrowed]
    changes.append(lambda: w.set_value(np.asfortranarray(w.get_value() + 1), borrow=True))
    changes.append(lambda: w.set_value(np.ones((3, 40))))  # of another length
    for count, change in enumerate([lambda: None, *changes]):
        change()
        for _ in range(3):
            np.testing.assert_allclose(f(XS), expected(w), rtol=1e-12)
        assert len(evaluations) == count + 1
    w.set_value(np.full((3, 40), np.nan))
    assert np.isnan(f(XS)).all() and np.isnan(f(XS)).all()
    assert len(evaluations) == len(changes) + 2  # a NaN is the same as itself


@BACKENDS
def test_what_changes_only_the_sign_of_a_zero(backend):
    w = pytensor.shared(np.zeros((100, 40)), name="w")
    f = jaxify([X], (1 / pt.exp(pt.sin(pt.cos(w)) * 0) / w).sum(axis=0) * X, backend=backend)
    assert (f(XS) == np.inf).all()
    w.set_value(-np.zeros((100, 40)))
    assert (f(XS) == -np.inf).all()


@BACKENDS
def test_contexts_have_values_of_their_own(backend):
    w = data()
    f = jaxify([X], product(w), backend=backend)
    before, ctx = expected(w), f.init_context()
    w.set_value(w.get_value() + 1)
    for _ in range(2):
        np.testing.assert_allclose(f.apply(ctx, XS)[1], before, rtol=1e-12)
        np.testing.assert_allclose(f(XS), expected(w), rtol=1e-12)
    ctx = ctx.set(w, w.get_value())
    np.testing.assert_allclose(f.apply(ctx, XS)[1], expected(w), rtol=1e-12)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(f))(XS), expected(w), rtol=1e-12)


def test_transformations_of_jax():
    w = data()
    f = jaxify([X], product(w).sum())
    slope = np.exp(np.sin(w.get_value())).sum(axis=0)
    for gradient in (jax.grad(f), jax.jit(jax.grad(f)), loopax.grad(f)):
        np.testing.assert_allclose(gradient(XS), slope, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(f)(np.stack([XS, 2 * XS]))[1], 2 * f(XS), rtol=1e-12)
    ctx, value = f.init_context(), w.get_value()
    by_context = jax.grad(lambda value: f.apply(ctx.set(w, value), XS)[1])(value)
    np.testing.assert_allclose(by_context, np.exp(np.sin(value)) * np.cos(value) * XS, rtol=1e-12)
    # The first trace is under somebody else's jit: nothing of it may stay.
    g = jaxify([X], product(w).sum())
    np.testing.assert_allclose(jax.jit(g)(XS), f(XS), rtol=1e-12)
    np.testing.assert_allclose(g(XS), f(XS), rtol=1e-12)


@BACKENDS
def test_large_results_are_arguments_of_the_program(backend):
    w = data()
    f = jaxify([X], product(w), backend=backend)
    f(XS)
    part = early_part(f.program)
    assert [v.type.ndim for v in part.residual.inputs] == [1, 2] and part.left == ()
    if backend == "numba":
        assert "exp" not in f.source and "def program(x0, x1)" in f.source


@BACKENDS
def test_what_raises_leaves_the_call_to_the_whole_program(backend):
    w = data()
    rows = pt.exp(pt.sin(Assert("positive, please")(w, (w >= 0).all())))
    f = jaxify([X], rows @ X, backend=backend, checks="raise")
    np.testing.assert_allclose(f(XS), expected(w), rtol=1e-12)
    w.set_value(w.get_value() - 1)
    for _ in range(2):
        with pytest.raises(AssertionError, match="positive, please"):
            f(XS)
    w.set_value(w.get_value() + 1)
    np.testing.assert_allclose(f(XS), expected(w), rtol=1e-12)


def test_what_stays_whole():
    w, rng = data(), pytensor.shared(np.random.default_rng(1), name="rng")

    def part(outputs, updates=None):
        f = jaxify([X], outputs, updates=updates)
        assert isinstance(f.program, Program)
        return early_part(f.program)

    assert part(product(w)) is not None
    assert part(w @ X) is None  # nothing to compute
    assert part((w + 1) @ X) is None  # as dear to compare as to compute
    assert part(product(pytensor.shared(np.ones((2, 40)), name="small"))) is None
    assert part(product(w), {w: w + 1}) is None  # it changes at each call
    next_rng, draw = rng.normal(size=(100, 40))
    assert part(pt.exp(draw) @ X, {rng: next_rng}) is None


@BACKENDS
def test_values_that_the_program_also_reads_elsewhere(backend):
    w, v = data(), data("v")
    y = product(w) + (w + v) @ X
    f = jaxify([X], {"y": y, "basis": pt.exp(pt.sin(w))}, backend=backend)
    by_pytensor = pytensor.function([X], [y, pt.exp(pt.sin(w))], mode=FAST_COMPILE)
    for shift in (0.0, 1.0):
        w.set_value(w.get_value() + shift)
        v.set_value(v.get_value() - shift)
        out = f(XS)
        for mine, theirs in zip((out["y"], out["basis"]), by_pytensor(XS), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    if backend == "numba":  # a result is the caller's to write to
        out["basis"][...] = 0
        np.testing.assert_allclose(f(XS)["basis"], by_pytensor(XS)[1], rtol=1e-12)


def test_explain_shows_which_is_which():
    w = data()
    for explanation in (
        loopax.explain([X], product(w)),
        loopax.explain(jaxify([X], product(w), backend="numba")),
    ):
        text = str(explanation)
        once, _, each = text.partition("== at each call ==")
        assert "exp(" in once.partition("== once for each value of w ==")[2] and "exp(" not in each
    assert loopax.explain([X], X * 2).part is None


@pytest.fixture
def accepted(monkeypatch):
    """The values of shared variables that went to the device."""
    values = []

    def accept(x, held, what):
        values.append(x)
        return accept_itself(x, held, what)

    accept_itself = shared_values.accept
    monkeypatch.setattr(shared_values, "accept", accept)
    return values


def test_data_stay_on_the_device_until_they_change(accepted):
    w = pytensor.shared(np.linspace(0.0, 1.0, 40), name="w")
    v = pytensor.shared(np.ones(40), name="v")
    f = jaxify([X], (X * w - v).sum())
    add = pytensor.function([], [], updates={w: w + 1}, mode="CVM")

    def borrowed():
        w.get_value(borrow=True, return_internal_type=True)[-1] += 2

    changes = [lambda: None, add, borrowed, lambda: w.set_value(-w.get_value())]
    for count, change in enumerate(changes):
        change()
        for _ in range(3):
            np.testing.assert_allclose(f(XS), (XS * w.get_value() - 1).sum(), rtol=1e-12)
        assert len(accepted) == count + 2  # v once
    w.set_value(np.ones(3))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"lengths \[3, 40\]"):
            f(XS)


def test_a_value_that_does_not_fit_is_refused_at_every_call():
    w = pytensor.shared(np.ones(40), shape=(40,), name="w")
    f = jaxify([X], X * w)
    f(XS)
    w.container.storage[0] = np.ones((2, 20))
    for _ in range(2):
        with pytest.raises(LoopTypeError, match="shared variable 'w'"):
            f(XS)


def filtered(w):
    """Loss of a filter, a loop, over the rows of what follows from the data alone."""
    rows = pt.exp(pt.sin(w))
    states = pytensor.scan(
        lambda r, s, x: s * 0.5 + (r * x).sum(),
        sequences=[rows],
        outputs_info=[pt.zeros((), dtype="float64")],
        non_sequences=[X],
        return_updates=False,
    )
    # PyTensor's rewrites make this stable, if they see all of it.
    return (states**2).sum() + pt.log(pt.sigmoid(-1000 * (w + 3.0))).sum() * X.sum()


@pytest.mark.slow
def test_native_code_of_what_is_left():
    w = data()
    f, by_xla = (jaxify([X], filtered(w), loops=loops) for loops in ("auto", "xla"))
    slope = pytensor.function([X], pytensor.grad(filtered(w), X), mode=Mode("py", "fast_run"))
    for shift in (0.0, 1.0):
        w.set_value(w.get_value() + shift)
        np.testing.assert_allclose(f(XS), by_xla(XS), rtol=1e-12)
        np.testing.assert_allclose(jax.jit(jax.grad(f))(XS), slope(XS), rtol=1e-10)
    assert any(line.startswith("native code for shapes") for line in f.remarks), f.remarks
    said = str(loopax.explain(f))
    assert "once for each value of w" in said and "exp(" in said.partition("once for each")[2]
