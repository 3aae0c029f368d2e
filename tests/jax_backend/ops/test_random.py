"""Random variables as ops: shapes, dtypes, keys, derivatives, what is refused, and draws on the host."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
import pytest
from pytensor.gradient import disconnected_grad
from pytensor.link.jax.dispatch.random import jax_sample_fn
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import random_generator_type
from scipy import stats

from loopax import DynamicShapeError, LoopTypeError, UnsupportedOpError, cond, jaxify, scan
from loopax.jax_backend.ops.distributions.registry import find_family
from tests.support.compare import FAST_COMPILE

pytestmark = pytest.mark.one_stack

RNG = random_generator_type("rng")
KEY = jax.random.key(30)
R = pt.random


def draw(distribution, *parameters, **options):
    return distribution(*parameters, rng=RNG, return_next_rng=True, **options)[1]


def drawn(*variables, key=KEY, **options):
    """What one program draws for these variables."""
    return [np.asarray(x) for x in jaxify([RNG], [*variables], **options)(key)]


# -- shapes and dtypes -----------------------------------------------------------------------------------

COLUMN, ROW = np.full((3, 1), 2.0), np.array([1.0, 2.0])
COVARIANCES = np.stack([np.eye(2), 2 * np.eye(2)])
PS = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
SHAPES = {
    "no parameter has a shape": draw(R.normal),
    "size ()": draw(R.normal, size=()),
    "a size": draw(R.normal, 0.0, 1.0, size=(3, 2)),
    "a size of nothing": draw(R.gamma, 1.0, scale=1.0, size=(0, 2)),
    "parameters broadcast": draw(R.normal, COLUMN, ROW),
    "parameters broadcast to a size": draw(R.binomial, 10, ROW / 4, size=(3, 2)),
    "integer parameters": draw(R.exponential, np.array([1, 2])),
    "float32": draw(R.gamma, np.float32(2), scale=np.float32(1), size=(2,), dtype="float32"),
    "three parameters": draw(R.triangular, 0.0, COLUMN, ROW + 3),
    "bool to int64": draw(R.bernoulli, ROW / 2),
    "small integers": draw(ptr.IntegersRV(dtype="int8"), [0, 5], 100),
    "one distribution": draw(R.dirichlet, ROW),
    "a size of vectors": draw(R.dirichlet, ROW, size=(3,)),
    "a batch of vectors": draw(R.dirichlet, COLUMN * ROW),
    "a batch with a size": draw(R.dirichlet, COLUMN * ROW, size=(4, 3)),
    "normal vectors": draw(R.multivariate_normal, np.zeros(2), np.eye(2), size=(3,)),
    "a batch of covariances": draw(R.multivariate_normal, np.zeros((3, 1, 2)), COVARIANCES),
    "one mean of each": draw(R.multivariate_normal, np.zeros(2), COVARIANCES, size=(4, 2)),
    "counts": draw(R.multinomial, 5, PS[0], size=(4,)),
    "batches of counts": draw(R.multinomial, np.array([[5], [6], [7]]), PS),
    "outcomes": draw(R.categorical, PS),
    "outcomes of one": draw(R.categorical, PS[0], size=(2, 5)),
    "an outcome": draw(R.categorical, PS[0]),
    "a permuted range": draw(R.permutation, 5),
    "permuted rows": draw(R.permutation, np.ones((3, 2), "float32")),
    "an item": draw(R.choice, np.arange(5.0)),
    "items": draw(R.choice, 5, size=(2, 3)),
    "items once": draw(R.choice, np.ones((5, 2)), size=(2, 2), replace=False),
    "weighted items once": draw(R.choice, 3, size=(2,), replace=False, p=PS[1]),
}


def test_shapes_and_dtypes_are_those_of_pytensor():
    expected = pytensor.function([RNG], list(SHAPES.values()), mode=FAST_COMPILE)(
        np.random.default_rng(1)
    )
    actual = jax.eval_shape(jaxify([RNG], list(SHAPES.values())), KEY)
    for name, x, y in zip(SHAPES, actual, expected, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype), name


def test_a_size_from_the_shape_and_from_the_value_of_an_input():
    x, n = pt.dmatrix("x"), pt.lscalar("n")
    of_shape = jaxify([RNG, x], draw(R.normal, size=(x.shape[0] + 1, 2)))
    assert of_shape(KEY, np.ones((3, 2))).shape == (4, 2)
    of_value = jaxify([RNG, n], draw(R.normal, size=(n,)))
    assert of_value(KEY, 3).shape == (3,) and of_value(KEY, 5).shape == (5,)
    with pytest.raises(DynamicShapeError, match=r"argument 1\), of which only a tracer arrives"):
        jax.jit(of_value)(KEY, 3)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((4,), r"has the size \(4,\), to which its parameter 'mu' .* \(3,\)"),
        ((3, 1), r"has the size \(3, 1\), to which its parameter 'mu'"),
        ((-1,), r"has the size \(-1,\): lengths must be 0 or more"),
        (None, r"batch shapes that do not broadcast: \(3,\) of 'mu'.* \(2,\) of 'sigma'"),
    ],
)
def test_shapes_that_do_not_broadcast(size, message):
    mu, sigma = pt.dvector("mu"), pt.dvector("sigma")
    parameters = (mu, 1.0) if size else (mu, sigma)
    length = pt.lvector("length") if size else None
    sized = pt.specify_shape(length, (len(size),)) if size else None
    inputs = [RNG, *([mu] if size else [mu, sigma]), *([length] if size else [])]
    values = [np.zeros(3), *([] if size else [np.ones(2)]), *([np.array(size)] if size else [])]
    with pytest.raises(LoopTypeError, match=message):
        jaxify(inputs, draw(R.normal, *parameters, size=sized))(KEY, *values)


# -- keys ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_draw_is_a_function_of_its_key():
    mu = pt.dscalar("mu")
    next_rng, first = R.normal(mu, 1.0, size=2, rng=RNG, return_next_rng=True)
    second = R.normal(mu, 1.0, size=2, rng=next_rng, return_next_rng=True)[1]
    again, other = draw(R.normal, mu, 1.0, size=2), draw(R.uniform, mu, 1.0, size=2)
    f = jaxify([RNG, mu], [first, second, again, other, next_rng])
    a, b, c, _, following = f(KEY, 0.0)
    assert (a == c).all() and not (a == b).any()
    assert following.dtype == KEY.dtype and following.shape == () and following != KEY
    assert (f(KEY, 0.0)[0] == a).all() and (jax.jit(f)(KEY, 0.0)[0] == a).all()
    assert (f(following, 0.0)[0] == b).all()
    assert not (f(jax.random.key(31), 0.0)[0] == a).any()
    # The row of a batch is what its key gives alone, and rows differ.
    keys = jax.random.split(KEY, 5)
    rows = jax.vmap(f, in_axes=(0, None))(keys, 0.0)[0]
    assert (rows[3] == f(keys[3], 0.0)[0]).all() and np.unique(rows).size == 10


def test_in_place_variants_are_the_same():
    node = draw(R.poisson, 3.0, size=10).owner
    in_place = type(node.op)(**{**node.op._props_dict(), "inplace": True})
    first, second = drawn(node.outputs[1], in_place.make_node(*node.inputs).outputs[1])
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_what_is_drawn_in_parts_uses_its_key_once():
    """Two parts of one key would be the same noise: the ratio of a beta draw would be constant."""
    programs = [
        draw(R.beta, 2.0, 2.0, size=50),
        draw(R.t, 3.0, size=50),
        draw(R.wald, 1.0, 1.0, size=50),
    ]
    for x in drawn(*programs):
        assert np.unique(x).size == 50


@pytest.mark.slow
def test_keys_of_another_kind():
    programs = [
        draw(R.poisson, [2.0, 30.0], size=(500, 2)),
        draw(R.gamma, 2.0, scale=1.0, size=500),
    ]
    counts, gammas = drawn(*programs, key=jax.random.key(1, impl="rbg"))
    assert abs(counts.mean(0) - [2, 30]).max() < 1
    assert stats.kstest(gammas, stats.gamma(2).cdf).pvalue > 1e-4


def test_in_loops_and_branches():
    steps = pt.lscalar("steps")

    def step(carry, _):
        rng, x = carry
        rng, e = R.normal(rng=rng, return_next_rng=True)
        rng, k = R.poisson(pt.exp(e), rng=rng, return_next_rng=True)
        return (rng, x + e), (e, k)

    (_, last), (noise, counts) = scan(step, (RNG, pt.zeros(())), None, length=6)
    total, es, ks = drawn(last, noise, counts)
    np.testing.assert_allclose(total, es.sum())
    assert np.unique(es).size == 6 and ks.dtype == np.int64
    positive, negative = draw(R.halfnormal, 0.0, 1.0), -draw(R.exponential, 1.0)
    branches = (lambda: positive + 0.0), (lambda: negative + 0.0)
    f = jaxify([RNG, steps], cond(steps > 0, *branches))
    assert f(KEY, 1) > 0 > f(KEY, -1)


def test_float32_programs():
    with pytensor.config.change_flags(floatX="float32"):
        half = np.float32(0.5)
        programs = [
            draw(R.normal, half, half, size=2000),
            draw(R.vonmises, np.float32(0), np.float32(300), size=2000),
            draw(R.wald, half, half, size=2000),
            draw(R.binomial, 100, half, size=2000),
        ]
    normal, angle, wald, counts = drawn(*programs)
    assert normal.dtype == angle.dtype == wald.dtype == np.float32 and counts.dtype == np.int64
    for xs, law in [
        (normal, stats.norm(0.5, 0.5)),
        (angle, stats.vonmises(300)),
        (wald, stats.invgauss(1, scale=0.5)),
    ]:
        assert stats.kstest(xs, law.cdf).pvalue > 1e-4
    assert abs(counts.mean() - 50) < 1 and abs(counts.std() - 5) < 0.5


# -- derivatives -----------------------------------------------------------------------------------------

# A draw moves with a parameter so that its rank stays: dx = -(dF / dtheta) / f. Families of one draw, by
# rejection, by a root, by an inverse.
PATHWISE = {
    "normal": ((0.3, 2.0), stats.norm),
    "gamma": ((1.7, 0.5), lambda a, s: stats.gamma(a, scale=s)),
    "weibull": ((1.7,), stats.weibull_min),
    "pareto": ((1.7, 0.5), lambda b, s: stats.pareto(b, scale=s)),
    "triangular": ((-1.0, 0.5, 2.0), lambda a, m, b: stats.triang((m - a) / (b - a), a, b - a)),
    "truncexpon": ((1.5, 0.2, 2.0), stats.truncexpon),
    "vonmises": ((0.0, 2.5), lambda m, k: stats.vonmises(k, m)),
    "wald": ((1.5, 0.7), lambda m, s: stats.invgauss(m / s, scale=s)),
}


@pytest.mark.slow
def test_derivatives_of_draws():
    thetas = [pt.dvector(name) for name in PATHWISE]
    programs = []
    for name, theta in zip(PATHWISE, thetas, strict=True):
        *parameters, last = [theta[k] for k in range(len(PATHWISE[name][0]))]
        options = {"scale": last} if name == "gamma" else {}
        last = () if options else (last,)
        programs.append(draw(getattr(R, name), *parameters, *last, size=(40,), **options))
    f = jaxify([RNG, *thetas], programs)
    values = [jnp.asarray(parameters) for parameters, _ in PATHWISE.values()]

    @jax.jit
    def derivatives(*values):
        """The draws; for k = 0, 1, 2, their derivatives along the k-th parameter; those of their sums."""

        def along(tangents):
            return jax.jvp(lambda *v: f(KEY, *v), values, tangents)[1]

        places = tuple(range(len(values)))
        sums = jax.grad(lambda *v: sum(x.sum() for x in f(KEY, *v)), argnums=places)(*values)
        return f(KEY, *values), jax.vmap(along)(tuple(jnp.eye(3, len(v)) for v in values)), sums

    draws, along, sums = derivatives(*values)
    for at, (name, (theta, law)) in enumerate(PATHWISE.items()):
        for k in range(len(theta)):
            xs, slopes = np.asarray(draws[at]), np.asarray(along[at][k])
            h = 1e-5 * np.eye(len(theta))[k]
            change = law(*(theta + h)).cdf(xs) - law(*(theta - h)).cdf(xs)
            expected = -change / 2e-5 / law(*theta).pdf(xs)
            np.testing.assert_allclose(slopes, expected, rtol=2e-4, atol=1e-5, err_msg=name)
            np.testing.assert_allclose(sums[at][k], slopes.sum(), rtol=1e-8, err_msg=name)


@pytest.mark.slow
def test_derivatives_of_expectations_of_draws_made_of_two():
    """E[beta] = a / (a + b), Var[t] = scale^2 df / (df - 2), E[dirichlet] = alpha / sum."""
    a = pt.dscalar("a")
    programs = [
        draw(R.beta, a, 2.0, size=4000).mean(),
        (draw(R.t, 0.0 + a, 0.0, 1.0, size=4000) ** 2).mean(),
        draw(R.dirichlet, pt.stack([a, a * 0 + 1, a * 0 + 2]), size=4000)[:, 0].mean(),
    ]
    f = jaxify([RNG, a], programs)
    for x, expected, tolerance in zip(
        jax.jacrev(f, argnums=1)(KEY, 9.0),
        [2 / 121, -2 / 49, 3 / 144],
        [2e-3, 2e-2, 3e-3],
        strict=True,
    ):
        assert abs(x - expected) < tolerance


@pytest.mark.slow
def test_derivatives_at_the_edges_are_finite():
    a = pt.dscalar("a")
    programs = [
        draw(R.triangular, a, a, a + 1.0, size=200),
        draw(R.weibull, a + 1000.0, size=200),
        draw(R.truncexpon, a + 1e-9, size=200),
        draw(R.halfnormal, a, a, size=200),
        draw(R.vonmises, a, a, size=200),
    ]
    f = jaxify([RNG, a], sum(x.sum() for x in programs))
    assert np.isfinite(jax.jit(jax.grad(f, argnums=1))(KEY, 0.0))


@pytest.mark.slow
def test_counts_have_no_derivative_and_are_no_obstacle_to_one():
    p = pt.dscalar("p")
    counts = draw(R.binomial, 40, p, size=3) + draw(R.categorical, pt.stack([p, 1 - p]), size=3)
    value = jaxify([RNG, p], (counts * p).sum())
    actual, slope = jax.jit(jax.value_and_grad(value, argnums=1))(KEY, 0.5)
    np.testing.assert_allclose(slope, actual / 0.5)


# -- invalid parameters ----------------------------------------------------------------------------------

NAN, NONE = np.nan, np.iinfo(np.int64).min
INVALID = {
    "normal": ((0.0, -1.0), "scale >= 0"),
    "uniform": ((1.0, 0.0), "0 <= high - low"),
    "triangular": ((0.0, 2.0, 1.0), "mode <= right"),
    "gengamma": ((-1.0, 1.0, 1.0), "alpha / p > 0"),
    "vonmises": ((0.0, -1.0), "kappa >= 0"),
    "wald": ((0.0, 1.0), "mean > 0"),
    "beta": ((0.0, 1.0), "alpha > 0"),
    "t": ((0.0, 0.0, 1.0), "df > 0"),
    "bernoulli": ((1.5,), "0 <= p <= 1"),
    "poisson": ((-1.0,), "0 <= lam"),
    "binomial": ((-1.0, 0.5), "n >= 0"),
    "geometric": ((0.0,), "0 < p <= 1"),
    "nbinom": ((0.0, 0.5), "n > 0"),
    "betabinom": ((2.5, 1.0, 1.0), "n >= 0, whole"),
    "hypergeometric": ((2.0, 3.0, 6.0), r"nsample <= ngood \+ nbad"),
    "integers": ((3, 3), "low < high"),
    "categorical": (([0.5, 0.6],), "p >= 0, with sum 1"),
    "dirichlet": (([0.5, -1.0],), "alphas >= 0"),
    "multinomial": ((3, [0.7, 0.6, 0.1]), r"p >= 0, with sum\(p\[:-1\]\) <= 1"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_parameters_that_are_known(name):
    parameters, message = INVALID[name]
    with pytest.raises(ValueError, match=rf"is a draw by .* must satisfy {message}"):
        jax.eval_shape(jaxify([RNG], draw(getattr(R, name), *parameters)), KEY)


@pytest.mark.slow
def test_invalid_parameters_that_are_not_known_give_no_number():
    """And in a batch only where they are; valid ones next to them are drawn.

    One family for each algorithm: a loop that waits for an acceptance must end.
    """
    names = ("normal", "vonmises", "poisson", "hypergeometric", "integers")
    inputs, programs, values = [], [], []
    for name in (*names, "categorical", "dirichlet", "multinomial"):
        parameters, *_ = INVALID[name]
        given = [pt.as_tensor(np.asarray(x)).type() for x in parameters]
        inputs += given
        values += [np.asarray(x) for x in parameters]
        programs.append(draw(getattr(R, name), *given))
    scale = pt.dvector("scale")
    batch = draw(R.gamma, 2.0, scale=scale)
    *actual, mixed = jaxify([RNG, *inputs, scale], [*programs, batch])(
        KEY, *values, np.array([1.0, -1.0])
    )
    for x in actual:
        expected = NAN if x.dtype.kind == "f" else NONE
        np.testing.assert_array_equal(x, np.full(x.shape, expected))
    assert mixed[0] > 0 and np.isnan(mixed[1])


def test_nan_parameters():
    normal, several = drawn(draw(R.normal, np.nan, 1.0), draw(R.gamma, [1.0, np.nan], scale=1.0))
    assert np.isnan(normal) and list(np.isnan(several)) == [False, True]
    with pytest.raises(ValueError, match="0 <= lam"):
        drawn(draw(R.poisson, np.nan))


def test_choices_that_cannot_be_made():
    items, p = np.arange(3), np.array([1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"\(4,\) of 3 items cannot be chosen without replacement"):
        drawn(draw(R.choice, items, size=(4,), replace=False))
    (few,) = drawn(draw(R.choice, items.astype(float), size=(2,), replace=False, p=p))
    assert np.isnan(few).all()  # two different ones of one that is possible
    counts = ptr.PermutationRV(signature="()->(x)", dtype="int64")
    two = counts.make_node(RNG, None, pt.as_tensor(np.array([2, 3]))).outputs[1]
    with pytest.raises(ValueError, match=r"permutations of \[2, 3\] items do not form an array"):
        drawn(two)


# -- whose sampler ---------------------------------------------------------------------------------------


class MyNormal(ptr.NormalRV):
    """Normal in name only."""

    @classmethod
    def rng_fn(cls, rng, loc, scale, size):
        return np.asarray(rng.normal(loc, scale, size)) * 0 + loc


class Triple(RandomVariable):
    """A vector that nobody has a sampler for."""

    name = "triple"
    signature = "()->(3)"
    dtype = "floatX"

    @classmethod
    def rng_fn(cls, rng, x, size):
        shape = np.shape(x) if size is None else size
        return np.broadcast_to(x, shape)[..., None] * rng.uniform(size=(*shape, 3))


class Count(RandomVariable):
    name = "count"
    signature = "()->()"
    dtype = "int64"

    @classmethod
    def rng_fn(cls, rng, x, size):
        return rng.poisson(x, size)


def quiet(f, *args):
    """``f(*args)``, without the warning that something runs on the host."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*It is drawn on the host", UserWarning)
        return f(*args)


def test_a_distribution_without_a_sampler_is_drawn_on_the_host():
    x = pt.dvector("x")
    f = jaxify([RNG, x], draw(Triple(), x))
    with pytest.warns(UserWarning, match="class Triple.*no sampler is registered.* on the host"):
        first = f(KEY, np.array([1.0, 100.0]))
    assert first.shape == (2, 3) and (first[1] > 1).any()
    np.testing.assert_array_equal(f(KEY, np.array([1.0, 100.0])), first)
    keys = jax.random.split(KEY, 3)
    rows = quiet(jax.vmap(f, in_axes=(0, None)), keys, np.ones(2))
    assert rows.shape == (3, 2, 3) and np.unique(rows).size == 18
    np.testing.assert_array_equal(rows[1], f(keys[1], np.ones(2)))
    sized = quiet(jaxify([RNG], draw(Triple(), 1.0, size=(4, 2))), KEY)
    assert sized.shape == (4, 2, 3) and sized.dtype == np.float64
    with pytest.raises(UnsupportedOpError, match="class Triple.*no sampler is registered"):
        jaxify([RNG, x], draw(Triple(), x), on_missing="raise")


def test_a_draw_on_the_host_has_no_silent_derivative():
    x, k = pt.dvector("x"), pt.lscalar("k")
    f = jaxify([RNG, x], draw(Triple(), x).sum())
    with pytest.raises(
        UnsupportedOpError, match="on the host has no derivative with respect to its"
    ):
        quiet(jax.grad(f, argnums=1), KEY, np.ones(2))
    detached = jaxify([RNG, x], (disconnected_grad(draw(Triple(), x)) + x[:, None]).sum())
    np.testing.assert_allclose(quiet(jax.grad(detached, argnums=1), KEY, np.ones(2)), 3)
    # of other variables, and of counts
    other = jaxify([RNG, x, k], draw(Triple(), k).sum() * x.sum() + draw(Count(), x).sum())
    assert np.isfinite(quiet(jax.grad(other, argnums=1), KEY, np.ones(2), 2)).all()


def test_a_subclass_with_its_own_draw_is_not_taken_for_its_base():
    mine = MyNormal()
    assert find_family(mine) is None and find_family(ptr.NormalRV()) is not None
    f = jaxify([RNG], draw(mine, 3.0, 2.0, size=4))
    np.testing.assert_array_equal(quiet(f, KEY), np.full(4, 3.0))


def test_a_users_sampler_is_taken_before_ours():
    class Mine(ptr.NormalRV):
        pass

    @jax_sample_fn.register(Mine)
    def sampler(op, node):
        return lambda key, size, dtype, loc, scale: jnp.full(wrong or size, 7 * scale[0, 0])

    wrong = None
    f = jaxify([RNG], draw(Mine(), 1.0, 2.0, size=(2, 3)), on_missing="raise")
    np.testing.assert_array_equal(f(KEY), np.full((2, 3), 14.0))
    wrong = (5,)
    with pytest.raises(LoopTypeError, match=r"The sampler of .* returned an array of shape \(5,\)"):
        jaxify([RNG], draw(Mine(), 1.0, 2.0, size=(2, 3)))(KEY)


def test_families_reach_their_sampler_as_they_are():
    """PyTensor's rewrites for its own JAX mode would write these in terms of other draws."""
    variables = [draw(R.wald, 1.0, 1.0), draw(R.geometric, 0.5), draw(R.invgamma, 2.0, 1.0)]
    nodes = jaxify([RNG], variables).program.graph.apply_nodes
    ops = {n.op.name for n in nodes if isinstance(n.op, RandomVariable)}
    assert ops == {"wald", "geometric", "invgamma"}


@pytest.mark.parametrize("mode", ["NUMBA", pytest.param("FAST_RUN", marks=pytest.mark.slow)])
def test_draws_of_a_compiled_function(mode):
    """Numba's modes wrap a draw of a vector together with its length; others draw in place."""
    variables = [
        draw(R.multivariate_normal, np.zeros(2), np.eye(2)),
        draw(R.exponential, 2.0, size=(2,)),
    ]
    expected = drawn(*variables)
    with pytensor.config.change_flags(cxx=""):
        compiled = jaxify(pytensor.function([RNG], variables, mode=mode))
    for x, y in zip(compiled(KEY), expected, strict=True):
        np.testing.assert_allclose(x, y)
