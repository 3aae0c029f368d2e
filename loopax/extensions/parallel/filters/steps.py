"""One step as a graph: for all steps at once, or in a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.base.errors import LoopTypeError, describe
from loopax.frontend.loops.scan import scan
from loopax.ir.batching.batch import vectorized


def for_all_steps(
    step: Callable[..., Sequence[Any]], *args: TensorVariable, each: Sequence[bool]
) -> Any:
    """The results of ``step`` for all steps; ``each`` tells which arguments have a row for each."""
    dummies = [
        TensorType(x.type.dtype, (None,) * (x.type.ndim - 1))() if e else x
        for x, e in zip(args, each, strict=True)
    ]
    outs = [pt.as_tensor(v) for v in step(*dummies)]
    rows = {d: x for d, x, e in zip(dummies, args, each, strict=True) if e}
    return vectorized(outs, rows)


def one_by_one(
    step: Callable[..., Any],
    init: object,
    *args: TensorVariable,
    each: Sequence[bool],
    **options: Any,
) -> Any:
    """`scan` of ``step(carry, *args)``, with a row of the arguments that have one for each step."""

    def with_rows(carry: object, rows: Sequence[Any]) -> Any:
        remaining = iter(rows)
        return step(carry, *(next(remaining) if e else x for x, e in zip(args, each, strict=True)))

    rows = tuple(x for x, e in zip(args, each, strict=True) if e)
    return scan(with_rows, init, rows, **options)


def with_first(first: TensorVariable, later: TensorVariable) -> Any:
    """The rows of all steps, from that of the first one and those of the others."""
    return pt.concatenate([pt.expand_dims(first, 0), later])


def as_floats(x: TensorLike, name: str, ndims: Sequence[int], what: str) -> Variable:
    """``x`` as a tensor of floats of one of those ranks.

    Raises `LoopTypeError` if it is something else.
    """
    v: Any = pt.as_tensor(x)
    if v.type.ndim not in ndims or v.type.dtype.startswith("complex"):
        ranks = " or ".join(map(str, ndims))
        raise LoopTypeError(
            f"{what} takes {name} as real numbers of rank {ranks}, got {describe(v)}. If a matrix "
            "changes from step to step, its first axis counts the steps."
        )
    return v.astype("float64") if "int" in v.type.dtype or v.type.dtype == "bool" else v
