"""The two functions that every derivative of loopax asks for the rule of an op.

A rule is registered for a class of ops; of every other op its own method is the rule. A rule that wants the
op's own for a case calls `own_pullback`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any, NamedTuple

from pytensor.gradient import DisconnectedInputError, NullTypeGradError
from pytensor.graph.basic import Apply

from loopax.base.errors import LoopaxError, describe


@singledispatch
def pullback_of(
    op: Any, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """The cotangents of ``inputs``, from those of ``outputs``; a `DisconnectedType` where there is none.

    Raises
    ------
    NotImplementedError
        The op has no pullback, or `own_pullback` fails.
    """
    return own_pullback(op, inputs, outputs, cotangents)


def own_pullback(
    op: Any, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """``op.pullback``, whose failures are refusals.

    Raises
    ------
    NotImplementedError
        The op has no pullback, or it fails, as those of sparse ops do where they are differentiated again.
    """
    try:
        pulled: Sequence[Any] = op.pullback(inputs, outputs, cotangents)
    except (NotImplementedError, LoopaxError, NullTypeGradError, DisconnectedInputError):
        raise
    except Exception as error:
        raise NotImplementedError(
            f"The pullback of {op}, for {describe(outputs[0])}, fails: {type(error).__name__}: {error}. "
            'JAX may differentiate the op itself: jax.grad(jaxify(..., loops="xla")).'
        ) from error
    return pulled


@singledispatch
def pushforward_of(
    op: Any, inputs: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
) -> Sequence[Any]:
    """The tangents of ``outputs``, from those of ``inputs``; a `DisconnectedType` where there is none.

    Raises
    ------
    NotImplementedError, TypeError, ValueError
        The op has a pullback only.
    """
    pushed: Sequence[Any] = op.pushforward(inputs, outputs, tangents)
    return pushed


def has_own_pullback(op: Any) -> bool:
    """Whether a rule is registered for the class of ``op``."""
    return pullback_of.dispatch(type(op)) is not pullback_of.dispatch(object)


class Fault(NamedTuple):
    """An op's own pullback is wrong, a number and not a nan or an error, whatever the values are.

    Of the first output's cotangent for one input.
    """

    place: int  # of the input
    clause: str  # what is wrong with "it"


@singledispatch
def fault_of(op: Any, node: Apply) -> Fault | None:
    """What is wrong with the op's own pullback at ``node``; None where nothing is known to be."""
    return None
