"""Reinforcement learning: how fast do players learn which arm pays?

A player pulls one of two arms again and again. Her expectation for an arm moves towards its
reward at a rate alpha. She chooses an arm with a probability that grows with its expectation,
more sharply for larger beta:

    Q[arm] <- Q[arm] + alpha (reward - Q[arm]),   P(arm) in proportion to exp(beta Q[arm])

(Sutton and Barto 2018, Reinforcement Learning, 2nd ed., ch. 2; as a model of people: Daw 2011, in
Decision Making, Affect, and Learning.) The choices are *simulated* with a fixed seed, so the true
parameters are known.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from matplotlib.figure import Figure

import loopax
from loopax.demo.gallery import log_densities, pytensor_scan

TRIALS, PLAYERS = 200, 5
rng = np.random.default_rng(7)
true_alpha = rng.beta(3, 6, size=PLAYERS)
true_beta = rng.gamma(8, 0.6, size=PLAYERS)
PAYS = np.array([0.35, 0.65])  # how often each arm gives a reward of 1


def play(alpha, beta):
    expected, choices, rewards = np.full(2, 0.5), [], []
    for _ in range(TRIALS):
        p = np.exp(beta * expected)
        arm = int(rng.random() < p[1] / p.sum())
        reward = float(rng.random() < PAYS[arm])
        expected[arm] += alpha * (reward - expected[arm])
        choices.append(arm)
        rewards.append(reward)
    return choices, rewards


played = [play(a, b) for a, b in zip(true_alpha, true_beta, strict=True)]
choices = np.array([c for c, _ in played]).T  # (trials, players)
rewards = np.array([r for _, r in played]).T

# %%
# All players learn in parallel: the carry is a table of players by arms, and each trial changes
# one arm per player.


def build(scan):
    with pm.Model(coords={"player": np.arange(PLAYERS)}) as model:
        alpha = pm.Beta("alpha", 2.0, 2.0, dims="player")
        beta = pm.Gamma("beta", 4.0, 1.0, dims="player")

        def trial(expected, row):
            choice, reward = row
            difference = expected[:, 1] - expected[:, 0]
            log_p = -pt.softplus(-beta * difference * (2 * choice - 1))
            chosen = pt.eq(pt.arange(2), choice[:, None])
            expected = expected + alpha[:, None] * chosen * (
                reward[:, None] - expected
            )
            return expected, (log_p.sum(), expected)

        start = pt.constant(np.full((PLAYERS, 2), 0.5))
        _, (terms, path) = scan(
            trial, start, (pt.constant(choices), pt.constant(rewards))
        )
        pm.Potential("choices", terms.sum())
        pm.Deterministic("expected", path[:, 0])
    return model


model = build(loopax.scan)

# %%
# Compare with the same model written with `pytensor.scan` and compiled by PyMC:

log_densities(model, own=build(pytensor_scan))

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
posterior = trace.posterior
inside = 0
for name, truth in (("alpha", true_alpha), ("beta", true_beta)):
    draws = posterior[name].values.reshape(-1, PLAYERS)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    inside += ((low < truth) & (truth < high)).sum()
    for k in range(PLAYERS):
        print(
            f"{name}[{k}]  true {truth[k]:5.2f}   estimated {draws[:, k].mean():5.2f}",
            end="",
        )
        print(f"   95 % {low[k]:5.2f} to {high[k]:5.2f}")
print(f"{inside} of {2 * PLAYERS} intervals hold the truth")
assert inside >= 8

# %%

low, middle, high = np.quantile(
    posterior["expected"].values, [0.05, 0.5, 0.95], axis=(0, 1)
)
figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
trials = np.arange(TRIALS)
for arm, color in enumerate(("#d1495b", "#1f5f8b")):
    axes.fill_between(
        trials,
        low[:, arm],
        high[:, arm],
        color=color,
        alpha=0.2,
        linewidth=0,
    )
    axes.plot(
        trials,
        middle[:, arm],
        color=color,
        label=f"arm {arm}, which pays {PAYS[arm]:.0%}",
    )
chose = choices[:, 0]
axes.plot(trials, 1.05 - 1.1 * (1 - chose), "|", color="0.3", markersize=4)
axes.set(
    xlabel="trial",
    ylabel="expected reward",
    title="What the first player expects; marks: her choices",
)
axes.legend(loc="center right", framealpha=0.9)
axes.margins(x=0.01)
