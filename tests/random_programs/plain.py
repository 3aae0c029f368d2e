"""PyTensor at its plainest: node by node, in Python, nothing rewritten, and nothing compiled by the way."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytensor
from pytensor.compile.mode import Mode
from pytensor.link.vm import VMLinker

PLAIN = Mode(linker="py", optimizer=None)
# With PyTensor's rewrites; fusion makes nothing but code. What keeps the last rows of a trace alone gives
# a trace of which only the shape is left a row less: docs/pytensor_differences.md.
REWRITTEN = Mode(linker="py", optimizer="fast_run").excluding(
    "fusion", "local_add_of_sparse_write", "scan"
)
# A Scan wants a VM for its step.
PLAIN_STEP = Mode(linker=VMLinker(use_cloop=False, c_thunks=False), optimizer=None)


@contextmanager
def plainly() -> Iterator[None]:
    """The default mode runs in Python too: an OpFromGraph compiles its graph in it, by Numba otherwise."""
    with pytensor.config.change_flags(linker="py", cxx="", blas__ldflags=""):
        yield
