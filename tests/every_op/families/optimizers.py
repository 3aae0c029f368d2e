"""Minima and roots, by SciPy."""

from typing import Any

from tests.every_op.record import A, B, given

TITLE = "Optimizers"
SLOW = {(name, c) for name in ("MinimizeOp", "RootOp") for c in ("second", "loopax.grad")}
REASONS = [
    "`MinimizeOp`, `MinimizeScalarOp`, `RootOp`, `RootScalarOp`: SciPy's algorithms run on the host."
]
BASES = dict.fromkeys(
    ["ScipyScalarWrapperOp", "ScipyVectorWrapperOp", "ScipyWrapperOp"], "a base class"
)
START, WEIGHTS = given([0.4, 0.8], "start"), given([1.5, 2.5], "weights")


def _optimizers() -> Any:
    from pytensor.tensor import optimize

    return optimize


EXAMPLES: dict[str, Any] = {
    "MinimizeScalarOp": lambda: _optimizers().minimize_scalar((A - B) ** 2 + A**4 / 10, A)[0],
    "MinimizeOp": lambda: _optimizers().minimize(
        ((START - WEIGHTS) ** 2).sum() + (START**4).sum() / 10, START
    )[0],
    "RootScalarOp": lambda: _optimizers().root_scalar(A**3 + A - B, A)[0],
    "RootOp": lambda: _optimizers().root(START**3 + START - WEIGHTS, START)[0],
}
