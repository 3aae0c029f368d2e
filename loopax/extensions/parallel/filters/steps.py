"""Apply one step, given as a graph, to all steps at once or in a loop."""

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
    """Apply ``step`` to all steps at once; ``each`` flags the arguments with a row for each step."""
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
    """Run `scan` of ``step(carry, *args)``; ``each`` flags the arguments with a row for each step."""

    def with_rows(carry: object, rows: Sequence[Any]) -> Any:
        remaining = iter(rows)
        return step(carry, *(next(remaining) if e else x for x, e in zip(args, each, strict=True)))

    rows = tuple(x for x, e in zip(args, each, strict=True) if e)
    return scan(with_rows, init, rows, **options)


def with_first(first: TensorVariable, later: TensorVariable) -> Any:
    """Concatenate the row of the first step and the rows of the later ones."""
    return pt.concatenate([pt.expand_dims(first, 0), later])


def as_floats(x: TensorLike, name: str, ndims: Sequence[int], what: str) -> Variable:
    """Convert ``x`` to a tensor of floats; its rank must be one of ``ndims``.

    Raises `LoopTypeError` if it is anything else.
    """
    v: Any = pt.as_tensor(x)
    if v.type.ndim not in ndims or v.type.dtype.startswith("complex"):
        ranks = " or ".join(map(str, ndims))
        raise LoopTypeError(
            f"{what} takes {name} as real numbers of rank {ranks}, got {describe(v)}. If a matrix "
            "changes from step to step, its first axis counts the steps."
        )
    return v.astype("float64") if "int" in v.type.dtype or v.type.dtype == "bool" else v
