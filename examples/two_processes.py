"""The panel of `data_parallel` on several processes, which `jax.distributed` connects.

Each process has its own part of the data and its own devices; the program is the same in all, and so is the
result. On a cluster a process runs on each machine; here two are started on this one:

    python -m examples.two_processes
"""

import socket
import subprocess
import sys

import jax
import numpy as np

from examples.data_parallel import DIVIDED, build, over_devices, simulated


def process(address, count, number):
    """What each process runs: its own series in, the log-density of all of them and its gradient out."""
    jax.config.update("jax_num_cpu_devices", 1)
    jax.distributed.initialize(address, count, number)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("devices",))
    panel = simulated()
    own = np.array_split(panel, count)[
        number
    ]  # who has data on disk reads its own alone
    sharding = jax.sharding.NamedSharding(mesh, DIVIDED)
    divided = jax.make_array_from_process_local_data(
        sharding, own, panel.shape
    )
    return over_devices(build(), mesh)(np.zeros(2), divided)


def run(count=2):
    """The lines that the processes print."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    command = [
        sys.executable,
        "-m",
        "examples.two_processes",
        address,
        str(count),
    ]
    started = [
        subprocess.Popen(
            [*command, str(k)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for k in range(count)
    ]
    try:
        printed = [p.communicate(timeout=120) for p in started]
    finally:
        for p in started:
            p.kill()
    for p, (_, errors) in zip(started, printed, strict=True):
        if p.returncode:
            raise RuntimeError(errors)
    return [
        out.splitlines()[-1] for out, _ in printed
    ]  # Gloo, which connects them, says so before


def main():
    if len(sys.argv) > 1:
        address, count, number = sys.argv[1:]
        value, slope = process(address, int(count), int(number))
        print(f"{number}: {float(value)!r} {np.asarray(slope).tolist()!r}")
    else:
        print("\n".join(run()))


if __name__ == "__main__":
    main()
