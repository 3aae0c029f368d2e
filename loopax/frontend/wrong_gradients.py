"""A word where a program has a gradient that PyTensor has made, and made wrong.

``jaxify(x, pytensor.grad(cost, x))`` transpiles PyTensor's graph: the rules in `ir.derivatives.rules`
serve loopax's own gradients alone. They also say of which ops PyTensor has a wrong gradient, and where
(`fault_of`). That a graph has it is seen by its form: it is what the op's own ``pullback`` writes, of the
op's inputs and outputs, with variables that `pytensor.grad` has made, as their tags say. So what a user
writes in the same way is not meant. What PyTensor has rewritten, a compiled function, or the step of its
own `scan`, is not seen: too little of the form, or of the tags, is left.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import Any

from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise

from loopax.base.errors import WrongGradientWarning, source_line
from loopax.frontend.mistakes import level_of_the_user
from loopax.ir.derivatives.inner_gradients import is_connected, is_float
from loopax.ir.derivatives.rules.registry import fault_of


def warn_of_wrong_gradients(nodes: Collection[Apply]) -> None:
    """Warn of each op among ``nodes`` whose gradient, among them too, is PyTensor's, and wrong.

    Warns
    -----
    WrongGradientWarning
        With the op, what is wrong, the line that takes the gradient, and what to write.
    """
    faulty = [(node, fault) for node in nodes if (fault := fault_of(node.op, node)) is not None]
    for node, fault in faulty:
        gradient = next(_gradients(node, fault.place, nodes), None)
        if gradient is not None:
            warnings.warn(
                f"The gradient of {node.op}, which PyTensor has made, is wrong: {fault.clause}.\n"
                f"  op: {source_line(node.outputs[0])}\n  gradient: {_line_of_gradient(gradient)}\n"
                "loopax's own is right: write loopax.grad(f) of a function f of variables in the place of "
                "pytensor.grad(cost, x), or jax.grad(jaxify([x], cost)).",
                WrongGradientWarning,
                stacklevel=level_of_the_user(),
            )


def _gradients(node: Apply, position: int, nodes: Collection[Apply]) -> Iterator[Variable]:
    """What of ``nodes`` is the pullback of ``node`` for an input, by a tagged variable of it."""
    if not any(_is_tagged(v) for candidate in nodes for v in candidate.outputs):
        return
    for seeds, pattern in _patterns(node, position):
        for v in (v for candidate in nodes for v in candidate.outputs):
            bound: dict[Variable, Variable] = {}
            if not _is_alike(pattern, v, seeds, bound):
                continue
            # What a rule has written is tagged, unless it was vectorized; so are the cotangents.
            tagged = [bound[seed] for seed in seeds] if isinstance(node.op, Blockwise) else [v]
            if all(map(_is_tagged, tagged)):
                yield tagged[0]


def _patterns(node: Apply, position: int) -> Iterator[tuple[Sequence[Variable], Variable]]:
    """What the pullback writes for an input, with its cotangents: all but the first may be missing."""
    choices = [(True, False) if is_float(v) else (False,) for v in node.outputs[1:]]
    for chosen in product((True,), *choices):
        cotangents = [
            v.type() if is_given else disconnected_type()
            for v, is_given in zip(node.outputs, chosen, strict=True)
        ]
        try:
            in_cotangent = node.op.pullback(node.inputs, node.outputs, cotangents)[position]
        except Exception:  # then no program has what it writes
            continue
        if is_connected(in_cotangent) and in_cotangent.owner is not None:
            yield (
                [v for v, is_given in zip(cotangents, chosen, strict=True) if is_given],
                in_cotangent,
            )


def _is_alike(
    pattern: Any, v: Any, seeds: Sequence[Variable], bound: dict[Variable, Variable]
) -> bool:
    """Whether ``v`` is ``pattern``, with any variable for each of ``seeds``; ``bound`` says which."""
    if pattern is v:
        return True
    if pattern in bound:
        return bound[pattern] is v
    bound[pattern] = v
    if pattern in seeds:
        return pattern.type.ndim == getattr(v.type, "ndim", -1)
    if pattern.owner is None or v.owner is None:
        return isinstance(pattern, Constant) and isinstance(v, Constant) and pattern.equals(v)
    return (
        pattern.index == v.index
        and pattern.owner.op == v.owner.op
        and len(pattern.owner.inputs) == len(v.owner.inputs)
        and all(
            _is_alike(p, x, seeds, bound)
            for p, x in zip(pattern.owner.inputs, v.owner.inputs, strict=True)
        )
    )


def _is_tagged(v: Variable) -> bool:
    """Whether ``v`` was made inside `pytensor.grad`, which the innermost line that its tag has says."""
    stacks = getattr(v.tag, "trace", None) or ()
    files = [stack[-1][0].replace("\\", "/") for stack in stacks if stack]
    return any(file.endswith("/pytensor/gradient.py") for file in files)


def _line_of_gradient(gradient: Variable) -> str:
    """Where the user asks for the gradient: tags have few lines, and not all of them that one."""
    lines = (source_line(v) for v in ancestors([gradient]) if _is_tagged(v))
    return next(filter(None, lines), "")
