"""The modes ``LOOPAX`` and ``LOOPAX_NUMBA``: what PyTensor's functions do, they do."""

import copy
import multiprocessing
import pickle
import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor import In
from pytensor.compile.mode import Mode, get_mode
from pytensor.link.jax.linker import JAXLinker
from pytensor.link.numba.linker import NumbaLinker
from pytensor.raise_op import Assert
from pytensor.sparse import csr_from_dense

import loopax
from loopax.pytensor_modes import MODES, BackendLinker, register_with_pytensor

BOTH = pytest.mark.parametrize("mode", MODES)
X = np.array([1.0, -2.0, 3.0])


@BOTH
def test_values_are_pytensors_own_arrays(mode):
    x = pt.dvector("x")
    outputs = [x.sum(), pt.outer(x, x), x > 0, x]
    f = pytensor.function([x], outputs, mode=mode)
    expected = pytensor.function([x], outputs, mode="FAST_COMPILE")(X)
    for actual, wanted in zip(f(X), expected, strict=True):
        assert type(actual) is np.ndarray and actual.flags.writeable
        assert actual.dtype == wanted.dtype and actual.shape == wanted.shape
        np.testing.assert_allclose(actual, wanted, rtol=1e-12)
    assert not np.shares_memory(f(X)[3], X)


@BOTH
def test_one_output_none_and_a_constant(mode):
    x = pt.dvector("x")
    assert pytensor.function([x], x.sum(), mode=mode)(X) == 2.0
    assert pytensor.function([x], [], mode=mode, on_unused_input="ignore")(X) == []
    assert pytensor.function([], pt.constant(3.0), mode=mode)() == 3.0


@BOTH
def test_loops_are_loopaxs(mode):
    x = pt.dvector("x")
    ys = pytensor.scan(lambda x, c: c + x**2, x, pt.zeros(()), return_updates=False)
    f = pytensor.function([x], [ys, pytensor.grad(ys[-1], x)], mode=mode)
    np.testing.assert_allclose(f(X)[0], np.cumsum(X**2))
    np.testing.assert_allclose(f(X)[1], 2 * X)
    np.testing.assert_allclose(f(X[:2])[0], np.cumsum(X[:2] ** 2))
    assert f.vm.function.backend_name == MODES[mode]
    # As `jaxify` reads it, the graph is the one that was written: no rewrite of storage is in the way.
    np.testing.assert_allclose(loopax.jaxify(f)(X)[1], 2 * X)


@BOTH
def test_updates_are_stored(mode):
    n, total = pytensor.shared(np.int64(0), name="n"), pytensor.shared(np.zeros(3), name="total")
    x = pt.dvector("x")
    f = pytensor.function([x], total, updates={n: n + 1, total: total + n * x}, mode=mode)
    np.testing.assert_array_equal(f(X), np.zeros(3))
    np.testing.assert_array_equal(f(X), np.zeros(3))
    np.testing.assert_array_equal(f(X), X)
    assert n.get_value() == 3
    np.testing.assert_array_equal(total.get_value(), 3 * X)
    total.set_value(X)
    np.testing.assert_array_equal(f(X), X)
    only = pytensor.function([], updates={n: n * 2}, mode=mode)
    assert only() in (None, []) and n.get_value() == 8


@BOTH
def test_shared_data_may_change_its_values_and_its_length(mode):
    data = pytensor.shared(X, name="data")
    f = pytensor.function([], (data**2).sum(), mode=mode)
    assert f() == 14
    data.get_value(borrow=True)[0] = 2.0
    assert f() == 17
    data.set_value(np.ones(7))
    assert f() == 7


@BOTH
def test_givens_names_and_in(mode):
    x, y = pt.dvector("x"), pt.dscalar("y")
    scale = pytensor.shared(2.0, name="scale")
    f = pytensor.function([x, In(y, name="factor")], (x * y * scale).sum(), mode=mode)
    assert f(X, 3.0) == f(X, factor=3.0) == f(factor=3.0, x=X) == 12.0
    given = pytensor.function([x, y], (x * scale).sum(), givens={scale: y + 1}, mode=mode)
    assert given(X, 3.0) == 8.0
    x32 = pt.fvector("x32")
    narrow = pytensor.function([In(x32, allow_downcast=True)], x32.sum(), mode=mode)
    assert narrow(X) == 2.0 and narrow(X).dtype == np.float32
    with pytest.raises(TypeError, match="Missing input"):
        f(X)


@BOTH
def test_lengths_that_arguments_make(mode):
    n, x = pt.lscalar("n"), pt.dvector("x")
    f = pytensor.function([n, x], [pt.arange(n), x[:n]], mode=mode)
    for k in (0, 2, 3):
        np.testing.assert_array_equal(f(k, X)[0], np.arange(k))
        np.testing.assert_array_equal(f(k, X)[1], X[:k])


def drawing(mode, seed=1):
    rng = pytensor.shared(np.random.default_rng(seed), name="rng")
    following, draw = rng.normal(size=3)
    return rng, pytensor.function([], draw, updates={rng: following}, mode=mode)


@pytest.mark.sampled(1)
@BOTH
def test_a_shared_generator_is_numpys_at_all_times(mode):
    rng, f = drawing(mode)
    first, second = f(), f()
    assert not np.intersect1d(first, second).size
    assert isinstance(rng.get_value(), np.random.Generator)

    held = rng.get_value()
    third = f()
    rng.set_value(held)  # a state that was kept, restored
    np.testing.assert_array_equal(f(), third)

    rng.set_value(np.random.default_rng(1))
    np.testing.assert_array_equal([f(), f()], [first, second])


@BOTH
def test_a_generator_is_kept_without_an_update(mode):
    rng = pytensor.shared(np.random.Generator(np.random.Philox(3)), name="rng")
    following, draw = rng.normal(size=2)
    f = pytensor.function([], [draw, following], mode=mode)
    (one, state), (same, _) = f(), f()
    np.testing.assert_array_equal(one, same)
    assert isinstance(state.bit_generator, np.random.Philox)
    rng.set_value(state)
    assert (f()[0] != one).all()


def test_draws_of_the_native_mode_are_those_of_native_code():
    rng, f = drawing("LOOPAX_NUMBA")
    expected = np.random.default_rng(1)
    np.testing.assert_array_equal(f(), expected.normal(size=3))
    np.testing.assert_array_equal(f(), expected.normal(size=3))
    assert rng.get_value().bit_generator.state == expected.bit_generator.state


@pytest.mark.sampled(1)
@BOTH
def test_a_copy_has_values_of_its_own(mode):
    a, b = pytensor.shared(np.ones(3), name="a"), pytensor.shared(np.zeros(3), name="b")
    f = pytensor.function([], a * 2, updates={a: a + 1}, mode=mode)
    swapped = f.copy(swap={a: b})
    np.testing.assert_array_equal(swapped(), np.zeros(3))
    np.testing.assert_array_equal(b.get_value(), np.ones(3))
    np.testing.assert_array_equal(a.get_value(), np.ones(3))
    np.testing.assert_array_equal(copy.copy(f)(), 2 * np.ones(3))

    rng, draw = drawing(mode)
    other = pytensor.shared(np.random.default_rng(5), name="other")
    np.testing.assert_array_equal(draw.copy(swap={rng: other})(), drawing(mode, 5)[1]())


@BOTH
def test_pickles_and_profiles(mode, tmp_path):
    x, a = pt.dvector("x"), pytensor.shared(X, name="a")
    f = pytensor.function([x], x @ a, mode=mode, profile=True, name="product")
    assert pickle.loads(pickle.dumps(f))(X) == f(X) == 14
    with open(tmp_path / "profile", "w") as file:
        f.profile.summary(file=file)
    assert "product" in (tmp_path / "profile").read_text()
    again = pickle.loads(pickle.dumps(get_mode(mode)))
    assert again.linker.backend == MODES[mode]


@BOTH
def test_other_types_are_pytensors_too(mode):
    x = pt.dmatrix("x")
    matrix = csr_from_dense(x)
    actual = pytensor.function([x], matrix, mode=mode)(np.diag(X))
    assert scipy.sparse.issparse(actual) and actual.format == "csr"
    np.testing.assert_array_equal(actual.toarray(), np.diag(X))


@BOTH
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_check_raises_its_own_exception(mode):
    x = pt.dvector("x")
    f = pytensor.function([x], Assert("not positive")(x, (x > 0).all()), mode=mode)
    np.testing.assert_array_equal(f(X**2), X**2)
    with pytest.raises(AssertionError, match="not positive"):
        f(X)


@BOTH
def test_the_modes_go_where_modes_go(mode):
    x = pt.dvector("x")
    assert x.sum().eval({x: X}, mode=mode) == 2.0
    assert pytensor.function([x], x.sum(), mode=get_mode(mode))(X) == 2.0
    with pytensor.config.change_flags(mode=mode):
        f = pytensor.function([x], x.sum())
        assert f.maker.linker.backend == MODES[mode] and f(X) == 2.0
    with (
        pytest.raises(ValueError, match="Expected one of"),
        pytensor.config.change_flags(mode=f"NO_{mode}"),
    ):
        pass
    # PyMC builds one like this; fast_run brings PyTensor's own rewrites.
    with_rewrites = Mode(get_mode(mode).linker, get_mode(mode).provided_optimizer)
    assert pytensor.function([x], x.sum(), mode=with_rewrites)(X) == 2.0
    for full in (get_mode(mode).including("fast_run"), Mode(mode.lower(), "fast_run")):
        y = pytensor.scan(lambda x, c: c + x, x, pt.zeros(()), return_updates=False)
        np.testing.assert_array_equal(pytensor.function([x], y, mode=full)(X), np.cumsum(X))


def test_samplers_do_not_take_the_linkers_for_pytensors():
    for mode in MODES:
        assert not isinstance(get_mode(mode).linker, NumbaLinker | JAXLinker)
    register_with_pytensor()  # once more changes nothing
    assert get_mode("LOOPAX").linker.backend == "jax"
    assert repr(BackendLinker("numba")) == "BackendLinker('numba')"


def _result(f, results):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        actual = float(f(np.eye(3)))
    results.put((actual, [str(w.message) for w in said]))


@pytest.mark.sampled(1)
@BOTH
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_xlas_threads(mode):
    x = pt.dmatrix("x")
    f = pytensor.function([x], (x @ x).sum(), mode=mode, name="squares")
    assert f(np.eye(3)) == 3
    processes = multiprocessing.get_context("fork")
    results = processes.Queue()
    child = processes.Process(target=_result, args=(f, results))
    child.start()
    actual, said = results.get()
    child.join()
    assert actual == 3
    if mode == "LOOPAX":
        assert "squares was compiled by backend='jax'" in said[0] and "forkserver" in said[0]
    else:
        assert not said
