"""Programs as `jaxify` chooses to run them on the CPU beside the same programs written by hand in JAX.

Those of `native`, with shapes declared: forward, value and gradient, a Hessian-vector product, 64 rows of
value and gradient by ``jax.vmap``, value and pushforward, and 64 rows of these, all under ``jax.jit``.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import jax_hand
from benchmarks.measure import own_cache, repeated_calls
from benchmarks.native import PROGRAMS, Native
from benchmarks.programs import ar2_hand, garch_hand, kalman_hand
from benchmarks.report import KERNELS, Figure
from loopax import jaxify

RTOL, ATOL, ROWS = 1e-7, 1e-9, 64
LIMITS = {
    "forward": 1.0,
    "gradient": 1.0,
    "HV product": 1.1,
    f"{ROWS} rows": 1.1,
    "pushforward": 1.0,
    f"{ROWS} rows of it": 1.1,
}


class ByHand(NamedTuple):
    """What is beside a program: its value, and where JAX cannot derive that, what it can derive."""

    value: Callable
    derivable: Callable


HAND = {
    "garch": ByHand(garch_hand, garch_hand),
    "ar2": ByHand(ar2_hand, ar2_hand),
    "hmm": ByHand(jax_hand.hmm, jax_hand.hmm),
    "hmm_log": ByHand(jax_hand.hmm_log, jax_hand.hmm_log),
    "kalman": ByHand(kalman_hand, kalman_hand),
    "rnn": ByHand(jax_hand.rnn, jax_hand.rnn),
    "runge_kutta": ByHand(jax_hand.runge_kutta, jax_hand.runge_kutta),
    "nested": ByHand(jax_hand.nested, jax_hand.nested),
    "newton": ByHand(*jax_hand.NEWTON),
    "newton_many": ByHand(*jax_hand.NEWTON_MANY),
    "newton_data": ByHand(*jax_hand.NEWTON_DATA),
}


def kernels(pairs: int, names: Any, say: Callable[[str], None]) -> Iterator[Figure]:
    for name in names or PROGRAMS:
        p = PROGRAMS[name][0]
        for comparison, limit in LIMITS.items():
            say(f"kernels, {p.title}, {comparison}")
            by_hand = HAND[name].value if comparison == "forward" else HAND[name].derivable
            with own_cache():
                measured = compared(p, by_hand, comparison, pairs)
            yield Figure(p.title, comparison, KERNELS, limit, measured)


def compared(p: Native, by_hand: Callable, comparison: str, pairs: int) -> Any:
    inputs, out = p.graph()
    wrt = tuple(k for k, v in enumerate(inputs) if v.name in p.wrt)
    args = [jnp.asarray(x) for x in p.values()]
    if comparison.startswith(str(ROWS)):
        scale = jnp.linspace(0.99, 1.01, ROWS)
        args = [jnp.multiply.outer(scale, x) if k in wrt else x for k, x in enumerate(args)]

    return beside(lambda: jaxify(inputs, out), by_hand, args, comparison, wrt, pairs)


def beside(
    ours: Callable[[], Callable],
    theirs: Callable,
    args: Sequence[Any],
    comparison: str,
    wrt: tuple[int, ...],
    pairs: int,
) -> Any:
    """Timings of two functions under ``jax.jit``, of which ``ours`` is made again for each pair.

    Their results are compared before.
    """

    def jitted(f: Callable) -> Callable:
        return jax.jit(transformed(f, comparison, wrt))

    expected = jitted(theirs)(*args)
    # The gradient of what has converged is 0.
    atol = ATOL * max(np.max(np.abs(x)) for x in expected)
    for x, y in zip(jitted(ours())(*args), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=RTOL, atol=atol)
    return repeated_calls(lambda: (jitted(ours()), jitted(theirs)), args, pairs)


def transformed(f: Callable, comparison: str, wrt: tuple[int, ...]) -> Callable:
    """A function that returns a flat list of arrays."""
    both = jax.value_and_grad(f, wrt)

    def flat(*args: Any) -> list:
        return jax.tree.leaves(both(*args))

    def product(*args: Any) -> list:
        def slopes(*moving: Any) -> Any:
            by_position = dict(zip(wrt, moving, strict=True))
            return jax.grad(f, wrt)(*(by_position.get(k, x) for k, x in enumerate(args)))

        at = tuple(args[k] for k in wrt)
        return list(jax.jvp(slopes, at, at)[1])

    def pushed(*args: Any) -> list:
        def value(*moving: Any) -> Any:
            by_position = dict(zip(wrt, moving, strict=True))
            return f(*(by_position.get(k, x) for k, x in enumerate(args)))

        at = tuple(args[k] for k in wrt)
        return list(jax.jvp(value, at, at))

    def rows(one: Callable) -> Callable:
        def of_all(*args: Any) -> list:
            return jax.vmap(one, tuple(0 if k in wrt else None for k in range(len(args))))(*args)

        return of_all

    forms: dict[str, Callable] = {
        "forward": lambda *args: [f(*args)],
        "gradient": flat,
        "HV product": product,
        f"{ROWS} rows": rows(flat),
        "pushforward": pushed,
        f"{ROWS} rows of it": rows(pushed),
    }
    return forms[comparison]
