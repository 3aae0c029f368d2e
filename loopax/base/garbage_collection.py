"""Python's collector of cyclic garbage, put off while something large is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """In the block no cycles are looked for, unless another thread turns the collector on again.

    What compiles makes many objects that live until its end, and each thousand of them has the collector
    look through all that there are, those of JAX and PyTensor too: a fifth of the time of native code,
    where PyMC is loaded. What is garbage is found after the block.

    >>> with uncollected():
    ...     gc.isenabled()
    False
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
