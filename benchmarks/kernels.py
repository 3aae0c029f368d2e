"""Programs as `jaxify` chooses to run them on the CPU beside the same programs as JAX's operations.

Those of `native`, with shapes declared: forward, value and gradient, a Hessian-vector product, and 64 rows
of value and gradient by ``jax.vmap``. JAX's operations are within a few percent of what is written by hand
in JAX, as the first table shows of three programs.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import repeated_calls
from benchmarks.native import PROGRAMS, Native
from benchmarks.report import KERNELS, Figure
from loopax import jaxify

RTOL, ATOL, ROWS = 1e-7, 1e-9, 64
LIMITS = {"forward": 1.0, "gradient": 1.0, "HV product": 1.1, f"{ROWS} rows": 1.1}


def kernels(pairs: int, names: Any, say: Callable[[str], None]) -> Iterator[Figure]:
    for name in names or PROGRAMS:
        p = PROGRAMS[name][0]
        for comparison, limit in LIMITS.items():
            say(f"kernels, {p.title}, {comparison}")
            yield Figure(p.title, comparison, KERNELS, limit, compared(p, comparison, pairs))


def compared(p: Native, comparison: str, pairs: int) -> Any:
    inputs, out = p.graph()
    wrt = tuple(k for k, v in enumerate(inputs) if v.name in p.wrt)
    args = [jnp.asarray(x) for x in p.values()]
    if comparison.endswith("rows"):
        scale = jnp.linspace(0.99, 1.01, ROWS)
        args = [jnp.multiply.outer(scale, x) if k in wrt else x for k, x in enumerate(args)]

    def made(loops: str) -> Callable:
        return jax.jit(transformed(jaxify(inputs, out, loops=loops), comparison, wrt))

    ours, theirs = made("auto")(*args), made("xla")(*args)
    atol = ATOL * max(np.max(np.abs(x)) for x in theirs)  # the gradient of what has converged is 0
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=RTOL, atol=atol)
    return repeated_calls(lambda: (made("auto"), made("xla")), args, pairs)


def transformed(f: Callable, comparison: str, wrt: tuple[int, ...]) -> Callable:
    """A function that returns a flat list of arrays."""
    both = jax.value_and_grad(f, wrt)

    def flat(*args: Any) -> list:
        return jax.tree.leaves(both(*args))

    def product(*args: Any) -> list:
        def slopes(*moving: Any) -> Any:
            given = dict(zip(wrt, moving, strict=True))
            return jax.grad(f, wrt)(*(given.get(k, x) for k, x in enumerate(args)))

        at = tuple(args[k] for k in wrt)
        return list(jax.jvp(slopes, at, at)[1])

    def rows(*args: Any) -> list:
        return jax.vmap(flat, tuple(0 if k in wrt else None for k in range(len(args))))(*args)

    forms: dict[str, Callable] = {
        "forward": lambda *args: [f(*args)],
        "gradient": flat,
        "HV product": product,
        f"{ROWS} rows": rows,
    }
    return forms[comparison]
