"""The simulations in examples/, each over 1,000 keys, against exact results.

The seeds are fixed, so a result is the same at each run. A mean over independent runs may differ from
the exact one by 4 standard errors, estimated from these runs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.op import RandomVariable
from scipy import stats

from examples import epidemic, gibbs_sampler, particle_filter, random_walk
from loopax import jaxify
from loopax.demo.nile import PUBLISHED_VARIANCES, read_flow
from loopax.ir import Scan
from tests.support.compare import primitives

pytestmark = pytest.mark.one_stack

KEYS = jax.random.split(jax.random.key(17), 1000)
FLOW = read_flow()[1]
EXAMPLES = (random_walk, epidemic, particle_filter, gibbs_sampler)


def over_keys(function, *inputs):
    """Its outputs for every key, as NumPy arrays; keys stay keys."""
    return jax.tree.map(on_host, batched(function, len(inputs))(KEYS, *inputs))


def batched(function, n_inputs):
    return jax.jit(jax.vmap(function, in_axes=(0, *[None] * n_inputs)))


def on_host(x):
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)


def assert_mean(samples, exact):
    """`samples` are independent along their first axis, with these means."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    distance = abs(samples.mean(axis=0) - exact) / error
    assert np.max(distance) < 4, (samples.mean(axis=0), exact, error)


def assert_of_their_keys(function, *inputs):
    """Each row is that of its key, wherever in the batch that is."""
    actual, turned = (function(keys, *inputs) for keys in (KEYS, KEYS[::-1]))
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(turned), strict=True):
        np.testing.assert_allclose(x, y[::-1], rtol=1e-12)


def assert_independent(rows):
    """No row is that of another key, and neighbours are not correlated."""
    flat = rows.reshape(len(rows), -1)
    assert len(np.unique(flat, axis=0)) == len(flat)
    centred = flat - flat.mean(axis=0)
    products = (centred[1:] * centred[:-1]).mean(axis=1)
    assert abs(products.mean()) < 4 * products.std() / np.sqrt(len(products))


# -- the random walk -------------------------------------------------------------------------------

STEPS, START, DRIFT, SIGMA = 40, 2.0, 0.1, 0.5


@pytest.fixture(scope="module")
def walk():
    return random_walk.build(STEPS)


@pytest.fixture(scope="module")
def walks(walk):
    return over_keys(walk, START, DRIFT, SIGMA)


def test_walks_have_the_moments_of_the_model(walks):
    t = np.arange(1, STEPS + 1)
    path = walks["path"]
    assert path.shape == (1000, STEPS)
    centred = path - (START + t * DRIFT)
    assert_mean(centred, 0.0)
    assert_mean(centred**2, t * SIGMA**2)
    assert_mean(centred[:, 9] * centred[:, 29], 10 * SIGMA**2)
    noise = (np.diff(path, axis=1, prepend=START) - DRIFT) / SIGMA
    assert stats.kstest(noise.ravel(), "norm").pvalue > 0.01
    assert_independent(noise)
    np.testing.assert_array_equal(walks["end"], path[:, -1])


def test_no_two_steps_of_the_walks_have_one_key(walks):
    keys = np.asarray(jax.random.key_data(walks["generators"].data))
    assert keys.shape[:2] == (1000, STEPS)
    assert len(np.unique(keys.reshape(-1, keys.shape[-1]), axis=0)) == 1000 * STEPS


def test_a_walk_is_taken_up_from_its_trace_of_generators(walk, walks):
    one = walk(KEYS[7], START, DRIFT, SIGMA)
    np.testing.assert_allclose(one["path"], walks["path"][7], rtol=1e-12)
    tail = random_walk.build(STEPS - 25)(one["generators"][24], one["path"][24], DRIFT, SIGMA)
    np.testing.assert_allclose(tail["path"], one["path"][25:], rtol=1e-12)
    assert tail["generators"][-1] == one["generators"][-1]


def test_derivatives_along_the_walks(walk, walks):
    def end(key, drift, sigma):
        return walk(key, START, drift, sigma)["end"]

    by_drift, by_sigma = over_keys(jax.grad(end, argnums=(1, 2)), DRIFT, SIGMA)
    np.testing.assert_allclose(by_drift, STEPS, rtol=1e-12)
    noise = (walks["end"] - START - STEPS * DRIFT) / SIGMA
    np.testing.assert_allclose(by_sigma, noise, rtol=1e-9, atol=1e-9)


def test_a_batch_of_walks_is_one_loop(walk):
    batch = jax.vmap(walk, in_axes=(0, None, None, None))
    assert primitives(jax.make_jaxpr(batch)(KEYS, START, DRIFT, SIGMA))["scan"] == 1


# -- the epidemic ----------------------------------------------------------------------------------

DAYS = 25


@pytest.fixture(scope="module")
def outbreaks():
    return batched(epidemic.build(DAYS), 4)


def exact_epidemic(susceptible, infectious, contact, recovery):
    """The law of the final size, (susceptible + 1,), and of the infectious on each day, (DAYS, n + 1)."""
    n = susceptible + infectious
    law = np.zeros((susceptible + 1, n + 1))  # of (susceptible, infectious)
    law[susceptible, infectious] = 1.0
    days = []
    for _ in range(DAYS):
        new = np.zeros_like(law)
        for (s, i), mass in np.ndenumerate(law):
            if mass:
                infected = stats.binom.pmf(np.arange(s + 1), s, -np.expm1(-contact * i / n))
                recovered = stats.binom.pmf(np.arange(i + 1), i, -np.expm1(-recovery))
                for k, p in enumerate(infected):
                    new[s - k, k : i + k + 1] += mass * p * recovered[::-1]
        law = new
        days.append(law.sum(axis=0))
    return law.sum(axis=1)[::-1], np.stack(days)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("contact", "recovery"), [(0.8, 0.3), (1.5, np.inf)], ids=["SIR", "Reed-Frost"]
)
def test_outbreaks_have_the_exact_law(outbreaks, contact, recovery):
    actual = jax.tree.map(np.asarray, outbreaks(KEYS, 7, 2, contact, recovery))
    size, prevalence = exact_epidemic(7, 2, contact, recovery)
    np.testing.assert_allclose([size.sum(), *prevalence.sum(axis=1)], 1.0)
    counts = np.bincount(actual["size"], minlength=8)
    assert stats.chisquare(counts, 1000 * size).pvalue > 0.01
    # Days on which somebody is infectious often enough for a standard error to mean something.
    for day in np.flatnonzero(prevalence[:, 1:].sum(axis=1) > 0.02):
        assert_mean(actual["infectious"][:, day], prevalence[day] @ np.arange(10))
    np.testing.assert_array_equal(actual["cases"].sum(axis=1), actual["size"])


def test_a_large_epidemic_follows_the_deterministic_model(outbreaks):
    susceptible, infectious, contact, recovery = 990_000, 10_000, 0.5, 0.2
    actual = jax.tree.map(np.asarray, outbreaks(KEYS, susceptible, infectious, contact, recovery))
    s, i, cases, prevalence = susceptible, infectious, [], []
    for _ in range(DAYS):
        infected = s * -np.expm1(-contact * i / (susceptible + infectious))
        s, i = s - infected, i + infected + i * np.expm1(-recovery)
        cases.append(infected)
        prevalence.append(i)
    np.testing.assert_allclose(actual["cases"].mean(axis=0), cases, rtol=2e-3)
    np.testing.assert_allclose(actual["infectious"].mean(axis=0), prevalence, rtol=2e-3)
    p = -np.expm1(-contact * infectious / (susceptible + infectious))
    first = (actual["cases"][:, 0] - susceptible * p) / np.sqrt(susceptible * p * (1 - p))
    assert stats.kstest(first, "norm").pvalue > 0.01
    assert_independent(actual["cases"].astype(float))


def test_an_outbreak_is_a_function_of_its_key(outbreaks):
    assert_of_their_keys(outbreaks, 200, 5, 0.6, 0.3)


# -- the particle filter ---------------------------------------------------------------------------

YEARS, PARTICLES = 30, 100


@pytest.fixture(scope="module")
def nile_filters():
    return batched(particle_filter.build(PARTICLES), 3)


@pytest.fixture(scope="module")
def filters(nile_filters):
    return jax.tree.map(np.asarray, nile_filters(KEYS, FLOW[:YEARS], *PUBLISHED_VARIANCES))


def kalman(flow, observation_variance, level_variance):
    """log p(flow[1:] | flow[0]), and mean and variance of the level given the flows so far."""
    mean, variance, total, means, variances = flow[0], observation_variance, 0.0, [], []
    for value in flow[1:]:
        variance = variance + level_variance
        total += stats.norm.logpdf(value, mean, np.sqrt(variance + observation_variance))
        gain = variance / (variance + observation_variance)
        mean, variance = mean + gain * (value - mean), (1 - gain) * variance
        means.append(mean)
        variances.append(variance)
    return total, np.array(means), np.array(variances)


@pytest.mark.slow
def test_the_particle_filter_estimates_the_likelihood_without_bias(filters):
    exact, *_ = kalman(FLOW[:YEARS], *PUBLISHED_VARIANCES)
    ratio = np.exp(filters["log_likelihood"] - exact)
    assert (
        0.1 < ratio.std() < 1.0
    )  # an estimate, and one whose mean over 1,000 filters means something
    assert_mean(ratio, 1.0)


def test_the_particles_follow_the_kalman_filter(filters):
    total, mean, variance = kalman(FLOW[:YEARS], *PUBLISHED_VARIANCES)
    error = (filters["level"] - mean) / np.sqrt(variance)
    assert error.std(axis=0).max() < 5 / np.sqrt(PARTICLES)
    assert_independent(error)
    # As a ratio of two estimates the level has a bias; weighted with its likelihood it has none
    # (Del Moral 2004, Feynman-Kac Formulae, theorem 7.4.2).
    assert_mean(np.exp(filters["log_likelihood"] - total) * error[:, -1], 0.0)


@pytest.mark.slow
def test_a_filter_is_a_function_of_its_key(nile_filters):
    assert_of_their_keys(nile_filters, FLOW[:YEARS], *PUBLISHED_VARIANCES)


def test_systematic_resampling():
    """Particle k is drawn floor or ceil of n w[k] times, and n w[k] times in the mean."""
    rng = pt.random.rng("rng")
    weights = pt.dvector("weights")
    chosen = jaxify([rng, weights], particle_filter.systematic(rng, weights)[1])
    w = np.random.default_rng(4).dirichlet(np.full(20, 0.5))
    w[[0, 5, 19]] = 0.0
    w /= w.sum()
    actual = over_keys(chosen, w)
    counts = np.stack([np.bincount(row, minlength=20) for row in actual])
    assert (counts >= np.floor(20 * w)).all() and (counts <= np.ceil(20 * w)).all()
    assert_mean(counts[:, w > 0], 20 * w[w > 0])


# -- the Gibbs sampler -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sweep():
    return gibbs_sampler.build()


@pytest.fixture(scope="module")
def chains(sweep):
    starts = gibbs_sampler.chains(sweep, len(FLOW), 1000)
    contexts, draws = gibbs_sampler.sample(sweep, starts, FLOW, burn_in=30, sweeps=50)
    return contexts, jax.tree.map(np.asarray, draws)


def exact_posterior():
    """By quadrature over the precision and a sum over the years; the levels are integrated on paper.

    Given year and precision q the flows of a regime are normal with covariance I / q + LEVEL_SD^2,
    whose determinant and inverse are known (Sherman & Morrison 1950).
    """
    q = np.geomspace(2e-5, 1.6e-4, 1500)
    year = np.arange(1, len(FLOW))
    d, v = FLOW - gibbs_sampler.LEVEL_MEAN, gibbs_sampler.LEVEL_SD**2
    log_mass = stats.gamma.logpdf(q, gibbs_sampler.SHAPE, scale=1 / gibbs_sampler.RATE)
    log_mass = np.tile(log_mass + np.log(q), (len(year), 1))  # the grid is even in log q
    means, variances = [], []
    for rows in ([d[:k] for k in year], [d[k:] for k in year]):
        n, total, squares = (
            np.array([[f(r)] for r in rows]) for f in (len, np.sum, lambda r: r @ r)
        )
        certainty = 1 / v + n * q
        log_mass += n / 2 * np.log(q) - np.log(v * certainty) / 2
        log_mass -= q / 2 * (squares - q * total**2 / certainty)
        means.append(gibbs_sampler.LEVEL_MEAN + q * total / certainty)
        variances.append(1 / certainty)
    mass = np.exp(log_mass - log_mass.max())
    mass /= mass.sum()
    assert mass[:, [0, -1]].sum() < 1e-6
    first = [(mass * m).sum() for m in means]
    second = [(mass * (v + m**2)).sum() for m, v in zip(means, variances, strict=True)]
    return {
        "level": (np.array(first), np.array(second) - np.square(first)),
        "precision": _moments(mass.sum(axis=0), q),
        "year": _moments(mass.sum(axis=1), year),
        "law of the year": mass.sum(axis=1),
    }


def _moments(mass, x):
    mean = mass @ x
    return mean, mass @ (x - mean) ** 2


@pytest.mark.slow
def test_chains_have_the_exact_posterior(chains):
    _, draws = chains
    exact = exact_posterior()
    assert draws["level"].shape == (1000, 50, 2) and draws["year"].shape == (1000, 50)
    for name, x in draws.items():
        mean, variance = exact[name]
        # Sweeps of one chain depend on each other, chains do not.
        assert_mean(x.mean(axis=1), mean)
        assert_mean(((x - mean) ** 2).mean(axis=1), variance)
    likely = np.flatnonzero(exact["law of the year"] > 0.01) + 1
    assert 28 in likely and len(likely) > 3
    for k in likely:
        assert_mean((draws["year"] == k).mean(axis=1), exact["law of the year"][k - 1])


def test_chains_are_independent_and_of_their_keys_alone(sweep, chains):
    contexts, draws = chains
    assert_independent(draws["precision"] / draws["precision"].mean())
    assert len(np.unique(np.asarray(jax.random.key_data(contexts["rng"])), axis=0)) == 1000
    context = jax.tree.map(lambda x: x[400], gibbs_sampler.chains(sweep, len(FLOW), 1000))
    for _ in range(30):
        context, _ = sweep.apply(context, FLOW)
    for k in range(5):
        context, actual = sweep.apply(context, FLOW)
        for name, x in actual.items():
            np.testing.assert_allclose(x, draws[name][400, k], rtol=1e-8)


def test_all_sweeps_of_all_chains_are_one_loop(sweep):
    starts = gibbs_sampler.chains(sweep, len(FLOW), 1000)
    one = primitives(jax.make_jaxpr(sweep.apply)(sweep.init_context(), FLOW))
    run = primitives(jax.make_jaxpr(lambda c: gibbs_sampler.sample(sweep, c, FLOW))(starts))
    # In JAX 0.10 the search of the categorical draw is a scan as well.
    assert run["scan"] == one["scan"] + 1 and run["while"] == one["while"]
    assert run["random_gamma"] == one["random_gamma"] == 1


def test_sampling_leaves_the_shared_variables_as_they_are(sweep, chains):
    context = sweep.init_context()
    assert int(context["year"]) == 1
    np.testing.assert_array_equal(context["level"], gibbs_sampler.LEVEL_MEAN)


# -- all of them -----------------------------------------------------------------------------------


def graphs(graph):
    """A graph, and those in its loops."""
    yield graph
    for node in graph.toposort():
        if isinstance(node.op, Scan):
            yield from graphs(node.op.fgraph)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_no_generator_is_drawn_from_twice(example):
    """Nor drawn from and passed on: draws would repeat, too rarely alike for a mean to show it."""
    draws = 0
    for graph in graphs(example.build().program.graph):
        uses = [v for node in graph.toposort() for v in node.inputs] + [*graph.outputs]
        for node in graph.toposort():
            if isinstance(node.op, RandomVariable):
                draws += 1
                assert uses.count(node.inputs[0]) == 1, node
    assert draws >= 1


# -- what they print -------------------------------------------------------------------------------


PRINTED = (
    "goes on as before: True",
    "1000 outbreaks",
    "logarithm of the mean likelihood: -63",
    "last year of the high level 1898: 0.7",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "words"),
    [*zip(EXAMPLES, PRINTED, strict=True)],
    ids=[example.__name__ for example in EXAMPLES],
)
def test_main_prints_what_it_found(example, words, capsys):
    example.main()
    printed = capsys.readouterr().out
    assert words in printed and printed.count("\n") >= 4
