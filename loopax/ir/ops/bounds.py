"""The number of steps of a loop that stops: its bound, and whether there is a first step at all.

A while loop tests its condition before the first step too, so its number of steps is
``switch(condition, bound, 0)``: a value that is only known when the program runs, though the bound
may be a constant. Code that needs a static length (in JAX, for the states that a gradient stores)
takes the bound.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Switch
from pytensor.tensor.type import integer_dtypes

from loopax.facts.axes import unshuffled
from loopax.facts.elementwise import is_elementwise
from loopax.ir.ops.calling_convention import UNBOUNDED


def split_bound(n_steps: Variable) -> tuple[Any, Any]:
    """``(bound, condition)`` of ``switch(condition, bound, 0)``; else ``(n_steps, None)``."""
    if is_elementwise(n_steps.owner, Switch):
        condition, bound, otherwise = n_steps.owner.inputs
        if known_number(otherwise) == 0:
            return bound, condition
    return n_steps, None


def is_unbounded(n_steps: Variable) -> bool:
    """Whether ``n_steps`` is the number of steps of a loop without a bound."""
    return known_number(split_bound(n_steps)[0]) == UNBOUNDED


def no_bound(loop: object) -> str:
    """Say that the steps of ``loop`` have no bound, which reverse mode needs, and how to give it one."""
    return (
        f"{loop} has no bound on its steps, and reverse mode (pytensor.grad, jax.grad, jax.hessian) keeps "
        "states from each of them: it must know how many there can be. Give the loop one, "
        "loopax.while_loop(cond, body, init, max_steps=1000) or loopax.fori_loop(lo, hi, body, init, "
        "max_steps=1000), or use forward mode: pushforward, jax.jvp, jax.jacfwd."
    )


def known_number(v: Variable) -> int | None:
    """The constant integer in all elements of ``v``; None where the graph shows none."""
    v = unshuffled(v)
    if not isinstance(v, Constant) or getattr(v.type, "dtype", "") not in integer_dtypes:
        return None
    return v.data.item() if v.data.size == 1 else None
