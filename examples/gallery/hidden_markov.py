"""Earthquakes: a hidden Markov model, and its states from one gradient

The number of major earthquakes in a year depends on a hidden state that changes from year to
year:

    count[t] ~ Poisson(rate[state[t]]),   P(state[t+1] = j | state[t] = i) = transition[i, j]

Zucchini, MacDonald and Langrock (2016, Hidden Markov Models for Time Series, 2nd ed., ch. 3) fit
three states and draw the first from the stationary distribution. The forward algorithm, a loop
over years, computes the likelihood.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.special import gammaln

import loopax
from loopax.demo.gallery import compare_times, read

years, counts = read("earthquakes")
STATES = 3

# %%
# The log-densities of the emissions are a variable of their own, so that we can differentiate
# with respect to it.

vector = pt.vector("parameters", shape=(STATES + STATES * (STATES - 1),))
rates = pt.exp(vector[:STATES])
off_diagonal = np.flatnonzero(~np.eye(STATES, dtype=bool))
logits = (
    pt.zeros(STATES * STATES)[off_diagonal]
    .set(vector[STATES:])
    .reshape((STATES, STATES))
)
transition = pt.special.softmax(logits, axis=1)
stationary = pt.linalg.solve(
    pt.eye(STATES) - transition.T + 1.0, pt.ones(STATES)
)
log_emission = (
    counts[:, None] * pt.log(rates) - rates - gammaln(counts + 1)[:, None]
)


def forward(log_emission, first, transition):
    """The log-likelihood, of log-emissions (years, states)."""

    def year(forecast, emission):
        joint = forecast * pt.exp(emission)
        total = joint.sum()
        return (joint / total) @ transition, pt.log(total)

    _, terms = loopax.scan(year, first, log_emission)
    return terms.sum()


emission = pt.matrix("emission", shape=(len(years), STATES))
log_likelihood = forward(log_emission, stationary, transition)

# %%
# Maximum likelihood with native code. The estimates agree with the book's.

native = loopax.jaxify([vector], log_likelihood, backend="numba")
native_gradient = loopax.value_and_grad(native)
start = np.concatenate([np.log([10.0, 20.0, 30.0]), np.full(6, -2.0)])


def loss(p):
    value, gradient = native_gradient(p)
    return -float(value), -gradient


optimum = minimize(
    loss, start, jac=True, method="BFGS", options={"gtol": 1e-6}
)
published = np.array([13.146, 19.721, 29.714])
order = np.argsort(optimum.x[:STATES])
np.testing.assert_allclose(
    np.exp(optimum.x[:STATES][order]), published, atol=2e-3
)
np.testing.assert_allclose(optimum.fun, 329.4603, atol=2e-4)
print(f"minus log-likelihood {optimum.fun:.4f}, in the book 329.4603")
print(
    "earthquakes a year   ",
    *np.round(np.exp(optimum.x[:STATES][order]), 3),
    "in the book",
    *published,
)

# %%
# The probability of each state in each year, given all years, is the derivative of the
# log-likelihood with respect to the log-emissions. Textbooks use a backward recursion; here a
# gradient is enough.

smoothed = loopax.jaxify(
    [emission, vector],
    pytensor.grad(forward(emission, stationary, transition), emission),
    backend="numba",
)
emissions = loopax.jaxify([vector], log_emission, backend="numba")(
    optimum.x
)
probability = smoothed(emissions, optimum.x)
np.testing.assert_allclose(probability.sum(axis=1), 1.0)

# %%
# Compare with PyTensor's default mode and `pytensor.scan`.


def legacy_forward(log_emission, first, transition):
    def year(emission, forecast, transition):
        joint = forecast * pt.exp(emission)
        total = joint.sum()
        return (joint / total) @ transition, pt.log(total)

    _, terms = pytensor.scan(
        year,
        sequences=[log_emission],
        outputs_info=[first, None],
        non_sequences=[transition],
        return_updates=False,
    )
    return terms.sum()


legacy = legacy_forward(log_emission, stationary, transition)
by_pytensor = pytensor.function(
    [vector], [legacy, pytensor.grad(legacy, vector)]
)
value, gradient = by_pytensor(start)
np.testing.assert_allclose(native_gradient(start)[0], value, rtol=1e-10)
np.testing.assert_allclose(
    native_gradient(start)[1], gradient, rtol=1e-7, atol=1e-7
)
compare_times(
    {
        "loopax, native": lambda: native_gradient(start),
        "PyTensor, default mode": lambda: by_pytensor(start),
    }
)

# %%

figure = Figure(figsize=(7, 3.6), layout="constrained")
above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.6, 1))
colors = ["#93bbd1", "#5b97b8", "#1f5f8b"]
above.plot(years, counts, ".", color="0.3", markersize=4)
above.step(
    years,
    probability[:, order] @ published,
    where="mid",
    color="#d1495b",
    linewidth=1,
)
above.set(
    ylabel="earthquakes",
    title="Major earthquakes; their expected number, given all years",
)
below.stackplot(years, probability[:, order].T, colors=colors, step="mid")
below.set(xlabel="year", ylabel="state", yticks=[0, 1])
below.margins(x=0, y=0)
