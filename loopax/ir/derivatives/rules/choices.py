"""Derivatives of ``choose(index, choices)``, which PyTensor lacks.

y[p] = choices[index[p], p]:    adding ȳ[p] at (index[p], p) gives the cotangent of choices
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import Choose
from pytensor.tensor.variable import TensorVariable
from pytensor.typed_list.type import TypedListType

from loopax.ir.derivatives.rules.registry import pullback_of, pushforward_of


@pullback_of.register(Choose)
def _pullback(
    op: Choose,
    inputs: Sequence[Any],
    outputs: Sequence[Variable],
    cotangents: Sequence[TensorVariable],
) -> Any:
    index, choices = inputs
    if isinstance(choices.type, TypedListType):
        raise NotImplementedError(
            "choose() has no derivative if it chooses from a list that is an input of the program: "
            "choose from an array, pt.choose(index, pt.stack([x, y]))"
        )
    (g,) = cotangents
    n = choices.shape[0]
    chosen = index % n if op.mode == "wrap" else pt.clip(index, 0, n - 1)
    index_arrays = []
    for k, is_one in enumerate(choices.type.broadcastable[1:]):
        n_trailing = choices.type.ndim - 2 - k
        index_array = pt.arange(1 if is_one else g.shape[g.type.ndim - 1 - n_trailing])
        if not is_one:  # NumPy's `choose` broadcasts a length of 1 that no type declares
            index_array = pt.minimum(index_array, choices.shape[1 + k] - 1)
        index_arrays.append(pt.shape_padright(index_array, n_trailing))
    zeros = pt.zeros_like(choices)
    return [disconnected_type(), zeros[(chosen, *index_arrays)].inc(g)]


@pushforward_of.register(Choose)
def _pushforward(
    op: Choose,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    tangents: Sequence[Variable],
) -> Any:
    index, tangent = inputs[0], tangents[1]
    if isinstance(tangent.type, DisconnectedType):
        return [disconnected_type()]
    return [op(index, tangent)]
