"""Checks of gradients and second derivatives of a function of arrays by finite differences."""

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
from loopax.ir.sequences import with_items

Arrays = Sequence[Any]
_NODES = 400  # the most pullbacks that are compared one by one


_STEPS = (3e-3, 1e-4, 3e-6)  # relative to the size of each entry


def directions(values: Arrays, seed: int = 0) -> list[Any]:
    """A random direction for each array, in which each entry moves by about its own size."""
    rng = np.random.default_rng(seed)
    steps = []
    for x in values:
        x = np.asarray(x)
        size = np.abs(x)
        largest = float(size.max(initial=0.0)) or 1.0
        scale = np.maximum(size, 1e-3 * largest)
        signs = rng.choice([-1.0, 1.0], size=x.shape) * rng.uniform(0.5, 1.0, size=x.shape)
        steps.append((signs * scale).astype(x.dtype))
    return steps


def along(f: Callable[..., Any], values: Arrays, direction: Arrays) -> list[list[Any]]:
    """The derivative of ``f`` along ``direction`` by central differences, for several step sizes.

    Each is Richardson's extrapolation of two steps, whose error is of the fourth order.
    """

    def central(h: float) -> list[Any]:
        up = f(*(x + h * d for x, d in zip(values, direction, strict=True)))
        down = f(*(x - h * d for x, d in zip(values, direction, strict=True)))
        pairs = zip(up, down, strict=True)
        return [(np.asarray(a, float) - np.asarray(b, float)) / (2 * h) for a, b in pairs]

    return [
        [(4 * a - b) / 3 for a, b in zip(central(h / 2), central(h), strict=True)] for h in _STEPS
    ]


def inner(left: Arrays, right: Arrays) -> float:
    """The inner product of two lists of arrays."""
    return float(
        sum(np.sum(np.asarray(a) * np.asarray(b)) for a, b in zip(left, right, strict=True))
    )


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
