"""The length errors that the evaluator's `check_lengths` raises, for a loop that has been rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import walk
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list import length

from loopax.ir import Scan, ScanArgs
from loopax.ir.ops.checked import Checked
from loopax.ir.sizes import Dims

Conditions = Sequence[tuple[str, Any]]  # an error message, and the condition that must hold


def step_conditions(scan: Scan, args: ScanArgs, dims: Dims) -> list[tuple[str, Any]]:
    """Conditions on the lengths of the inputs of ``scan`` that ``dims`` cannot prove.

    They do not rely on the loop's own errors: the loop that would raise may be the one that is removed.
    """
    n_steps, known = args.n_steps, dims.value(args.n_steps)
    conditions: list[tuple[str, Any]] = []
    if not dims.at_least(known):
        message = f"{scan} got a negative number of steps, but a loop takes 0 or more."
        conditions.append((message, pt.ge(n_steps, 0)))
    for k, x in enumerate(args.sequences):
        if dims.length(x) == known:
            continue
        rows = x.shape[0] if isinstance(x.type, DenseTensorType) else length(x)
        # Without the user's names: equal programs have one key, and the message is a part of it.
        message = (
            f"Sequence {k} of {scan} does not have one row for each step. Slice the sequence, or lower "
            "the number of steps."
        )
        conditions.append((message, pt.eq(rows, n_steps)))
    return conditions


def checked(x: Any, conditions: Conditions) -> Any:
    """Wrap ``x`` in checks that raise ValueError where a condition does not hold."""
    for message, condition in conditions:
        x = Checked(ValueError, message)(x, condition)
    return x


def is_checked(n_steps: Variable) -> bool:
    """Whether the computation of the scalar ``n_steps`` contains a check."""

    def scalars(v: Variable) -> list[Any]:
        if v.owner is None or isinstance(v.owner.op, Shape | Shape_i):
            return []
        return [u for u in v.owner.inputs if getattr(u.type, "ndim", 0) == 0]

    read = walk([n_steps], scalars)
    return any(v.owner is not None and isinstance(v.owner.op, CheckAndRaise) for v in read)
