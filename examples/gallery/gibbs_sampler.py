"""A Gibbs sampler: the year in which the Nile fell

Shared variables hold the state of a Markov chain, and their updates are one sweep of a sampler. A
sweep draws the levels before and after a change, the precision, and the year of the change, each
given the others (Carlin, Gelfand and Smith 1992, Applied Statistics 41, 389). The chain runs in
three ways: as a PyTensor function, as native code with the same draws, and as a hundred chains in
one `lax.scan`.
"""

import jax
import numpy as np
import pytensor
from matplotlib.figure import Figure

import loopax
from examples import gibbs_sampler
from loopax.demo.gallery import compare_times
from loopax.demo.nile import read_flow

# 1871 to 1970: Durbin and Koopman (2012), table 1
years, flow = read_flow()

# %%
# PyTensor keeps the state in shared variables. `stateful()` does the same in native code, with
# its own context. It draws from a NumPy generator with the same seed, so the chains are equal,
# number by number.

flow_in, drawn, updates = gibbs_sampler.graph()
native = loopax.jaxify(
    [flow_in], drawn, updates=updates, backend="numba"
).stateful()
by_pytensor = pytensor.function(
    [flow_in], list(drawn.values()), updates=updates
)

for _ in range(50):
    for mine, theirs in zip(
        native(flow).values(), by_pytensor(flow), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8)
print("50 sweeps: native code draws what PyTensor draws")

# %%
# In JAX a sweep is a pure function of a context. `lax.scan` repeats it, and `vmap` runs a hundred
# chains.

CHAINS, SWEEPS = 100, 250
sweep = loopax.jaxify([flow_in], drawn, updates=updates)
starts = gibbs_sampler.chains(sweep, len(flow), CHAINS)
run = jax.jit(
    lambda contexts: gibbs_sampler.sample(
        sweep, contexts, flow, 50, SWEEPS - 50
    )
)
_, draws = run(starts)
level, year = np.asarray(draws["level"]), np.asarray(draws["year"])

last, counts = np.unique(year, return_counts=True)
likely = years[last[counts.argmax()] - 1]
assert likely == 1898  # the dam at Aswan was begun in 1899 (Cobb 1978)
print(
    f"last year of the high level: {likely}, with probability {counts.max() / counts.sum():.2f}"
)
print(
    f"level before {level[..., 0].mean():.0f}, after {level[..., 1].mean():.0f}, in 1e8 cubic metres"
)

# %%
# Compare the times of sweeps: one chain in native code, and a hundred chains at once in JAX.


def chunk(call, n=50):
    """`n` sweeps in a row, in Python's loop, as PyTensor's function is used."""
    for _ in range(n):
        call(flow)


compare_times(
    {
        "loopax, native, 50 sweeps": lambda: chunk(native),
        "PyTensor, default mode, 50 sweeps": lambda: chunk(by_pytensor),
    }
)
compare_times(
    {
        "loopax, JAX, 100 chains x 250": lambda: jax.block_until_ready(
            run(starts)
        ),
        "PyTensor, default mode, the same": lambda: chunk(
            by_pytensor, CHAINS * SWEEPS
        ),
    }
)

# %%

figure = Figure(figsize=(7, 3.2), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(2, 1))
left.plot(years, flow, ".", color="0.3", markersize=4)
before = np.arange(len(years)) < year[..., None]
mean = np.where(before, level[..., :1], level[..., 1:]).mean(axis=(0, 1))
left.plot(years, mean, color="#1f5f8b")
left.set(
    xlabel="year",
    ylabel="1e8 cubic metres",
    title="Flow, and the mean of its level",
)
right.bar(years[last - 1], counts / counts.sum(), color="#1f5f8b")
right.set(
    xlabel="last year of the high level",
    title="Posterior",
    xlim=(1885, 1910),
)
