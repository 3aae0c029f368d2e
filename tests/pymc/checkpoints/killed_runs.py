"""A program that draws, is killed at chosen points, and goes on.

    python -m tests.pymc.checkpoints.killed_runs SAMPLER FOLDER POINT ...

A point is the number of a file that the process writes, and the moment: ``3-`` before the file has its
name, ``3+`` after. The program prints whether the draws in the end are those of a run that was not stopped.
"""

import os
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pymc as pm

import loopax.pymc
from loopax.base.private_folder import PrivateFolder
from loopax.pymc.checkpoints import blocks

ROWS = np.random.default_rng(8).normal(size=(20, 2))
CLOCKS = ("process_time_diff", "perf_counter_diff", "perf_counter_start")


def model(sampler="pymc"):
    with pm.Model(coords={"slope": ["a", "b"]}) as model:
        slopes = pm.Normal("slopes", dims="slope")
        scale = pm.HalfNormal("scale")
        pm.Deterministic("twice", 2 * slopes, dims="slope")
        mean = pm.Data("x", ROWS) @ slopes
        if sampler == "pymc":
            mean = mean + 0.1 * pm.Poisson("count", 2.0)
        pm.Normal("y", mean, scale, observed=ROWS @ [1.0, -0.5])
    return model


def draw(sampler, **options):
    options = {"draws": 30, "tune": 30, "chains": 2, "cores": 1, "seed": 3, **options}
    return loopax.pymc.sample(
        model(sampler),
        sampler,
        **options,
        progress=False,
        quiet=True,
        compute_convergence_checks=False,
    )


def killed(point, sampler, folder, **options):
    """The status of a process that draws, and is killed when it has written ``point``."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    written, rename = [], PrivateFolder.rename

    def counted(self, old, new):
        written.append(new)
        if f"{len(written)}-" == point:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(self, old, new)
        if f"{len(written)}+" == point:
            os.kill(os.getpid(), signal.SIGKILL)

    PrivateFolder.rename = counted
    draw(sampler, checkpoint=folder, **options)
    os._exit(0)


def same(one, other):
    """Whether two results have equal numbers to the last bit, but for those of a clock."""
    return all(
        variable.dtype == object
        or name.endswith(CLOCKS)
        or variable.values.tobytes() == other[group][name].values.tobytes()
        for group in ("posterior", "sample_stats")
        for name, variable in one[group].data_vars.items()
    )


def main(sampler, folder, *points):
    blocks._SECONDS = blocks._SHARE = 0  # a file for each draw
    os.fsync = lambda handle: None  # the machine does not stop, and disks are slow
    options = {}
    if sampler == "pymc in processes":
        sampler, options = "pymc", {"cores": 2, "mp_ctx": "fork"}
    for point in points:  # at first: threads, of JAX say, do not survive a fork
        status = killed(point, sampler, folder, **options)
        assert os.WIFSIGNALED(status), f"{point}: it was not killed, {status}"
        print(point, len(list(Path(folder).glob("*.npz"))), "files")
    resumed = draw(sampler, checkpoint=folder, **options)
    whole = draw(sampler, checkpoint=folder + "-whole", **options)
    print("equal" if same(resumed, whole) else "different")
    print("as without" if same(whole, draw(sampler, **options)) else "other draws than without")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
