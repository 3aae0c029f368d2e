"""The log-density of a panel and its gradient, with the series divided over two devices and on one.

`examples/data_parallel.py`, in a process of its own in which the CPU is two devices: on a machine of two
cores each has one. Both programs are of 512 series of 10,000 steps, as native code and as XLA's loops.
(Calls of less than some 5 ms gain little: starting two devices and joining them is half a millisecond.) On
one device XLA's loops have 1.1 to 1.4 cores at work already; native code has one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import jax
import numpy as np

from benchmarks.comparisons import check_agreement
from benchmarks.measure import Pairs, repeated_calls
from benchmarks.report import DEVICES, Figure
from examples import data_parallel

LIMIT = 1 / 1.6  # a speed-up of 1.6
LOOPS = ("native", "xla")


def devices(pairs: int, say: Callable[[str], None]) -> Iterator[Figure]:
    """Two devices beside one."""
    say("devices")
    flags = "--xla_force_host_platform_device_count=2"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks.devices", str(pairs)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    for loops, seconds in json.loads(done.stdout.splitlines()[-1]):
        yield Figure(
            "panel", f"2 devices, {loops}", DEVICES, LIMIT, Pairs(*map(np.asarray, seconds))
        )


def measured(loops: str, pairs: int) -> Pairs:
    panel, theta = data_parallel.simulated(series=512, steps=10_000), np.zeros(2)
    functions = []
    for count in (2, 1):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:count]), ("devices",))
        rows = jax.sharding.NamedSharding(mesh, data_parallel.DIVIDED)
        functions.append(
            partial(
                data_parallel.over_devices(data_parallel.build(loops), mesh),
                jax.device_put(theta, jax.sharding.NamedSharding(mesh, data_parallel.EVERYWHERE)),
                jax.device_put(panel, rows),
            )
        )
    check_agreement(*(f() for f in functions))
    return repeated_calls(lambda: tuple(functions), [], pairs)


if __name__ == "__main__":
    timings = [(loops, measured(loops, int(sys.argv[1]))) for loops in LOOPS]
    print(json.dumps([(loops, [list(map(float, side)) for side in p]) for loops, p in timings]))
