"""A warning if a loop computes in more digits than its initial value has.

``pt.full((3,), -np.inf)`` is float32, because PyTensor stores a constant in the smallest dtype that
holds it; values written into it are rounded. The carry of a float64 loop accepts such a start
(`carry.joined`), and nothing in the result would show that half of its digits are lost.

A step is traced several times until the types of its carry settle, together with its inner loops: messages
of inner loops wait until the outer one has settled.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from pytensor.tensor.type import TensorType

from loopax.base.errors import describe
from loopax.facts.constants import constant_value
from loopax.frontend.loops.leaves import CarryLeaf
from loopax.frontend.mistakes import level_of_the_user

_waiting: ContextVar[list[str] | None] = ContextVar("messages of inner loops", default=None)


@contextmanager
def collected_messages() -> Iterator[list[str]]:
    """A block that collects the messages of loops built in it, and issues none."""
    messages: list[str] = []
    token = _waiting.set(messages)
    try:
        yield messages
    finally:
        _waiting.reset(token)


def warn_of_widened_starts(
    slots: Sequence[CarryLeaf], label: str, inner: Sequence[str] = ()
) -> None:
    """Warn of leaves of a settled carry that started with fewer digits, in ``inner`` loops too."""
    messages = [*inner, *(_message(s, label) for s in slots if _lost_digits(s))]
    waiting = _waiting.get()
    if waiting is not None:
        waiting += messages
        return
    for message in dict.fromkeys(messages):
        warnings.warn(message, UserWarning, stacklevel=level_of_the_user())


def _lost_digits(slot: CarryLeaf) -> bool:
    """Whether the initial value may have been rounded: it is not a constant and has fewer digits."""
    initial_type, settled_type = slot.init.type, slot.type
    if not (isinstance(initial_type, TensorType) and isinstance(settled_type, TensorType)):
        return False
    dtypes = np.dtype(initial_type.dtype), np.dtype(settled_type.dtype)
    if (
        any(d.kind not in "fc" for d in dtypes)
        or np.finfo(dtypes[0]).eps <= np.finfo(dtypes[1]).eps
    ):
        return False
    return constant_value(slot.init) is None


def _message(slot: CarryLeaf, label: str) -> str:
    initial_dtype, settled_dtype = slot.init.type.dtype, slot.type.dtype
    name = slot.init.name or "init"
    return (
        f"{slot.path} of {label} is {initial_dtype} before the first step and {settled_dtype} after "
        f"it. The loop computes in {settled_dtype}; the digits that its start lost in {initial_dtype} "
        f"are lost.\n  start: {describe(slot.init)}\n"
        f"Make it {settled_dtype} where it is made: PyTensor stores a constant that {initial_dtype} "
        f"holds in {initial_dtype}, so pt.full(shape, -np.inf, dtype={settled_dtype!r}) in the place "
        f"of pt.full(shape, -np.inf). Where {initial_dtype} is what was meant, say so: "
        f"{name}.astype({settled_dtype!r})."
    )
