"""NumPyro: a GARCH model and its sampler become native

The model is written in NumPyro, and stays unchanged. The variance of a day depends on the day
before, so the likelihood is a `lax.scan`. The data are daily returns of the Deutschmark against the
British pound, 1984 to 1991, as in the [GARCH example](garch.md). NUTS calls the gradient of that
loop about ten times for each draw, and XLA runs its small steps slowly on a CPU.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from matplotlib.figure import Figure
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import initialize_model

import loopax
from loopax.demo import gallery
from loopax.demo.gallery import compare_times, read

returns = read("mark_pound")


def model(returns):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    omega = numpyro.sample("omega", dist.HalfNormal(0.2))
    alpha = numpyro.sample("alpha", dist.Uniform(0.0, 1.0))
    beta = numpyro.sample("beta", dist.Uniform(0.0, 1.0))
    error = returns - mu

    def day(variance, e):
        return omega + alpha * e**2 + beta * variance, variance

    _, variance = lax.scan(
        day, omega + (alpha + beta) * jnp.mean(error**2), error
    )
    numpyro.sample(
        "returns", dist.Normal(mu, jnp.sqrt(variance)), obs=returns
    )


# %%
# NumPyro turns the model into a potential, a JAX function of the unconstrained parameters. One line
# makes its loop native: `loopax.native(info.potential_fn)`. NUTS itself is a loop around the gradient
# of the potential. A line like it makes both native: `kernel.sample = loopax.native(kernel.sample)`.

info = initialize_model(jax.random.key(0), model, model_args=(returns,))
potential = loopax.native(info.potential_fn)


def sampler(draws, is_native):
    """NUTS for one chain."""
    kernel = NUTS(potential_fn=info.potential_fn)
    if is_native:
        kernel.sample = loopax.native(kernel.sample)
    return MCMC(
        kernel, num_warmup=draws, num_samples=draws, progress_bar=False
    )


def sample(mcmc, seed):
    """The draws of one run, by parameter."""
    mcmc.run(jax.random.key(seed), init_params=info.param_info.z)
    return jax.vmap(info.postprocess_fn)(mcmc.get_samples())


# %%
# Values and gradients equal NumPyro's own, and the loop is native in both.

start = info.param_info.z
both = [
    jax.jit(jax.value_and_grad(f)) for f in (potential, info.potential_fn)
]
for value, wanted in zip(
    *(jax.tree.leaves(f(start)) for f in both), strict=True
):
    np.testing.assert_allclose(value, wanted, rtol=1e-9)
assert loopax.explain(potential).are_native
print(loopax.explain(potential))

# %%
# The posteriors agree, too: the means differ by less than three Monte Carlo standard errors.

draws = 1000
samplers = {
    "loopax, native": sampler(draws, True),
    "NumPyro": sampler(draws, False),
}
native_draws, xla_draws = (
    sample(mcmc, seed=1) for mcmc in samplers.values()
)
print(f"\n{'':8}{'native':>10}{'NumPyro':>10}{'difference / error':>21}")
for name in ("mu", "omega", "alpha", "beta"):
    means = [float(d[name].mean()) for d in (native_draws, xla_draws)]
    errors = [
        float(
            d[name].std()
            / np.sqrt(effective_sample_size(np.asarray(d[name])[None]))
        )
        for d in (native_draws, xla_draws)
    ]
    distance = abs(means[0] - means[1]) / np.hypot(*errors)
    assert distance < 3, name
    print(f"{name:8}{means[0]:10.4f}{means[1]:10.4f}{distance:21.2f}")

# %%
# Compare the time of one value and gradient, then the time of a second run of each sampler.

on_device = jax.device_put(start)
print()
compare_times(
    {
        "loopax, native": lambda: jax.block_until_ready(both[0](on_device)),
        "NumPyro's potential": lambda: jax.block_until_ready(
            both[1](on_device)
        ),
    }
)
if gallery.timing:
    print("\nA second run of 1,000 draws after 1,000 of warm-up:")
    for name, mcmc in samplers.items():
        began = time.perf_counter()
        sample(mcmc, seed=2)
        print(f"{name:24}{time.perf_counter() - began:6.2f} s")

# %%

figure = Figure(figsize=(7, 3.2), layout="constrained")
for axes, name in zip(
    figure.subplots(1, 3), ("omega", "alpha", "beta"), strict=True
):
    bins = np.histogram_bin_edges(xla_draws[name], 30)
    axes.hist(xla_draws[name], bins, color="0.8", label="NumPyro")
    axes.hist(
        native_draws[name],
        bins,
        histtype="step",
        color="#1f5f8b",
        label="native",
    )
    axes.set(xlabel=name, yticks=[])
axes.legend(frameon=False)
figure.suptitle("The same posterior from both samplers")
