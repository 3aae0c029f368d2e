"""A warning if a program contains a wrong gradient by PyTensor.

``jaxify(x, pytensor.grad(cost, x))`` transpiles PyTensor's graph: the rules in `ir.derivatives.rules`
serve loopax's own gradients alone. They also record the ops whose gradient is wrong in PyTensor, and
where (`fault_of`). Such a gradient is recognised by its form: the expression of the op's own
``pullback`` in the op's inputs and outputs, with tags that show that `pytensor.grad` made its
variables. So the same expression written by a user does not count. Graphs that PyTensor has
rewritten, a compiled function or the step of its own `scan`, are not recognised: too little of the
form, or of the tags, is left.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from itertools import product

from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise

from loopax.base.errors import WrongGradientWarning, source_line
from loopax.frontend.mistakes import level_of_the_user
from loopax.ir.derivatives.inner_gradients import is_connected, is_float
from loopax.ir.derivatives.rules.registry import fault_of


def warn_of_wrong_gradients(nodes: Collection[Apply]) -> None:
    """Warn of each op among ``nodes`` whose gradient, also among them, is PyTensor's and wrong.

    Warns
    -----
    WrongGradientWarning
        With the op, the fault, the line that takes the gradient, and a fix.
    """
    faulty = [(node, fault) for node in nodes if (fault := fault_of(node.op, node)) is not None]
    for node, fault in faulty:
        gradient = next(_gradients(node, fault.position, nodes), None)
        if gradient is not None:
            warnings.warn(
                f"PyTensor's gradient of {node.op} is wrong: {fault.clause}.\n"
                f"  op: {source_line(node.outputs[0])}\n"
                f"  gradient: {_line_of_gradient(gradient)}\n"
                "loopax's own is right: write loopax.grad(f) of a function f of variables in place of "
                "pytensor.grad(cost, x), or jax.grad(jaxify([x], cost)).",
                WrongGradientWarning,
                stacklevel=level_of_the_user(),
            )


def _gradients(node: Apply, position: int, nodes: Collection[Apply]) -> Iterator[Variable]:
    """The pullbacks of ``node`` for one input among ``nodes``, each as a tagged variable."""
    if not any(_is_tagged(v) for candidate in nodes for v in candidate.outputs):
        return
    for seeds, pattern in _patterns(node, position):
        for v in (v for candidate in nodes for v in candidate.outputs):
            bound: dict[Variable, Variable] = {}
            if not _is_alike(pattern, v, seeds, bound):
                continue
            # A rule's variables are tagged, unless it was vectorized; so are the cotangents.
            tagged = [bound[seed] for seed in seeds] if isinstance(node.op, Blockwise) else [v]
            if all(map(_is_tagged, tagged)):
                yield tagged[0]


def _patterns(node: Apply, position: int) -> Iterator[tuple[Sequence[Variable], Variable]]:
    """The pullback's expressions for an input, with their cotangents, one for each set of these."""
    choices = [(True, False) if is_float(v) else (False,) for v in node.outputs[1:]]
    for chosen in product((True,), *choices):
        cotangents = [
            v.type() if is_given else disconnected_type()
            for v, is_given in zip(node.outputs, chosen, strict=True)
        ]
        try:
            in_cotangent = node.op.pullback(node.inputs, node.outputs, cotangents)[position]
        except Exception:  # then no program contains its expression
            continue
        if is_connected(in_cotangent) and in_cotangent.owner is not None:
            yield (
                [v for v, is_given in zip(cotangents, chosen, strict=True) if is_given],
                in_cotangent,
            )


def _is_alike(
    pattern: Variable, v: Variable, seeds: Sequence[Variable], bound: dict[Variable, Variable]
) -> bool:
    """Whether ``v`` matches ``pattern``, with any variables for ``seeds``, which ``bound`` records."""
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
    """Whether ``v`` was made inside `pytensor.grad`, according to the innermost line of its tag."""
    stacks = getattr(v.tag, "trace", None) or ()
    files = [stack[-1][0].replace("\\", "/") for stack in stacks if stack]
    return any(file.endswith("/pytensor/gradient.py") for file in files)


def _line_of_gradient(gradient: Variable) -> str:
    """The user's line that takes the gradient; tags keep few lines, and may lack that one."""
    lines = (source_line(v) for v in ancestors([gradient]) if _is_tagged(v))
    return next(filter(None, lines), "")
