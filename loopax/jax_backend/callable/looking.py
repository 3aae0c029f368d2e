"""Handling of the flag of a program with ``checks="nan"`` under the caller's own transformation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from loopax.base.errors import NonFiniteError
from loopax.jax_backend.staging.finite import Report, looking_at_gradient, raising_where_not_finite
from loopax.jax_backend.staging.static import is_traced
from loopax.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Looking:
    """Raises errors where the values, or the gradient, of a program are not finite."""

    # Computes the report from a value for each input; called when a flag is up.
    report: Callable[[Sequence[Any]], Any]
    error: Callable[[np.ndarray], Exception]  # the error of such reports
    name: str  # the program's name
    names: Sequence[str]  # names of its inputs

    def at_values(self, outs: Sequence[Any], flag: jax.Array, args: Sequence[Any]) -> list[Any]:
        """Return ``outs``, pytrees of arrays, with an error if ``flag`` is set."""
        leaves, tree = jax.tree.flatten(list(outs))
        flat, given_tree = jax.tree.flatten(list(args), is_leaf=lambda x: x is None)
        at = [k for k, x in enumerate(flat) if is_traced(x) or isinstance(x, jax.Array)]

        def report(*some: jax.Array) -> Any:
            values = dict(zip(at, some, strict=True))
            all_of_them = [values.get(k, x) for k, x in enumerate(flat)]
            return self.report(jax.tree.unflatten(given_tree, all_of_them))

        checked = raising_where_not_finite(
            leaves, flag, [flat[k] for k in at], Report(report, self.error)
        )
        return jax.tree.unflatten(tree, checked)

    def at_gradient(self, x: Array, k: int) -> Any:
        """Return ``x``, for input ``k``, with an error if its gradient is not finite."""
        if not is_traced(x) or not np.issubdtype(x.dtype, np.inexact):
            return x

        def error(cotangent: np.ndarray) -> Exception:
            bad = [int(j) for j in np.argwhere(~np.isfinite(cotangent))[0]]
            at = f", at [{', '.join(map(str, bad))}]" if bad else ""
            kind = "nan" if np.isnan(cotangent[tuple(bad)]) else "infinite"
            message = f"the gradient by '{self.names[k]}' is {kind}{at}; the values are finite."
            return NonFiniteError(self.name, message)

        return looking_at_gradient(x, error)
