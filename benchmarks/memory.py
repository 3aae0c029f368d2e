"""Memory that programs hold: how much each takes, and how much is left of those that are dropped.

    python -m benchmarks.memory [FORM] [NEW] [EQUAL]

FORM is ``native`` (the backend "numba"), ``in_jax`` (native code in JAX) or ``xla``.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

import jax
import numpy as np
import pytensor.tensor as pt

import loopax

FORMS: dict[str, dict[str, Any]] = {
    "native": {"backend": "numba"},
    "in_jax": {"loops": "native"},
    "xla": {"loops": "xla"},
}
X = np.linspace(0.1, 1.0, 50)


def megabytes() -> float:
    """The memory of this process that is in use, on Linux."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def called(form: str, factor: float) -> Any:
    """A loop with ``factor`` as a constant, which makes it another program, and its first result."""
    x = pt.dvector("x")

    def step(carry: Any, row: Any) -> Any:
        new = pt.tanh(carry * factor + row)
        return new, new**2

    final, ys = loopax.scan(step, pt.constant(0.0, dtype="float64"), x)
    f = loopax.jaxify([x], final + ys.sum(), **FORMS[form])
    f(X)
    return f


def measure(form: str, n_new: int, n_equal: int) -> None:
    """Print the megabytes that each of some programs takes, and each of some that are equal."""
    kept = [called(form, 2.0)]
    for what, count, factors in (
        ("new programs", n_new, lambda k: 1 + 1 / (k + 7)),
        ("equal programs", n_equal, lambda k: 2.0),
    ):
        gc.collect()
        before = megabytes()
        kept += [called(form, factors(k)) for k in range(count)]
        gc.collect()
        held = megabytes()
        del kept[1:]
        gc.collect()
        jax.clear_caches()
        gc.collect()
        after = megabytes()
        print(
            f"{form}, {count} {what}: {(held - before) / count:.2f} MB each, "
            f"{(after - before) / count:.2f} after they are dropped"
        )


if __name__ == "__main__":
    form, new, equal = [*sys.argv[1:], *("native", 50, 200)[len(sys.argv) - 1 :]]
    measure(str(form), int(new), int(equal))
