"""Old Faithful: a mixture with its memberships summed out

The geyser rests for about 55 or for about 80 minutes between eruptions. The kind of each of the 272
waits is a discrete unknown. To have gradients, the model sums it out:

    p(y) = product over i of sum over k of weight[k] N(y[i] | mean[k], sigma[k]^2)

PyMC's `NormalMixture` does this. The model has no loop, and loopax compiles it unchanged. Its
maximum agrees with Benaglia et al. (2009, mixtools, Journal of Statistical Software 32, no. 6).
"""

import jax
import numpy as np
import pymc as pm
from matplotlib.figure import Figure
from pymc.distributions.transforms import ordered
from scipy.optimize import minimize
from scipy.stats import norm

import loopax
from loopax.demo.gallery import log_densities, read

waiting = read("old_faithful")[1]

# %%

with pm.Model(coords={"kind": ["short", "long"]}) as model:
    weight = pm.Dirichlet("weight", np.ones(2), dims="kind")
    mean = pm.Normal(
        "mean",
        65.0,
        30.0,
        dims="kind",
        transform=ordered,
        initval=[50.0, 80.0],
    )
    sigma = pm.HalfNormal("sigma", 20.0, dims="kind")
    pm.NormalMixture(
        "waiting", w=weight, mu=mean, sigma=sigma, observed=waiting
    )

# %%

log_densities(model, own=model)

# %%
# Maximum likelihood: the model's likelihood alone, as a JAX function of the constrained values.

likelihood = loopax.pymc.logp(model)
point = likelihood.initial_point()


def loss(vector):
    at = likelihood.constrain(likelihood.unflatten(vector))
    parts = jax.scipy.stats.norm.logpdf(
        waiting[:, None], at["mean"], at["sigma"]
    )
    return -jax.scipy.special.logsumexp(parts, axis=1, b=at["weight"]).sum()


search = jax.jit(jax.value_and_grad(loss))
optimum = minimize(
    search, likelihood.flatten(point), jac=True, method="BFGS"
)
best = likelihood.constrain(likelihood.unflatten(optimum.x))
np.testing.assert_allclose(best["weight"][0], 0.3609, atol=2e-4)
np.testing.assert_allclose(best["mean"], [54.615, 80.091], atol=2e-3)
np.testing.assert_allclose(best["sigma"], [5.871, 5.868], atol=2e-3)
np.testing.assert_allclose(optimum.fun, 1034.002, atol=1e-3)
print(f"greatest log-likelihood {-optimum.fun:.3f}, published -1034.002")

# %%

sampling = {
    "draws": 400,
    "tune": 400,
    "chains": 2,
    "cores": 1,
    "seed": 1,
    "progress": False,
}
trace = loopax.pymc.sample(model, sampler="pymc", quiet=True, **sampling)
draws = {
    name: trace.posterior[name].values.reshape(-1, 2)
    for name in ("weight", "mean", "sigma")
}
for name, x in draws.items():
    for k, kind in enumerate(("short", "long")):
        most_likely = float(best[name][k])
        assert abs(x[:, k].mean() - most_likely) < x[:, k].std()
        print(
            f"{name:7}{kind:6}{x[:, k].mean():8.3f} +- {x[:, k].std():.3f}   most likely {most_likely:7.3f}"
        )

# %%

grid = np.linspace(40, 100, 200)
figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
axes.hist(waiting, bins=30, density=True, color="0.85")
for k, color in enumerate(("#d1495b", "#1f5f8b")):
    curves = (
        norm.pdf(grid[:, None], draws["mean"][:, k], draws["sigma"][:, k])
        * draws["weight"][:, k]
    )
    low, middle, high = np.quantile(curves, [0.05, 0.5, 0.95], axis=1)
    axes.fill_between(grid, low, high, color=color, alpha=0.25, linewidth=0)
    axes.plot(grid, middle, color=color)
axes.set(
    xlabel="minutes until the next eruption",
    yticks=[],
    title="Waits, and the two kinds with 90 %",
)
axes.margins(x=0)
