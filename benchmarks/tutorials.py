"""``python -m benchmarks.tutorials [PAGE ...]``: the times in docs/tutorials.

Each page runs first, as it does for a reader; then the calls of a comparison are timed in turns, and the
fastest call counts. A page whose packages are not installed is left out.
"""

import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numba
import numpy as np

import loopax
from examples.gallery.__main__ import machine
from loopax.demo.gallery import pytensor_scan
from tests.documents.test_documents import blocks_of, needs, run_document

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
SECONDS = 4.0  # for all turns of one comparison
TURN = 0.02  # seconds
Comparison = tuple[str, dict[str, Callable[[], Any]]]
ready = jax.block_until_ready


def from_numba(page: ModuleType) -> Iterator[Comparison]:
    in_numba = numba.njit(page.epidemic)
    args = (0.3, 0.1, page.contacts)
    arrays = (np.array(0.3), np.array(0.1), page.contacts)
    yield (
        "the infected of 365 days",
        {
            "loopax, declared inputs": lambda: page.declared(*args),
            "NumPy": lambda: page.epidemic(*args),
            "numba.njit": lambda: in_numba(*args),
            "loopax, native": lambda: page.infected(*args),
            "loopax, `compiled`": lambda: page.infected_on(*arrays),
        },
    )
    misfit = (*args, page.by_numpy)
    yield "misfit and gradient", {"loopax, native": lambda: page.value_and_grad(*misfit)}


def from_pytensor_scan(page: ModuleType) -> Iterator[Comparison]:
    import pytensor

    xs = np.random.default_rng(0).normal(size=2000)
    x, a, total = page.x, page.a, page.states.sum()
    _, old = pytensor_scan(page.step, 0.0, x)
    old = old.sum()
    theirs = pytensor.function([x, a], [old, pytensor.grad(old, a)])
    native = loopax.value_and_grad(loopax.jaxify([x, a], total, backend="numba"), argnums=1)
    in_jax = jax.jit(jax.value_and_grad(loopax.jaxify([x, a], total), argnums=1))
    yield (
        "sum of 2,000 states and its gradient",
        {
            "pytensor.function": lambda: theirs(xs, 0.3),
            "loopax, in JAX": lambda: ready(in_jax(xs, 0.3)),
            "loopax, native": lambda: native(xs, 0.3),
        },
    )


def from_jax_lax(page: ModuleType) -> Iterator[Comparison]:
    xs = np.linspace(0.0, 1.0, 2000)
    theirs, ours = (jax.jit(jax.value_and_grad(f, 1)) for f in (page.in_jax, page.in_loopax))
    yield (
        "value and gradient, 2,000 steps",
        {
            "jax.lax.scan": lambda: ready(theirs(xs, 0.3)),
            "loopax.scan": lambda: ready(ours(xs, 0.3)),
        },
    )


def native_jax(page: ModuleType) -> Iterator[Comparison]:
    for name, transform in {
        "value and gradient": jax.value_and_grad,
        "Hessian": jax.hessian,
    }.items():
        theirs, ours = (jax.jit(transform(f)) for f in (page.log_likelihood, page.fast))
        yield (
            name,
            {
                "jax.jit": lambda f=theirs: ready(f(page.at, page.returns)),
                "loopax.native": lambda f=ours: ready(f(page.at, page.returns)),
            },
        )


def from_pymc(page: ModuleType) -> Iterator[Comparison]:
    first = blocks_of((TUTORIALS / "from_pymc.md").read_text(encoding="utf-8"))[0].code
    names = {"pytensor_scan": pytensor_scan}
    exec(first.replace("loopax.scan(", "pytensor_scan("), names)
    theirs = names["model"].logp_dlogp_function(ravel_inputs=True)
    ours = loopax.value_and_grad(page.native.ravel)
    in_jax = jax.jit(jax.value_and_grad(loopax.pymc.logp(page.model).ravel))
    start = page.native.flatten(page.point)
    yield (
        "log-density and gradient",
        {
            "PyMC with pytensor.scan": lambda: theirs(start),
            "loopax, in JAX": lambda: ready(in_jax(start)),
            "loopax, native": lambda: ours(start),
        },
    )


def from_numpyro(page: ModuleType) -> Iterator[Comparison]:
    theirs, ours = (jax.jit(jax.value_and_grad(f)) for f in (page.by_jax, page.by_native))
    yield (
        "log-density and gradient",
        {
            "JAX": lambda: ready(theirs(page.start)),
            "loopax.native": lambda: ready(ours(page.start)),
        },
    )
    many, those = (jax.jit(jax.vmap(jax.value_and_grad(f))) for f in (page.by_jax, page.by_native))
    yield (
        "log-density and gradient of 4 chains",
        {
            "JAX": lambda: ready(many(page.chains)),
            "loopax.native": lambda: ready(those(page.chains)),
        },
    )
    for draws in (500, 50_000):  # JAX returns before the draws are there: `ready` waits for them
        yield (
            f"a run of NumPyro, {draws:,} draws after 500 of warm-up, with compilation",
            {
                "JAX": lambda draws=draws: ready(page.sample(page.expected_cases, draws)),
                "loopax.native": lambda draws=draws: ready(page.sample(page.native_cases, draws)),
                "sampler native": lambda draws=draws: ready(
                    page.sample_natively(page.expected_cases, draws)
                ),
            },
        )
        yield (
            f"a run of BlackJAX, {draws:,} draws after 500 of warm-up, with compilation",
            {
                "JAX": lambda draws=draws: ready(page.blackjax_draws(page.by_jax, draws)),
                "loopax.native": lambda draws=draws: ready(
                    page.blackjax_draws(page.by_native, draws)
                ),
            },
        )


def from_statsmodels(page: ModuleType) -> Iterator[Comparison]:
    at, y = page.fit.params, page.y
    value = jax.jit(page.log_likelihood)
    yield (
        "log-likelihood of 400 quarters",
        {"statsmodels": lambda: page.theirs.loglike(at), "loopax": lambda: ready(value(at, y))},
    )
    yield (
        "gradient",
        {
            "statsmodels": lambda: page.theirs.score(at),
            "loopax": lambda: ready(page.value_and_grad(at, y)),
        },
    )
    start = np.log([1.0, 0.1, 0.01])
    yield (
        "the search for the maximum",
        {
            "statsmodels": lambda: page.theirs.fit(disp=False, cov_type="none"),
            "loopax": lambda: page.minimize(page.objective, start, jac=True, method="BFGS"),
        },
    )
    yield (
        "likelihood of the New Keynesian model and its gradient",
        {"loopax": lambda: ready(page.structural_grad(0.1, 1.5, 0.7, page.simulated))},
    )


def from_stan(page: ModuleType) -> Iterator[Comparison]:
    import nutpie
    import stan

    yield "log-density and gradient", {"loopax": lambda: page.value_and_grad(page.points[0])}
    options = {"draws": 1000, "tune": 1000, "chains": 1, "cores": 1, "progress_bar": False}
    compiled = loopax.pymc.nutpie_model(page.model)
    seeds = count(2)  # Stan's server answers a call with a seed that it has seen from its cache
    data = {"N": len(page.y), "y": page.y}

    def by_stan() -> Any:
        built = stan.build(page.STAN, data=data, random_seed=next(seeds))
        return built.sample(num_chains=1, num_samples=1000, num_warmup=1000)

    yield (
        "1,000 draws after 1,000 of warm-up, without compilation",
        {
            "Stan": by_stan,
            "loopax with nutpie": lambda: nutpie.sample(compiled, seed=next(seeds), **options),
        },
    )


PAGES = (
    from_pytensor_scan,
    from_jax_lax,
    native_jax,
    from_numba,
    from_pymc,
    from_numpyro,
    from_statsmodels,
    from_stan,
)


def missing(path: Path) -> list[str]:
    """The packages that a page imports and that are not installed."""
    wanted = {
        package for block in blocks_of(path.read_text(encoding="utf-8")) for package in needs(block)
    }
    return sorted(package for package in wanted if not find_spec(package))


def fastest(calls: dict[str, Callable[[], Any]]) -> list[float]:
    """Seconds of the fastest call of each: other programs on the machine only ever slow a call.

    In a turn the calls run for some 20 ms one after another, as an optimizer makes them. A call that
    takes seconds has three turns.
    """
    for call in calls.values():
        call()
    seconds = [float("inf")] * len(calls)
    rounds, began = 0, time.perf_counter()
    while rounds < 3 or time.perf_counter() - began < SECONDS:
        for k, call in enumerate(calls.values()):
            end = time.perf_counter() + TURN
            while (start := time.perf_counter()) < end:
                call()
                seconds[k] = min(seconds[k], time.perf_counter() - start)
        rounds += 1
    return seconds


def main(names: list[str]) -> None:
    """Print the times of each page."""
    print(machine())
    for compare in PAGES:
        path = TUTORIALS / f"{compare.__name__}.md"
        if names and compare.__name__ not in names:
            continue
        if lacking := missing(path):
            print(f"\n{path.name}: left out, for lack of {', '.join(lacking)}")
            continue
        run_document(path)
        print(f"\n{path.name}")
        for title, calls in compare(sys.modules["document"]):
            for label, seconds in zip(calls, fastest(calls), strict=True):
                print(f"  {title:60}  {label:24}  {1e6 * seconds:12.1f} us", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
