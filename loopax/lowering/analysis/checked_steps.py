"""The errors of `loopax.ir.evaluate.check_lengths`, for a loop that has become something else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list import length

from loopax.ir import Scan, ScanArgs
from loopax.ir.checked import Checked
from loopax.ir.sizes.size import Size, counts_steps
from loopax.ir.sizes.sizes import Sizes

Conditions = Sequence[tuple[str, Any]]  # a message, and what must hold


def step_conditions(scan: Scan, args: ScanArgs, sizes: Sizes) -> list[tuple[str, Any]]:
    """What must hold of the lengths that ``scan`` is given, as far as ``sizes`` cannot prove it."""
    n_steps, known = args.n_steps, sizes.of(args.n_steps)
    found: list[tuple[str, Any]] = []
    if not _is_a_length(known, sizes):
        message = f"{scan} was asked for a negative number of steps: a loop takes 0 or more."
        found.append((message, pt.ge(n_steps, 0)))
    for k, x in enumerate(args.sequences):
        if sizes.length(x) == known:
            continue
        rows = x.shape[0] if isinstance(x.type, DenseTensorType) else length(x)
        message = (
            f"{scan} has a sequence, number {k}, that does not have one row for each step. "
            "Slice the sequence, or lower n_steps."
        )
        found.append((message, pt.eq(rows, n_steps)))
    return found


def checked(x: Any, conditions: Conditions) -> Any:
    """``x``, which raises ValueError where a condition does not hold."""
    for message, condition in conditions:
        x = Checked(ValueError, message)(x, condition)
    return x


def is_checked(n_steps: Any) -> bool:
    """Whether something is checked where the scalar ``n_steps`` is computed."""
    stack, seen = [n_steps], {n_steps}
    while stack:
        node = stack.pop().owner
        if node is None or isinstance(node.op, Shape | Shape_i):
            continue
        if isinstance(node.op, CheckAndRaise):
            return True
        new = {v for v in node.inputs if getattr(v.type, "ndim", 0) == 0} - seen
        seen |= new
        stack += new
    return False


def _is_a_length(size: Size, sizes: Sizes) -> bool:
    """Whether ``size`` is 0 or more by itself, and not because another loop would have raised."""
    return sizes.at_least(size) and all(
        not isinstance(atom, Variable) or counts_steps(atom) for atom, _ in size.terms
    )
