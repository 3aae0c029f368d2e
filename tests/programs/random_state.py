"""Random draws: explicit generators, ones in loops, streams. Issue 4. Only shapes can agree."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.random.type import random_generator_type

from .record import program, scan

RNG = np.random.default_rng(1)
DRAW = {"issue": 4, "values_match": False}


def draw(family, *params, **kwargs):
    """A draw alone: without the flag PyTensor warns that it hides the next generator."""
    return family(*params, return_next_rng=True, **kwargs)[1]


@program(RNG, [0.0, 5.0], thread="pytensor 278", **DRAW)
def generator_as_an_input():
    rng, mu = random_generator_type("rng"), pt.vector("mu")
    return [rng, mu], draw(pt.random.normal, mu, 1.0, rng=rng)


@program([0.0, 5.0], thread="pytensor 1704", **DRAW)
def shared_generator():
    rng = pytensor.shared(np.random.default_rng(2), name="rng")
    mu = pt.vector("mu")
    return [mu], draw(pt.random.normal, mu, 1.0, size=(3, 2), rng=rng)


@program([0.5, 1.5], thread="pytensor 1704", **DRAW)
def sizes_from_a_shape():
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    x = pt.vector("x")
    return [x], draw(pt.random.gamma, 2.0, scale=1.0, size=(x.shape[0], 4), rng=rng) * x[:, None]


@program(RNG, thread="pytensor 1704", **DRAW)
def generator_as_a_state():
    """A random walk whose generator is carried, and whose last generator is thrown away."""
    rng = random_generator_type("rng")

    def step(x, rng):
        next_rng, x = rng.normal(x, 1.0)
        return x, next_rng

    walk, _ = scan(step, outputs_info=[pt.zeros(()), rng], n_steps=5)
    return [rng], walk


@program(RNG, thread="pytensor 1796", **DRAW)
def generator_behind_an_output():
    """[None, rng] in outputs_info: the outputs keep that order."""
    rng = random_generator_type("rng")

    def step(rng):
        next_rng, x = rng.normal()
        return x, next_rng

    xs, _ = scan(step, outputs_info=[None, rng], n_steps=5)
    return [rng], xs


@program(0, RNG, thread="pytensor 2001", static=("n",), **DRAW)
def generator_of_no_steps():
    n, rng = pt.lscalar("n"), random_generator_type("rng")

    def step(x, rng):
        next_rng, x = rng.normal(x, 1.0)
        return x, next_rng

    walk, last = scan(step, outputs_info=[pt.zeros(()), rng], n_steps=n)
    return [n, rng], [walk, draw(pt.random.uniform, rng=last)]


@program([0.0, 1.0, 2.0], thread="pytensor 6", **DRAW)
def draw_outside_read_inside():
    data = pt.constant(np.arange(8.0))
    _, places = pt.random.shared_rng(np.random.default_rng(4)).integers(0, 8, size=5)
    picked = data[places]
    v = pt.vector("v")
    return [v], scan(lambda v_t: ((picked - v_t) ** 2).sum(), sequences=v)


@program([0.2, 0.8], thread="aesara 738", **DRAW)
def several_families():
    rng = pytensor.shared(np.random.default_rng(5), name="rng")
    p = pt.vector("p")
    draws = [
        draw(pt.random.bernoulli, p, rng=rng),
        draw(pt.random.uniform, 0.0, p, rng=rng),
        draw(pt.random.exponential, p, size=(4, 2), rng=rng),
        draw(pt.random.poisson, p * 3.0, rng=rng),
        draw(pt.random.integers, 0, 10, size=(3,), rng=rng),
        draw(pt.random.beta, p + 1.0, 2.0, rng=rng),
        draw(pt.random.categorical, pt.stack([p[0], 1.0 - p[0]]), rng=rng),
        draw(pt.random.multivariate_normal, pt.zeros(2), pt.eye(2), rng=rng),
        draw(pt.random.permutation, pt.arange(4), rng=rng),
    ]
    return [p], draws


@program([0.5, 0.8], thread="pymc 6718", **DRAW)
def families_without_a_sampler():
    """JAX mode has none for these."""
    rng = pytensor.shared(np.random.default_rng(6), name="rng")
    p = pt.vector("p")
    draws = [
        draw(pt.random.weibull, p, rng=rng),
        draw(pt.random.triangular, 0.0, p, 1.0, rng=rng),
        draw(pt.random.binomial, 10, p, rng=rng),
        draw(pt.random.halfnormal, p, rng=rng),
        draw(pt.random.geometric, p, rng=rng),
        draw(pt.random.lognormal, p, rng=rng),
    ]
    return [p], draws


@program(RNG, thread="pytensor 2002", **DRAW)
def two_draws_of_one_generator():
    """Both see the same state, so they agree."""
    rng = random_generator_type("rng")
    a, b = (draw(pt.random.normal, size=3, rng=rng) for _ in range(2))
    return [rng], [a - b, a]


@program([0.5, 1.0], RNG, thread="pymc 6718", **DRAW)
def gradient_of_a_reparametrised_walk():
    sigma, rng = pt.vector("sigma"), random_generator_type("rng")
    noise = draw(pt.random.normal, size=4, rng=rng)
    walk = scan(lambda e, s: s + sigma[0] * e, sequences=noise, outputs_info=pt.zeros(()))
    return [sigma, rng], pt.grad((walk**2).sum() * sigma[1], sigma)
