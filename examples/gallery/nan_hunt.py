"""Finding a NaN: volatility, predators and hidden states

Three models give NaN or minus infinity, each for a different reason: a variance becomes negative, a
differential equation diverges, a probability underflows. `loopax.diagnose` runs the program once,
and reports the line, the step of the loop, and what to write instead.
"""

import numpy as np
import pytensor.tensor as pt
from matplotlib.figure import Figure
from scipy.special import logsumexp
from scipy.stats import norm

import loopax
from loopax.demo.gallery import compare_times, read

returns = read("mark_pound")
years, hares, lynxes = read("hares_and_lynxes")

# %%
# The first is a GARCH model of the exchange rate. An optimizer without bounds tries a negative
# `alpha`, and the likelihood is NaN. Which of the 1,974 days is the reason?


@loopax.jaxify
def garch(theta, returns):
    omega, alpha, beta = theta[0], theta[1], theta[2]

    def day(h, r):
        h = loopax.watch(omega + alpha * r**2 + beta * h, "h")
        return h, -0.5 * (pt.log(h) + r**2 / h)

    return loopax.scan(day, omega, returns)[1].sum()


tried = np.array([0.02, -0.05, 0.9])
report = loopax.diagnose(garch, tried, returns)
print(report)

# %%
# The report is also data. A loop in NumPy finds the same day.

first = report.first
assert (first.kind, first.op) == ("nan", "Log")

h, day_of_failure = tried[0], 0
for day_of_failure, r in enumerate(returns):  # noqa: B007
    h = tried[0] + tried[1] * r**2 + tried[2] * h
    if h < 0:
        break
assert first.steps == (day_of_failure,)
np.testing.assert_allclose(first.operands[0].value, h)

# %%
# The variance was wrong before its logarithm was NaN. With bounds for its name, `diagnose` finds the
# first day on which the variance leaves them, and `watched` returns the variance day by day.

bounded = loopax.diagnose(
    garch, tried, returns, within={"h": (0.0, np.inf)}
)
assert bounded.first.steps == (day_of_failure,)

_, record = loopax.watched(garch)(tried, returns)
variance = record["h"].values

# %%
# The second model has hares and lynxes, integrated by Euler's method. Half a year is too long a step
# when the populations are large: they overflow, and infinity minus infinity is NaN.

RATES = np.array([0.545, 0.028, 0.803, 0.024])


@loopax.jaxify
def populations(start, step_length):
    def step(state, _):
        u, v = state
        u_next = u + step_length * (RATES[0] - RATES[1] * v) * u
        v_next = v + step_length * (RATES[3] * u - RATES[2]) * v
        u_next.name, v_next.name = "hares", "lynxes"
        return (
            loopax.watch(u_next, "hares"),
            loopax.watch(v_next, "lynxes"),
        ), None

    (u, v), _ = loopax.scan(step, (start[0], start[1]), length=80)
    return pt.stack([u, v])


start = np.array([300.0, 60.0])
report = loopax.diagnose(populations, start, 0.5)
print(report)
assert report.first.kind in ("inf", "-inf", "nan")
_, path = loopax.watched(populations)(start, 0.5)

# %%
# A hundredth of a year is short enough.

assert loopax.diagnose(populations, start, 0.01).ok

# %%
# The third is a hidden Markov model with two volatilities, of calm and of wild days. Probabilities
# of paths shrink at every step, and after some hundreds of days they are zero. The report names the
# day.

STICKY = np.array([[0.98, 0.02], [0.05, 0.95]])
SCALES = np.array([0.3, 0.9])


@loopax.jaxify
def likelihood(density):
    def day(forward, density):
        forward = loopax.watch((forward @ STICKY) * density, "forward")
        return forward, None

    forward, _ = loopax.scan(day, pt.constant([0.5, 0.5]), density)
    return pt.log(forward.sum())


density = norm.pdf(returns[:, None], scale=SCALES)
report = loopax.diagnose(likelihood, density)
print(report)
assert (
    report.first.kind == "-inf"
    and "in Mul, forward, at step" in report.first.zero
)
_, forward = loopax.watched(likelihood)(density)

# %%
# The report suggests a remedy: divide by the sum at every step, and add the logarithms of the sums.
# A plain loop with SciPy's `logsumexp` gives the same number.


@loopax.jaxify
def log_likelihood(density):
    def day(forward, density):
        forward = (forward @ STICKY) * density
        total = forward.sum()
        return forward / total, pt.log(total)

    return loopax.scan(day, pt.constant([0.5, 0.5]), density)[1].sum()


assert loopax.diagnose(log_likelihood, density).ok
log_forward = np.log([0.5, 0.5])
for row in np.log(density):
    log_forward = (
        logsumexp(log_forward[:, None] + np.log(STICKY), axis=0) + row
    )
np.testing.assert_allclose(log_likelihood(density), logsumexp(log_forward))
print(f"log-likelihood {float(log_likelihood(density)):.4f}")

# %%
# A long run need not be repeated to find the NaN: with `checks="nan"` a program raises an error that
# names the step. Compare the times with and without the check:

theta = np.array([0.01, 0.15, 0.8])
plain = loopax.jaxify(garch, backend="numba")
checked = loopax.jaxify(garch, backend="numba", checks="nan")
assert plain(theta, returns) == checked(theta, returns)
compare_times(
    {
        'checks="nan"': lambda: checked(theta, returns),
        "no checks": lambda: plain(theta, returns),
    }
)

# %%
# In a notebook, a record draws itself, and marks the step that fails. The figure shows all three.

figure = Figure(figsize=(7, 6.5), layout="constrained")
above, middle, below = figure.subplots(3)
above.plot(variance[: day_of_failure + 15], color="#0072b2")
above.axvline(day_of_failure, color="#d55e00", linewidth=1.5)
above.axhline(0.0, color="0.6", linewidth=0.8)
above.set(
    title=f"GARCH: negative at step {day_of_failure}",
    xlabel="trading day",
    ylabel="variance",
)
for name, colour in (("hares", "#0072b2"), ("lynxes", "#e69f00")):
    middle.plot(np.abs(path[name].values), color=colour, label=name)
middle.set_yscale("log")
middle.set(
    title="Euler's method, steps of half a year",
    xlabel="step",
    ylabel="|thousands|",
)
middle.legend(frameon=False)
below.plot(forward["forward"].values.sum(axis=1), color="#0072b2")
below.set_yscale("log")
below.set(
    title="Hidden states: the probability underflows",
    xlabel="day",
    ylabel="probability",
)
for axes in (above, middle, below):
    axes.margins(x=0)
    axes.spines[["top", "right"]].set_visible(False)
