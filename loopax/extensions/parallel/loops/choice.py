"""Decide whether a loop runs in parallel over its steps: `jaxify(..., parallel=)`.

On a CPU a loop that is compiled as one function takes 7 to 20 ns a step. Blocks (`blocks.py`) do the work
twice, through memory. On 2 cores, for 1,000 to 1,000,000 steps of 1, 2 and 3 numbers in 16 to 1024 blocks,
they took 0.9 to 10 times as long (more is in docs/parallel_in_time.md). So "auto" runs the steps
sequentially there: the program is then the one of ``parallel=False``, operation by operation.

On an accelerator each step is at least one kernel, with some microseconds of launch overhead, while all
blocks together are one kernel. There the number of sequential kernels counts.
"""

from __future__ import annotations

from math import log2
from typing import Any

from loopax.base.upstream.jax import default_platform

# Elements of all matrices together, 1 GiB of float64: a loop with more would run out of memory.
MOST_NUMBERS = 2**27
_STEPS_INSIDE, _KERNELS = 2 * 16, 3  # of blocks: sequential steps, and the kernels of each
_WIDEST = 16  # with "auto": largest state; a matrix product costs that many times a step


def obstacle(parallel: Any) -> str | None:
    """The reason why no loop runs in parallel with this option on this platform; None where one may."""
    if parallel is False:
        return "parallel=False"
    if parallel == "auto" and default_platform() == "cpu":
        return "on a CPU blocks of steps are slower"
    return None


def is_worth(n: int, size: int) -> bool:
    """Whether an accelerator is faster with blocks of ``n`` steps of ``size`` numbers."""
    one_after_another = _STEPS_INSIDE + 2 * log2(max(n, 2))
    return size <= _WIDEST and n > 2 * _KERNELS * one_after_another
