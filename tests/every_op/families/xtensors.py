"""Arrays with named axes."""

from typing import Any

import pytensor.tensor as pt

from tests.every_op.families import draws
from tests.every_op.record import K, M, U, V, positive_definite

TITLE = "Named axes"
SLOW: set[tuple[str, str]] = set()
REASONS: list[str] = []
BASES = dict.fromkeys(["XOp", "XTypeCastOp"], "a base class")


def px() -> Any:
    import pytensor.xtensor as module

    return module


def x(v: Any = M, dims: Any = ("row", "col")) -> Any:
    return px().as_xtensor(v, dims=dims)


def v(values: Any = V) -> Any:
    return x(values, ("col",))


def values(*xtensors: Any) -> Any:
    return [a.values for a in xtensors]


def blockwise() -> Any:
    from pytensor.xtensor.linalg import cholesky

    return values(cholesky(x(positive_definite()), dims=("row", "col")))


def normal() -> Any:
    from pytensor.xtensor import random
    from pytensor.xtensor.random.type import rng_to_xrng

    rng, mean = rng_to_xrng(draws.rng()), v()
    actual = random.normal(mean, 1.0, extra_dims={"row": 2}, rng=rng, return_next_rng=True)[1]
    return draws.along_with(actual.values, V)


def back_and_forth() -> Any:
    from pytensor.xtensor.random.type import rng_to_xrng, xrng_to_rng

    rng = xrng_to_rng(rng_to_xrng(draws.rng()))
    return draws.along_with(pt.random.normal(V, 1.0, rng=rng, return_next_rng=True)[1], V)


EXAMPLES: dict[str, Any] = {
    "XTensorFromTensor": lambda: values(x() * 2.0),
    "TensorFromXTensor": lambda: values(x() + v()),
    "Rename": lambda: values(x().rename(row="line")),
    "Index": lambda: values(x()[:, 1:], x().isel(col=[2, 0]), v()[K]),
    "IndexUpdate": lambda: values(x()[:, 1:].set(0.5), v()[[0, 0]].inc(v(U)[:2])),
    "Dot": lambda: values(px().math.dot(x(), v(), dim="col") if hasattr(px().math, "dot") else 0),
    "XReduce": lambda: values(x().sum("row"), x().max("col")),
    "XCumReduce": lambda: values(x().cumsum("row")),
    "Broadcast": lambda: values(*px().broadcast(x(), v())),
    "Concat": lambda: values(px().concat([x(), x() * 2.0], dim="row")),
    "ExpandDims": lambda: values(v().expand_dims("row")),
    "Squeeze": lambda: values(v().expand_dims("row").squeeze("row")),
    "Stack": lambda: values(px().shape.stack(x(), all=("row", "col"))),
    "UnStack": lambda: values(
        px().shape.unstack(px().shape.stack(x(), all=("row", "col")), all={"row": 2, "col": 3})
    ),
    "Transpose": lambda: values(x().transpose("col", "row")),
    "XElemwise": lambda: values(px().math.exp(v()) * x()),
    "XBlockwise": blockwise,
    "XRV": normal,
    "RNGToXRNG": back_and_forth,
    "XRNGToRNG": back_and_forth,
}
