"""What goes into a program and comes out of it, type by type."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.sparse
import pytensor.tensor as pt
import pytest
import scipy.sparse
from jax.experimental import checkify
from jax.experimental.sparse import BCOO
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.type_other import NoneConst, NoneTypeT, SliceType
from pytensor.typed_list import TypedListType, getitem, make_list

from loopax import DynamicShapeError, LoopTypeError, jaxify, scan
from tests.support.compare import FAST_COMPILE

X, N = pt.dvector("x"), pt.lscalar("n")
XS = np.array([0.5, -1.0, 2.0])
RNG = random_generator_type(
    "rng"
)  # PyTensor warns where a variable is used twice: one for each test
KEY = jax.random.key(3)
DRAW = RNG.normal(size=3)[1]


@cache
def three_normals():
    return jaxify([RNG], DRAW)


# -- generators -------------------------------------------------------------------------------------------


def test_a_key_of_either_style_and_a_generator():
    f = three_normals()
    expected = np.asarray(f(KEY))
    np.testing.assert_array_equal(f(jax.random.key_data(KEY)), expected)
    np.testing.assert_array_equal(f(np.asarray(jax.random.key_data(KEY))), expected)
    np.testing.assert_array_equal(jax.jit(f)(KEY), expected)
    assert f(jax.random.key(3, impl="rbg")).shape == (3,)


@pytest.mark.parametrize("kind", ["PCG64", "MT19937", "Philox", "SFC64"])
def test_equal_generators_are_equal_keys(kind):
    make = getattr(np.random, kind)
    f = three_normals()
    one, same, other = (np.random.Generator(make(seed)) for seed in (1, 1, 2))
    before = one.bit_generator.state["state"] if kind != "MT19937" else None
    first = np.asarray(f(one))
    np.testing.assert_array_equal(f(same), first)
    assert (np.asarray(f(other)) != first).all()
    if before is not None:
        assert str(one.bit_generator.state["state"]) == str(before)
    same.normal()
    assert (np.asarray(f(same)) != first).all()


def test_what_is_no_key():
    f = three_normals()
    with pytest.raises(
        LoopTypeError, match=r"'rng' \(argument 0\) must be one jax.random key.*\(2,\)"
    ):
        f(jax.random.split(KEY))
    with pytest.raises(
        LoopTypeError, match="must be a jax.random key or a NumPy Generator, got 3 of"
    ):
        f(3)
    with pytest.raises(LoopTypeError, match=r"got float64, shape \(3,\).*jax.random.key\(seed\)"):
        f(XS)


def test_the_next_generator_is_a_key():
    rng = random_generator_type("rng")
    after, x = rng.normal()
    f = jaxify([rng], [after, x, after.normal()[1]])
    key, first, second = f(KEY)
    assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    again, third, _ = f(key)
    assert float(second) == float(third) != float(first) and again.shape == ()


def test_rows_of_keys_are_independent_and_deterministic():
    def step(state, _):
        rng, x = state
        rng, noise = rng.normal()
        return (rng, x + noise), x

    (_, end), walk = scan(step, (RNG, pt.constant(0.0)), length=4)
    f = jaxify([RNG], [end, walk])
    keys = jax.random.split(KEY, 5)
    ends, walks = jax.vmap(f)(keys)
    assert len({float(x) for x in ends}) == 5
    for key, x, row in zip(keys, ends, walks, strict=True):
        np.testing.assert_allclose(f(key)[0], x, rtol=1e-12)
        np.testing.assert_allclose(f(key)[1], row, rtol=1e-12)


def test_a_shared_generator_stays_as_it_is():
    rng = pytensor.shared(np.random.default_rng(1), name="rng")
    after, draw = rng.normal(size=2)
    with pytest.warns(UserWarning, match="same draws"):
        plain = jaxify([], draw)
    np.testing.assert_array_equal(plain(), plain())
    f = jaxify([], draw, updates={rng: after})
    state = str(rng.get_value(borrow=True).bit_generator.state)
    g = f.stateful()
    draws = np.stack([g() for _ in range(4)])
    assert len(np.unique(draws)) == 8
    np.testing.assert_array_equal(draws[0], plain())
    assert str(rng.get_value(borrow=True).bit_generator.state) == state
    many = jax.vmap(f.apply)(f.init_context().replicate(100))[1]
    assert len(np.unique(many)) == 200
    mine = f.init_context().set(rng, np.random.default_rng(1))
    np.testing.assert_array_equal(f.apply(mine)[1], plain())


def test_a_live_generator_moves_on():
    rng = pytensor.shared(np.random.Generator(np.random.MT19937(1)), name="rng")
    after, draw = rng.normal(size=2)
    g = jaxify([], draw, updates={rng: after}).stateful(live=True)
    draws = np.stack([g() for _ in range(4)])
    assert len(np.unique(draws)) == 8
    assert isinstance(rng.get_value().bit_generator, np.random.MT19937)
    assert np.isfinite(pytensor.function([], draw, mode=FAST_COMPILE)()).all()


def test_keys_in_a_file(tmp_path):
    rng = pytensor.shared(np.random.default_rng(1), name="rng")
    after, draw = rng.normal(size=2)
    f = jaxify([], draw, updates={rng: after})
    context, _ = f.apply(f.init_context().replicate(2).set(rng, KEY))
    context.save(tmp_path / "state.npz")
    restored = f.init_context().restore(tmp_path / "state.npz")
    np.testing.assert_array_equal(f.apply(restored)[1], f.apply(context)[1])


def test_a_size_that_is_drawn():
    rng = random_generator_type("rng")
    after, n = rng.poisson(3.0)
    with pytest.raises(DynamicShapeError, match="It depends on a random draw"):
        jaxify([rng], after.normal(size=n)[1])(KEY)


def test_lists_of_generators():
    two = TypedListType(random_generator_type)("two")
    f = jaxify([two], [getitem(two, 1).normal()[1], make_list([getitem(two, 0), getitem(two, 1)])])
    rng, keys = random_generator_type("rng"), jax.random.split(KEY)
    alone = jaxify([rng], rng.normal()[1])
    for given in (keys, list(keys)):
        draw, back = f(given)
        np.testing.assert_array_equal(draw, alone(keys[1]))
        assert len(back) == 2 and (back.data == keys).all()


# -- sparse matrices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["csr", "csc"])
def test_a_shared_sparse_matrix(format):
    dense = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
    w = pytensor.sparse.shared(scipy.sparse.csr_matrix(dense).asformat(format), name="w")
    f = jaxify(
        [X], pytensor.sparse.structured_dot(w, X[:, None]), updates={w: w * pt.constant(2.0)}
    )
    context, out = f.apply(f.init_context(), XS)
    np.testing.assert_allclose(out[:, 0], dense @ XS)
    assert isinstance(context[w], BCOO)
    last, outs = jax.lax.scan(f.apply, f.init_context(), np.stack([XS, XS]))
    np.testing.assert_allclose(outs[1, :, 0], 2 * dense @ XS)
    np.testing.assert_allclose(last[w].todense(), 4 * dense)
    g = f.stateful(live=True)
    g(XS), g(XS)
    assert w.get_value().format == format
    np.testing.assert_allclose(w.get_value().toarray(), 4 * dense)


def test_sparse_matrices_of_a_batch_of_contexts():
    w, d = pytensor.shared(scipy.sparse.csr_matrix(np.eye(3)), name="w"), pt.dmatrix("d")
    f = jaxify([d], pytensor.sparse.structured_dot(w, d), updates={w: w * 2.0})
    many = f.init_context().replicate(4)
    for k in range(2):
        many, out = jax.vmap(f.apply, in_axes=(0, None))(many, np.ones((3, 2)))
        np.testing.assert_array_equal(out, np.full((4, 3, 2), 2.0**k))
    assert many["w"].shape == (4, 3, 3)


def test_a_trace_of_sparse_matrices():
    a = pytensor.sparse.csr_matrix("a", dtype="float64")
    matrix = scipy.sparse.csr_matrix([[0.0, 2.0], [1.0, 0.0]])
    _, rows = scan(lambda state, x: (state * x, state), a, X)
    actual = jaxify([a, X], rows)(matrix, XS)
    expected = pytensor.function([a, X], rows, mode=FAST_COMPILE)(matrix, XS)
    assert len(actual) == len(expected) == 3
    for mine, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine.todense(), theirs.toarray())


# -- scalars, slices, None --------------------------------------------------------------------------------


def test_scalar_variables():
    a, k = ps.float64("a"), ps.int64("k")
    f = jaxify([a, k], [a * 2.0, pt.as_tensor(a) + 1, k + k])
    assert [float(x) for x in f(1.5, 2)] == [3.0, 2.5, 4.0]
    assert [float(x) for x in jax.jit(f)(1.5, 2)] == [3.0, 2.5, 4.0]
    with pytest.raises(LoopTypeError, match="'k' .* must be int64 of rank 0"):
        f(1.5, 2.5)


def test_slices():
    rows, cut = TypedListType(pt.dvector)("rows"), SliceType()("cut")
    f = jaxify([rows, cut], getitem(rows, cut))
    given = np.stack([XS, 2 * XS, 3 * XS])
    for piece in (slice(1, None), slice(None, None, -1), slice(0, 2)):
        np.testing.assert_allclose(np.asarray(f(given, piece)), given[piece])
    with pytest.raises(LoopTypeError, match="must be a slice, got 3 of type int"):
        f(given, 3)
    with pytest.raises(LoopTypeError, match="parts of a slice must be integers that are known"):
        jax.jit(lambda rows, n: f(rows, slice(0, n)))(given, 2)
    actual = jax.jit(lambda rows: f(rows, slice(0, 2)))(given)
    np.testing.assert_allclose(np.asarray(actual), given[:2])


def test_none():
    nothing = NoneTypeT()("nothing")
    f = jaxify([X, nothing], [X, NoneConst])
    x, none = f(XS, None)
    np.testing.assert_allclose(x, XS)
    assert none is None
    with pytest.raises(LoopTypeError, match="'nothing' .* must be None, got 3"):
        f(XS, 3)


@pytest.mark.slow
def test_a_traced_function_of_all_of_them():
    def f(rng, matrix, cut, x):
        _, draw = rng.normal(size=3)
        return draw + pytensor.sparse.structured_dot(matrix, x[:, None])[:, 0], getitem(
            make_list([x, 2 * x]), cut
        )

    g = jaxify(f)
    sums, rows = g(KEY, scipy.sparse.csc_matrix(np.eye(3)), slice(1, 2), XS)
    np.testing.assert_allclose(sums, three_normals()(KEY) + XS)
    np.testing.assert_allclose(np.asarray(rows), 2 * XS[None])
    bcoo = BCOO.fromdense(jnp.eye(3))
    np.testing.assert_allclose(
        g(np.random.default_rng(0), bcoo, slice(1, 2), XS)[1].data[0], 2 * XS
    )


# -- Python's numbers ------------------------------------------------------------------------------------


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "complex64", "int64", "int32", "int8", "uint8"]
)
def test_a_python_number_under_jit_is_taken_as_by_a_direct_call(dtype):
    x = pt.scalar("x", dtype=dtype)
    f = jaxify([x], x)
    for number in (3, True) if dtype[0] in "iu" else (3, 0.5):
        wanted = f(number)
        for call in (jax.jit(f), lambda n: jax.jit(f)(jnp.asarray(n)), lambda n: f(jnp.asarray(n))):
            actual = call(number)
            assert (actual.dtype, actual.item()) == (dtype, wanted.item())


def test_a_python_number_under_jit_that_does_not_fit():
    x = pt.scalar("x", dtype="int8")
    f = jaxify([x], x)
    with pytest.raises(LoopTypeError, match="int8 of rank 0.*float64.*would lose something"):
        jax.jit(f)(3.0)
    with pytest.raises(LoopTypeError, match="Input 'x'.*must be int8, from -128 to 127"):
        f(jnp.asarray(300))
    error, _ = jax.jit(checkify.checkify(f))(300)
    assert "Input 'x' (argument 0) must be int8, from -128 to 127" in error.get()
    strong = jnp.ones((), dtype="int64")
    with pytest.raises(LoopTypeError, match="int8 of rank 0.*int64.*would lose something"):
        jax.jit(f)(strong)


def test_a_traced_function_sees_python_numbers_as_in_a_direct_call():
    f = jaxify(lambda x: x * np.float32(0.5))
    assert f(3.0).dtype == jax.jit(f)(3.0).dtype == "float64"
    with pytensor.config.change_flags(floatX="float32"):
        g = jaxify(lambda x: x * np.float32(0.5))
        assert g(3.0).dtype == jax.jit(g)(3.0).dtype == "float32"
        assert g(3).dtype == jax.jit(g)(3).dtype == "float64"


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_scalar_result_is_a_python_number(backend):
    f = jaxify([X], [X.sum(), X.size, X.any(), X], backend=backend)
    total, size, some, vector = f(XS)
    assert (float(total), int(total), int(size), bool(some)) == (1.5, 1, 3, True)
    assert [type(g(total)) for g in (float, int, bool)] == [float, int, bool]
    assert list(range(size)) == [0, 1, 2]
    for convert in (float, int):
        with pytest.raises(TypeError, match="calar"):
            convert(vector)
    pair = jaxify([X], X.sum(), backend=backend)
    assert float(pair(XS)) == 1.5 and f"{float(pair(XS)):.1f}" == "1.5"


def test_floats_of_few_bits_are_floats_of_more():
    """Every bfloat16 is a float32 and a float64; no float is an integer, and a key is no number."""
    f, g = jaxify([X], (X**2).sum()), jaxify([(k := pt.lvector("k"))], k.sum())
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn):
        x = jnp.asarray([0.5, 2.0], dtype)
        np.testing.assert_allclose(f(x), 4.25)
        slope = jax.grad(f)(x)
        assert slope.dtype == dtype
        np.testing.assert_allclose(slope.astype(float), [1.0, 4.0])
        with pytest.raises(LoopTypeError, match="must be int64"):
            g(x)
    with pytest.raises(LoopTypeError, match="key<fry>"):
        f(jax.random.split(KEY, 3))


@pytest.mark.parametrize("options", [{"backend": "numba"}, {"loops": "xla"}])
def test_masked_arrays(options):
    """A mask over NaN says nothing new: PyMC stores data with gaps so. Masked numbers are refused."""
    gaps = np.ma.masked_invalid([1.0, np.nan, 2.0])
    shared = pytensor.shared(np.zeros(3), name="data")
    shared.set_value(gaps, borrow=True)
    total = pt.switch(pt.isnan(X), 0, X).sum()
    of_shared = pt.switch(pt.isnan(shared), 0, shared).sum()
    np.testing.assert_array_equal(jaxify([X], total, **options)(gaps), 3.0)
    np.testing.assert_array_equal(jaxify([], of_shared, **options)(), 3.0)
    hidden = np.ma.masked_array([1.0, 5.0, 2.0], [0, 1, 0])
    shared.set_value(hidden, borrow=True)
    for f, args in (
        (jaxify([X], total, **options), [hidden]),
        (jaxify([], of_shared, **options), []),
    ):
        with pytest.raises(LoopTypeError, match="is a masked array"):
            f(*args)
    np.testing.assert_array_equal(jaxify([X], total, **options)(np.ma.masked_array(XS)), XS.sum())


@pytest.mark.parametrize("loops", ["xla", "native"])
def test_lists_that_jax_traces(loops):
    """A list of numbers is an array under a transformation, as in a direct call."""
    x, m = pt.dvector("x"), pt.dmatrix("m")
    f, g = jaxify([x], (x**2).sum(), loops=loops), jaxify([m], (m**2).sum(), loops=loops)
    assert f([1.0, 2.0]) == jax.jit(f)([1.0, 2.0]) == jax.jit(f)((1, 2.0)) == 5.0
    assert jax.grad(f)([1.0, 2.0]) == [2.0, 4.0]
    assert jax.jit(g)([[1.0, 2.0], [3.0, 4.0]]) == jax.jit(g)([np.array([1.0, 2.0]), (3, 4)]) == 30
    for call in (g, jax.jit(g)):
        with pytest.raises(LoopTypeError, match="'m' .* rows of unequal lengths"):
            call([[1.0, 2.0], [3.0]])
    with pytest.raises(LoopTypeError, match="It has 1 axis more"):
        jax.jit(f)([[1.0], [2.0]])
