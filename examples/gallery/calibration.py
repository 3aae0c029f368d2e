"""Is the sampler right? A thousand posteriors over several processes

Simulation-based calibration answers this question. Draw parameters from the prior, simulate data
with them, draw from the posterior given these data, and count the draws that are below the
parameter of the data. If the sampler is right, all counts are equally likely (Talts et al. 2018,
arXiv:1804.06788).

The check needs a thousand posteriors. Each is one call of a native function, and the calls are
divided among the cores. Here the sampler is a random-walk Metropolis sampler for the GARCH model.
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytensor.tensor as pt
from matplotlib.figure import Figure
from scipy.stats import chisquare

import loopax
from loopax.demo.gallery import compare_times

DAYS, DRAWS, THIN = 250, 99, 40
STEPS = DRAWS * THIN
CORES = os.cpu_count()

# %%
# The study of one data set is one program: one loop simulates the data, and a loop of Metropolis
# steps contains the loop of the likelihood. The prior is uniform over all `alpha` and `beta` whose
# sum is below 1, and the mean variance is 1. The chain starts at the true parameters, which are
# themselves a draw from the posterior, so it needs no warm-up.


def next_variance(alpha, beta, variance, r):
    return 1.0 - alpha - beta + alpha * r**2 + beta * variance


def simulate(alpha, beta, shocks):
    def day(variance, shock):
        r = pt.sqrt(variance) * shock
        return next_variance(alpha, beta, variance, r), r

    return loopax.scan(day, pt.constant(1.0), shocks)[1]


def log_likelihood(alpha, beta, returns, slip):
    def day(variance, r):
        term = -0.5 * (pt.log(variance) + r**2 / variance)
        if slip:  # the half is missing in front of the logarithm
            term = -pt.log(variance) - 0.5 * r**2 / variance
        return next_variance(alpha, beta, variance, r), term

    return loopax.scan(day, pt.constant(1.0), returns)[1].sum()


def study(slip=False, **options):
    """A function of noise: the numbers of draws of alpha and of beta that are below the truth."""
    first, shocks = pt.dvector("first"), pt.dvector("shocks")
    proposals, log_uniforms = pt.dmatrix("proposals"), pt.dvector("log u")
    total = pt.sqrt(first[0])  # the truth: uniform over the triangle
    truth = total * pt.stack([first[1], 1 - first[1]])
    returns = simulate(truth[0], truth[1], shocks)

    def log_posterior(at):
        inside = (at > 0).all() & (at.sum() < 1)
        at = pt.where(inside, at, truth)
        value = log_likelihood(at[0], at[1], returns, slip)
        return pt.where(inside, value, -np.inf)

    def step(state, noise):
        (at, value), (proposal, log_u) = state, noise
        there = at + 0.15 * proposal
        value_there = log_posterior(there)
        accept = log_u < value_there - value
        at = pt.where(accept, there, at)
        return (at, pt.where(accept, value_there, value)), at

    start = (truth, log_posterior(truth))
    _, path = loopax.scan(step, start, (proposals, log_uniforms))
    return loopax.jaxify(
        [first, shocks, proposals, log_uniforms],
        (path[THIN - 1 :: THIN] < truth).sum(axis=0),
        **options,
    )


# %%
# A pool of processes calls this program.
#
# - The processes receive the function as a program. So this also works in a notebook, where a
#   process could not import a function that a cell defines.
# - A process loads native code from the cache on disk, where the first call has stored it, and
#   compiles nothing. Importing the packages takes seconds, so make one pool and reuse it.
# - The noise is an input, because native code that draws from a NumPy generator is not kept on disk.
# - Each chunk of the work contains the function, so chunks are large.
# - Processes are started with `"spawn"`, because JAX has threads, which do not survive a fork.
#
# Each data set has its own generator, so the result is the same for any number of processes.


def noise(rng):
    return (
        rng.uniform(size=2),
        rng.normal(size=DAYS),
        rng.normal(size=(STEPS, 2)),
        np.log(rng.uniform(size=STEPS)),
    )


def ranks(executor, study, data_sets):
    """(data sets, 2) the ranks, computed by the workers of an executor."""
    rngs = np.random.default_rng(2026).spawn(data_sets)
    inputs = zip(*map(noise, rngs), strict=True)
    return np.array(list(executor.map(study, *inputs, chunksize=50)))


# %%
# Native functions also run in parallel in threads, which start at once and copy no data: replace the
# pool by a `ThreadPoolExecutor`. Choose processes if Python code around the calls takes time, or for
# many machines: `dask.distributed.Client.map` and `joblib.Parallel` take the same function.

# %%
# With the right sampler, a bar is within the grey band 99 times in 100. With a slip in the
# likelihood, which would not be visible in the trace of one chain, the ranks pile up at one end.


def bars(ranks):
    """How many ranks of beta fall into each tenth."""
    return np.histogram(ranks[:, 1], np.arange(0, DRAWS + 2, 10))[0]


def draw(by_sampler):
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (title, ranks_of_beta) in zip(
        panels, by_sampler.items(), strict=True
    ):
        expected = len(ranks_of_beta) / 10
        spread = 2.6 * np.sqrt(expected)
        axes.bar(
            np.arange(5, 100, 10), bars(ranks_of_beta), 9, color="#0072b2"
        )
        axes.axhspan(
            expected - spread,
            expected + spread,
            color="0.6",
            alpha=0.4,
            linewidth=0,
        )
        axes.set(title=title, xlabel="draws of beta below the truth")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel="data sets")
    return figure


# %%
# A new process imports the script, so the code that starts processes is behind a condition.

if __name__ == "__main__":
    right = study(backend="numba")
    wrong = study(slip=True, backend="numba")
    inputs = noise(np.random.default_rng(1))
    began = time.perf_counter()
    right(*inputs)
    print(f"first call, compiled  {time.perf_counter() - began:5.2f} s")
    wrong(*inputs)  # compiled here, before the processes load it
    with ProcessPoolExecutor(CORES, get_context("spawn")) as pool:
        began = time.perf_counter()
        pool.submit(right, *inputs).result()
        print(f"first call, process   {time.perf_counter() - began:5.2f} s")
        began = time.perf_counter()
        by_sampler = {
            "The sampler": ranks(pool, right, data_sets=1000),
            "The sampler with a slip": ranks(pool, wrong, data_sets=1000),
        }
        print(f"all posteriors        {time.perf_counter() - began:5.2f} s")
    p_right, p_wrong = (
        chisquare(bars(ranks_of_beta)).pvalue
        for ranks_of_beta in by_sampler.values()
    )
    print(f"p-value {p_right:.2f}, with the slip {p_wrong:.0e}")
    assert p_wrong < 1e-6 < 0.01 < p_right
    figure = draw(by_sampler)

    # One data set, natively and by XLA, which takes longer for each small step.
    by_xla = study(loops="xla")
    np.testing.assert_array_equal(right(*inputs), by_xla(*inputs))
    compare_times(
        {
            "native code": lambda: right(*inputs),
            "JAX's operations": lambda: np.asarray(by_xla(*inputs)),
        }
    )
