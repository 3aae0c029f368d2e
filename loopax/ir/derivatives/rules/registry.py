"""The registry of derivative rules, which all derivatives of loopax use.

A rule is registered for a class of ops; for every other op its own method is the rule. A rule that
falls back on the op's own method calls `own_pullback`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any, NamedTuple

from pytensor.gradient import DisconnectedInputError, NullTypeGradError
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

from loopax.base.errors import LoopaxError, describe, unexpected
from loopax.ir.derivatives.sparse_types import with_whole_conversions


@singledispatch
def pullback_of(
    op: Op, inputs: Sequence[Variable], outputs: Sequence[Variable], cotangents: Sequence[Variable]
) -> Sequence[Any]:
    """Map cotangents of ``outputs`` to cotangents of ``inputs``; a missing one is a `DisconnectedType`.

    Raises `NotImplementedError` if the op has no pullback, or `own_pullback` fails.
    """
    return own_pullback(op, inputs, outputs, cotangents)


def own_pullback(
    op: Op, inputs: Sequence[Variable], outputs: Sequence[Variable], cotangents: Sequence[Variable]
) -> Sequence[Any]:
    """Call ``op.pullback``, with NotImplementedError for any failure, and no structured conversion.

    Raises `NotImplementedError` if the op has no pullback, or it fails, as in second derivatives of
    sparse ops.
    """
    try:
        in_cotangents: Sequence[Any] = op.pullback(inputs, outputs, cotangents)
    except (NotImplementedError, LoopaxError, NullTypeGradError, DisconnectedInputError):
        raise
    except Exception as error:
        raise NotImplementedError(
            f"The pullback of {op}, for {describe(outputs[0])}, fails: {unexpected(error)}. "
            'JAX may differentiate the op itself: jax.grad(jaxify(..., loops="xla")).'
        ) from error
    return with_whole_conversions(in_cotangents, [*inputs, *outputs, *cotangents])


@singledispatch
def pushforward_of(
    op: Op, inputs: Sequence[Variable], outputs: Sequence[Variable], tangents: Sequence[Variable]
) -> Sequence[Any]:
    """Map tangents of ``inputs`` to tangents of ``outputs``; a missing one is a `DisconnectedType`.

    Raises `NotImplementedError`, `TypeError` or `ValueError` if the op has only a pullback.
    """
    out_tangents: Sequence[Any] = op.pushforward(inputs, outputs, tangents)
    return out_tangents


def has_own_pullback(op: Op) -> bool:
    """Whether a rule is registered for the class of ``op``."""
    return pullback_of.dispatch(type(op)) is not pullback_of.dispatch(object)


class Fault(NamedTuple):
    """A fault of an op's own pullback: at all values a wrong number, rather than nan or an error."""

    position: int  # the input's, whose cotangent from the first output is wrong
    clause: str  # the fault, as a clause about "it"


@singledispatch
def fault_of(op: Op, node: Apply) -> Fault | None:
    """The fault of the op's own pullback at ``node``; None where none is known."""
    return None
