"""What an op costs per entry, in native code: the figures of `loopax/facts/costs.py`.

Each is the time of a program with the op less that of the same program without it, in turns, per entry,
for a few numbers of entries: a small array is in the first cache, a large one in none.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as scalar_math
import pytensor.tensor as pt
from pytensor.tensor.elemwise import Elemwise

from benchmarks.measure import in_rounds, no_collection
from loopax import jaxify

SIZES = 100, 2_000, 50_000
ROUNDS = 25
BATCH = 0.002  # seconds

UNARY = "Neg Abs Sqr Sqrt Reciprocal Exp Expm1 Log Log1p Tanh Sigmoid Softplus Log1mexp".split()
RARE = "Erf Erfc Erfcx GammaLn Psi Sin Cos".split()
BINARY = "Add Mul Sub TrueDiv Maximum Pow".split()


def ops() -> Iterator[tuple[str, Any]]:
    """Names, and functions of a vector of numbers in (0, 1)."""
    for name in UNARY + RARE:
        scalar = _scalar(name)
        sign = -1.0 if name == "Log1mexp" else 1.0
        yield name, lambda x, scalar=scalar, sign=sign: Elemwise(scalar)(sign * x)
    for name in BINARY:
        scalar = _scalar(name)
        yield name, lambda x, scalar=scalar: Elemwise(scalar)(x, x[::-1])
    yield "GE", lambda x: pt.switch(x >= x[::-1], 1.0, 2.0)
    yield "Switch", lambda x: pt.switch(x >= 0.5, x, x[::-1])
    yield "gather", lambda x: x[_shuffled(x)]
    yield "scatter", lambda x: pt.zeros(x.type.shape)[_shuffled(x)].set(x)


def _scalar(name: str) -> Any:
    scalar_ops = {type(op).__name__: op for m in (scalar_math, ps) for op in vars(m).values()}
    return scalar_ops[name]


def _shuffled(x: Any) -> np.ndarray:
    return np.random.default_rng(0).permutation(x.type.shape[0])


def costs(sizes: tuple[int, ...] = SIZES) -> Iterator[tuple[str, list[float]]]:
    """Nanoseconds per entry of each op, one for each size."""
    for name, of in ops():
        yield name, [_nanoseconds(of, n) for n in sizes]


def _nanoseconds(of: Any, n: int) -> float:
    x = pt.tensor("x", shape=(n,), dtype="float64")
    value = np.random.default_rng(1).uniform(0.1, 0.9, n)
    # What is compared reads x as well, so that the difference is the op.
    with_op = jaxify([x], pt.sum(of(x)), backend="numba")
    without = jaxify([x], pt.sum(x + x[::-1]), backend="numba")

    def side(f: Any) -> Any:
        f(value)
        start = time.perf_counter()
        f(value)
        calls = max(1, round(BATCH / (time.perf_counter() - start)))

        def batch() -> float:
            start = time.perf_counter()
            for _ in range(calls):
                f(value)
            return (time.perf_counter() - start) / calls

        return batch

    with no_collection():
        seconds = in_rounds([side(with_op), side(without)], ROUNDS)
    return 1e9 * float(np.median(seconds[0]) - np.median(seconds[1])) / n


def main() -> None:
    print("op".ljust(16), *(f"{n:>9}" for n in SIZES))
    for name, figures in costs():
        print(name.ljust(16), *(f"{x:9.2f}" for x in figures), flush=True)


if __name__ == "__main__":
    main()
