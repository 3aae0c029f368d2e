"""``NUMBA``: the record of this backend."""

from __future__ import annotations

from loopax.calling.backend import Backend
from loopax.calling.traced import TracedFunction
from loopax.lowering import NATIVE_PASSES, OPTIMIZERS
from loopax.numba_backend.callable.context import NumbaContext
from loopax.numba_backend.callable.function import CHECKS, NumbaFunction

NUMBA = Backend(
    name=NumbaFunction.backend_name,
    function=NumbaFunction,
    traced=TracedFunction,
    context=NumbaContext,
    passes=NATIVE_PASSES,
    choices={"checks": CHECKS, "loops": ("native",), "optimize": OPTIMIZERS},
    no_jit=(
        "With backend='numba' a program is always compiled, at its first call; to read it as Python, print "
        "f.source."
    ),
)
