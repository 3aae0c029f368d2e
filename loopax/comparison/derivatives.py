"""Gradients and second derivatives of a function of arrays, and what finite differences say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable

from loopax.diagnosis import Finding
from loopax.diagnosis.findings import at_node
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.loops import LoopRun
from loopax.diagnosis.numbers import is_inexact, number_in_words
from loopax.diagnosis.pullbacks import Pullbacks
from loopax.diagnosis.traps import Trap
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.evaluation.evaluate import apply

Arrays = Sequence[Any]
_NODES = 400  # whose pullbacks are tried one by one


def directions(values: Arrays, seed: int = 0) -> list[Any]:
    """A random direction for each array, of unit scale."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=np.shape(x)).astype(np.asarray(x).dtype) for x in values]


def along(f: Callable[..., Any], values: Arrays, direction: Arrays) -> Any:
    """The derivative of ``f`` along ``direction`` by central differences of two step sizes.

    Their difference, by which Richardson's extrapolation is better than either, is of the fourth order.
    """
    scale = max([1.0, *(float(np.max(np.abs(x), initial=0.0)) for x in values)])
    step = np.finfo(np.float64).eps ** 0.2 * scale

    def central(h: float) -> Any:
        up = f(*(x + h * d for x, d in zip(values, direction, strict=True)))
        down = f(*(x - h * d for x, d in zip(values, direction, strict=True)))
        return [
            (np.asarray(a, float) - np.asarray(b, float)) / (2 * h)
            for a, b in zip(up, down, strict=True)
        ]

    return [(4 * a - b) / 3 for a, b in zip(central(step / 2), central(step), strict=True)]


def inner(ones: Arrays, others: Arrays) -> float:
    """The inner product of two lists of arrays."""
    return float(
        sum(np.sum(np.asarray(a) * np.asarray(b)) for a, b in zip(ones, others, strict=True))
    )


def wrong_pullback(
    pullbacks: Pullbacks, frame: Frame, names: Mapping[Variable, str], tolerance: float
) -> Finding | None:
    """The first node, in the program and in the first and last steps of its loops, with a wrong pullback.

    Each is compared with differences of what the op computes, at the values of the run.
    """
    left = _NODES
    stack = [frame]
    while stack:
        current = stack.pop()
        for node in current.order:
            run = current.inside.get(node)
            if isinstance(run, LoopRun) and run.n_done:
                stack += [run.frame(run.n_done - 1), run.frame(0)]
            elif isinstance(run, Frame):
                stack.append(run)
            elif left > 0:
                left -= 1
                finding = _of_node(pullbacks, current, node, names, tolerance)
                if finding is not None:
                    return finding
    return None


def _of_node(
    pullbacks: Pullbacks,
    frame: Frame,
    node: Apply,
    names: Mapping[Variable, str],
    tolerance: float,
) -> Finding | None:
    values = [frame.value(v) for v in node.inputs]
    at = [k for k, v in enumerate(node.inputs) if is_float(v) and is_inexact(values[k])]
    outs = [k for k, v in enumerate(node.outputs) if is_float(v)]
    if not at or not outs or not all(np.all(np.isfinite(values[k])) for k in at):
        return None

    def f(*some: Any) -> list[Any]:
        given = list(values)
        for k, x in zip(at, some, strict=True):
            given[k] = np.asarray(x, node.inputs[k].type.dtype)
        found = apply(node, given)
        return [np.asarray(found[k]) for k in outs]

    moving = [np.asarray(values[k]) for k in at]
    direction = directions(moving)
    weights = directions(f(*moving), seed=1)
    cotangents: list[Any] = [None] * len(node.outputs)
    for k, w in zip(outs, weights, strict=True):
        cotangents[k] = w
    try:
        expected = inner(weights, along(f, moving, direction))
        pulled = pullbacks.of_node(node, values, cotangents)
    except Exception:  # an op without a derivative, or that takes no other values
        return None
    slopes = [
        np.zeros_like(x) if pulled[k] is None else pulled[k]
        for k, x in zip(at, moving, strict=True)
    ]
    own = inner(slopes, direction)
    scale = max(abs(own), abs(expected), 1e-8)
    if not np.isfinite(expected) or not abs(own - expected) > tolerance * scale:
        return None
    why = (
        f"its gradient along a random direction is {number_in_words(own)}, and {number_in_words(expected)} "
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
