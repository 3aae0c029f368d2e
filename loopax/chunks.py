"""Native code over many rows, in chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopax.base.errors import LoopTypeError, NonFiniteError
from loopax.calling import Backend, BackendFunction
from loopax.calling.progress import Progress
from loopax.frontend.loops.trees import flatten, mapped_axes, match_prefix


class InChunks(BackendFunction):
    """Calls ``whole``, a function of rows, with ``batch_size`` rows at a time, and joins the results.

    Transformations apply to ``whole``, all rows at once.
    """

    def __init__(
        self,
        whole: Any,
        in_axes: object,
        out_axes: object,
        batch_size: int,
        progress: Progress | None,
    ) -> None:
        self.whole = whole
        self._in_axes, self._out_axes = in_axes, out_axes
        self._size, self._progress = batch_size, progress
        self.__name__ = whole.__name__

    @property
    def backend(self) -> Backend:
        return self.whole.backend

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """The results for all rows.

        Raises `LoopTypeError` if the arguments have axes of unequal lengths.
        """
        leaves, tree = flatten((args, kwargs))
        axes = mapped_axes(self._in_axes, args, len(leaves))
        leaves = [x if a is None else np.asarray(x) for x, a in zip(leaves, axes, strict=True)]
        lengths = {x.shape[a] for x, a in zip(leaves, axes, strict=True) if a is not None}
        if len(lengths) != 1:
            raise LoopTypeError(
                f"vmap over axes of different lengths: {sorted(lengths)}. All mapped axes must have "
                "one length; in_axes=None passes an argument whole to every row."
            )
        n = lengths.pop()
        results, out_tree = [], None
        for begin in range(0, max(n, 1), self._size):
            rows = slice(begin, begin + self._size)
            self._report(begin, n)
            some, named = tree.build(
                [x if a is None else _part(x, a, rows) for x, a in zip(leaves, axes, strict=True)]
            )
            try:
                outs, out_tree = flatten(self.whole(*some, **named))
            except NonFiniteError as error:
                raise error.after(begin) from None
            results.append(outs)
        self._report(n, n)
        assert out_tree is not None
        places = match_prefix(self._out_axes, out_tree.build(results[0]), "out_axes")
        # `vmap` has checked that a result without an axis is the same for all rows.
        joined = [
            parts[0] if axis is None else np.concatenate(parts, axis=axis)
            for *parts, axis in zip(*results, places, strict=True)
        ]
        return out_tree.build(joined)

    def _report(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(done, total)


def _part(x: np.ndarray, axis: int, rows: slice) -> np.ndarray:
    return x[(slice(None),) * (axis % x.ndim) + (rows,)]
