"""GARCH: the volatility of an exchange rate

The data are daily returns of the Deutschmark against the British pound, 1984 to 1991. They have
been the benchmark for GARCH software since Fiorentini, Calzolari and Panattoni (1996, Journal of
Applied Econometrics 11, 399) computed the maximum likelihood estimates to six digits. The return
and the variance of a day are

    r[t] = mu + e[t],   e[t] ~ N(0, h[t]),   h[t] = omega + alpha e[t-1]^2 + beta h[t-1]

This is a loop over days with one number in its carry. The mean of the squared errors stands in
for the day before the first.
"""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
from matplotlib.figure import Figure
from scipy.optimize import minimize

import loopax
from loopax.demo.gallery import compare_times, read

# %%
# The model is a PyTensor graph. The step of `loopax.scan` takes the carry first and the row
# second, as in `jax.lax.scan`.

parameters = pt.vector("parameters", shape=(4,))
returns = pt.vector("returns")
mu, omega, alpha, beta = parameters
error = returns - mu
presample = (error**2).mean()  # in the place of e[-1]^2 and of h[-1]
start = omega + (alpha + beta) * presample


def day(h, e):
    following = omega + alpha * e**2 + beta * h
    return following, following


_, later = loopax.scan(day, start, error[:-1])
variance = pt.concatenate([start[None], later])
log_likelihood = (
    -0.5
    * (np.log(2 * np.pi) + pt.log(variance) + error**2 / variance).sum()
)

# %%
# SciPy searches for the maximum with native code: one function for value and gradient.

native = loopax.jaxify(
    [parameters, returns], log_likelihood, backend="numba"
)
native_gradient = loopax.value_and_grad(native)
data = read("mark_pound")


def loss(p):
    value, gradient = native_gradient(p, data)
    return -float(value), -gradient


positive = [(None, None), (1e-6, None), (0.0, 1.0), (0.0, 1.0)]
search = {
    "method": "L-BFGS-B",
    "bounds": positive,
    "options": {"ftol": 1e-15, "gtol": 1e-9},
}
optimum = minimize(loss, [0.0, 0.02, 0.1, 0.85], jac=True, **search)

# %%
# JAX gives the second derivatives, whose inverse gives the standard errors. Estimates and errors
# agree with the published ones.

in_jax = loopax.jaxify([parameters, returns], log_likelihood)
errors = np.sqrt(
    np.diag(np.linalg.inv(-jax.hessian(in_jax)(optimum.x, data)))
)

published = np.array([-0.00619041, 0.0107613, 0.153134, 0.805974])
published_errors = np.array([0.00846212, 0.00285271, 0.0265228, 0.0335527])
np.testing.assert_allclose(optimum.x, published, rtol=1e-4)
np.testing.assert_allclose(errors, published_errors, rtol=1e-3)
print(
    f"{'':8}{'estimate':>12}{'published':>12}{'std. error':>13}{'published':>12}"
)
names = ("mu", "omega", "alpha", "beta")
for row in zip(
    names, optimum.x, published, errors, published_errors, strict=True
):
    print("{:8}{:12.6f}{:12.6f}{:13.6f}{:12.6f}".format(*row))

# %%
# Compare value and gradient with PyTensor's default mode and `pytensor.scan`, and time a call.

legacy_later = pytensor.scan(
    lambda e, h, omega, alpha, beta: omega + alpha * e**2 + beta * h,
    sequences=[error[:-1]],
    outputs_info=[start],
    non_sequences=[omega, alpha, beta],
    return_updates=False,
)
h = pt.concatenate([start[None], legacy_later])
legacy = -0.5 * (np.log(2 * np.pi) + pt.log(h) + error**2 / h).sum()
by_pytensor = pytensor.function(
    [parameters, returns], [legacy, pytensor.grad(legacy, parameters)]
)

value, gradient = by_pytensor(optimum.x * 1.01, data)
np.testing.assert_allclose(
    native_gradient(optimum.x * 1.01, data)[0], value, rtol=1e-10
)
np.testing.assert_allclose(
    native_gradient(optimum.x * 1.01, data)[1], gradient, rtol=1e-6
)

in_jax_gradient = jax.jit(
    jax.value_and_grad(loopax.jaxify([parameters, returns], log_likelihood))
)
on_device = jax.device_put(data)
compare_times(
    {
        "loopax, native": lambda: native_gradient(optimum.x, data),
        "loopax, JAX": lambda: jax.block_until_ready(
            in_jax_gradient(optimum.x, on_device)
        ),
        "PyTensor, default mode": lambda: by_pytensor(optimum.x, data),
    }
)

# %%

volatility = loopax.jaxify(
    [parameters, returns], pt.sqrt(variance), backend="numba"
)
day_number = np.arange(len(data))
figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
axes.plot(day_number, data, color="0.7", linewidth=0.5, label="return")
for sign in (-2, 2):
    axes.plot(
        day_number,
        sign * volatility(optimum.x, data),
        color="#1f5f8b",
        linewidth=0.9,
    )
axes.set(
    xlabel="trading day, 1984 to 1991",
    ylabel="per cent",
    title="Returns, and two standard deviations",
)
axes.margins(x=0)
