"""The first op whose pullback finite differences contradict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable

from loopax.comparison.finite_differences import along, directions, inner
from loopax.diagnosis import Finding
from loopax.diagnosis.findings import at_node
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.loops import LoopRun
from loopax.diagnosis.numbers import is_inexact, number_in_words
from loopax.diagnosis.pullbacks import Pullbacks
from loopax.diagnosis.traps import Trap
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.evaluation.evaluate import apply
from loopax.ir.sequences import with_items

_NODES = 400  # the most pullbacks that are compared one by one


def wrong_pullback(
    pullbacks: Pullbacks, frame: Frame, names: Mapping[Variable, str], tolerance: float
) -> Finding | None:
    """The first node with a wrong pullback, in the program and in the end steps of its loops.

    Each pullback is compared with finite differences of the op, at the values of the run.
    """
    budget = _NODES
    stack = [frame]
    while stack:
        current = stack.pop()
        for node in current.order:
            run = current.inside.get(node)
            if isinstance(run, LoopRun) and run.n_done:
                stack += [run.frame(run.n_done - 1), run.frame(0)]
            elif isinstance(run, Frame):
                stack.append(run)
            elif budget > 0:
                budget -= 1
                finding = _wrong_pullback_of_node(pullbacks, current, node, names, tolerance)
                if finding is not None:
                    return finding
    return None


def _wrong_pullback_of_node(
    pullbacks: Pullbacks, frame: Frame, node: Apply, names: Mapping[Variable, str], tolerance: float
) -> Finding | None:
    values = [frame.value(v) for v in node.inputs]
    at = [k for k, v in enumerate(node.inputs) if is_float(v) and is_inexact(values[k])]
    outs = [k for k, v in enumerate(node.outputs) if is_float(v)]
    if not at or not outs or not all(np.all(np.isfinite(values[k])) for k in at):
        return None

    def f(*changed: object) -> list[Any]:
        arrays = [
            np.asarray(x, node.inputs[k].type.dtype) for k, x in zip(at, changed, strict=True)
        ]
        results = apply(node, with_items(values, at, arrays))
        return [np.asarray(results[k]) for k in outs]

    moving = [np.asarray(values[k]) for k in at]
    direction = directions(moving)
    weights = directions(f(*moving), seed=1)
    cotangents = with_items([None] * len(node.outputs), outs, weights)
    try:
        expected = [inner(weights, x) for x in along(f, moving, direction)]
        pulled = pullbacks.pull_node(node, values, cotangents)
    except Exception:  # an op without a derivative, or one that refuses changed values
        return None
    gradients = [
        np.zeros_like(x) if pulled[k] is None else pulled[k]
        for k, x in zip(at, moving, strict=True)
    ]
    own = inner(gradients, direction)
    finite = [x for x in expected if np.isfinite(x)]
    if not finite:
        return None
    nearest = min(finite, key=lambda x: abs(own - x))
    if not abs(own - nearest) > tolerance * max(abs(own), abs(nearest), 1e-8):
        return None
    why = (
        f"its gradient along a random direction is {number_in_words(own)}, and {number_in_words(nearest)} "
        "by finite differences."
    )
    return at_node(
        frame,
        node,
        names,
        kind="differs",
        trap=Trap(why),
        variable=node.outputs[0],
        in_gradient=True,
    )
