"""Right, wrong or refused: how far from each other two values may be, and what a difference is called.

How far a rounding reaches is measured: the written-out program runs again with a little noise behind each
node that rounds (Monte Carlo arithmetic). What crosses a jump then, of a floor or a comparison, is not held
against anyone; what is exact, an index or a floor of an input, stays exact.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.scalar import basic as scalar
from pytensor.tensor.elemwise import CAReduce, Elemwise

RELATIVE = {"float64": 1e-7, "float32": 2e-4}
ROUNDING = {"float64": 1e-14, "float32": 2e-6}
RUNS = 3

_EXACT = (
    *(scalar.Abs, scalar.Neg, scalar.Identity, scalar.Floor, scalar.Ceil, scalar.Trunc),
    *(scalar.RoundHalfToEven, scalar.RoundHalfAwayFromZero, scalar.Sign, scalar.Switch),
    *(scalar.Maximum, scalar.Minimum, scalar.Second, scalar.IntDiv, scalar.Mod, scalar.Clip),
)
_ROUNDING = {
    *("Dot", "BatchedDot", "CumOp", "Blockwise", "Softmax", "LogSoftmax", "Gemv", "Dot22"),
    *("StructuredDot", "SpSum", "SparseDot"),
}


def noisy(seed: int) -> Any:
    """What `Values` puts behind each node: a change of the size of a rounding, where there is one."""
    rng = np.random.default_rng(seed)

    def changed(node: Any, outputs: list[Any]) -> list[Any]:
        op = node.op
        if isinstance(op, Elemwise):
            rounds = not isinstance(op.scalar_op, _EXACT)
        elif isinstance(op, CAReduce):
            rounds = isinstance(op.scalar_op, scalar.Add | scalar.Mul)
        else:
            rounds = type(op).__name__ in _ROUNDING or "linalg" in type(op).__module__
        return [_changed(x, rng) for x in outputs] if rounds else outputs

    return changed


def _changed(x: Any, rng: Any) -> Any:
    if not isinstance(x, np.ndarray) or x.dtype.name not in ROUNDING:
        return x
    with np.errstate(all="ignore"):
        by = 1 + ROUNDING[x.dtype.name] * rng.uniform(-1, 1, x.shape)
        return np.asarray(x * by, x.dtype)


def reach(values: Sequence[Any], others: Sequence[Sequence[Any]]) -> list[np.ndarray]:
    """For each value how far it is from any of its others; infinite where that has no answer."""
    actual = []
    for k, x in enumerate(values):
        far = np.zeros(np.shape(x))
        for run in others:
            y = np.asarray(run[k])
            if y.shape != np.shape(x):
                far = np.full(np.shape(x), np.inf)
                break
            with np.errstate(all="ignore"):
                a, b = np.asarray(x, "float64"), y.astype("float64")
                apart = np.where(a == b, 0.0, np.abs(a - b))
                apart[np.isnan(a) & np.isnan(b)] = 0.0
                apart[np.isnan(apart)] = np.inf
            far = np.maximum(far, apart)
        actual.append(far)
    return actual


def difference(
    actual: Any,
    wanted: Any,
    far: np.ndarray,
    *,
    dtype: str | None = None,
    gradient: bool = False,
    defined: bool = True,
) -> str | None:
    """What tells a value from the one it should be, in words; None where nothing does.

    An op of PyTensor's may compute another dtype than it declares (the sums of a bool `CumOp` are int64):
    the declared one, ``dtype``, is right as well.

    Of a gradient, what is not finite says nothing: where a function has none, each rule gives another.
    Neither does nan, where it is of something that is not ``defined`` (finite) itself, or beside another:
    0 times nan is 0 where a rule has left out the term.
    """
    x, y = np.asarray(actual), np.asarray(wanted)
    if str(x.dtype) not in (dtype or str(y.dtype), str(y.dtype)) or x.shape != y.shape:
        return f"{x.dtype}{x.shape}, not {dtype or y.dtype}{y.shape}"
    if x.dtype != y.dtype:
        y = y.astype(x.dtype)
    if y.dtype.kind != "f":
        bad = (x != y) & ~(far > 0)
    else:
        a, b = x.astype("float64"), y.astype("float64")
        relative = max(RELATIVE.get(str(x.dtype), 1e-7), RELATIVE.get(str(y.dtype), 1e-7))
        with np.errstate(all="ignore"):
            scale = np.abs(b)
            if gradient:  # terms cancel
                scale = scale + 1e-3 * np.max(scale, initial=0.0, where=np.isfinite(scale))
            near = np.abs(a - b) <= relative * scale + 1e-12 + 100 * far
            near &= np.isfinite(a) & np.isfinite(b)
            same = near | (a == b) | (np.isnan(a) & np.isnan(b)) | np.isinf(far) | np.isnan(far)
        if gradient:
            nowhere = not defined or bool(np.isnan(b).any())
            same |= ~np.isfinite(b) | (nowhere & ~np.isfinite(a))
        bad = ~same
    if not bad.any():
        return None
    return f"{_short(x)}, not {_short(y)}"


def _short(x: np.ndarray) -> str:
    text = np.array2string(x, threshold=12, precision=12, separator=", ").replace("\n", "")
    return text if len(text) < 300 else text[:300] + "..."
