"""Which row of a batch of native code has a value that is not finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopax.base.errors import NonFiniteError
from loopax.frontend.loops.trees import flatten, match_prefix
from loopax.ir.sequences import with_items


@dataclass(frozen=True)
class RowErrors:
    """The error of the first row of a call of ``vmap(f, in_axes)`` that has one, by ``f``, row by row."""

    f: Any
    in_axes: Any

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NonFiniteError | None:
        leaves, tree = flatten((tuple(args), dict(kwargs)))
        in_axes = tuple(self.in_axes) if isinstance(self.in_axes, list) else self.in_axes
        axes = match_prefix(in_axes, tuple(args), "in_axes")
        axes += [0] * (len(leaves) - len(axes))
        mapped = [k for k, axis in enumerate(axes) if axis is not None]
        for row in range(np.shape(leaves[mapped[0]])[axes[mapped[0]]]):
            of_row = [np.take(leaves[k], row, axis=axes[k]) for k in mapped]
            some, named = tree.build(with_items(leaves, mapped, of_row))
            try:
                self.f(*some, **named)
            except NonFiniteError as error:
                return error.in_row(row)
        return None
