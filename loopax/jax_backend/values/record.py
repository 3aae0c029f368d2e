"""The class ``Record``, which `loopax.watched` returns with the outputs of a program."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from loopax.jax_backend.values import record_page
from loopax.numerics.arrays import Array


class Watched(NamedTuple):
    """A watched value: ``values`` has a row for each evaluation, ``steps`` the number of its step.

    In nested loops each row of ``steps`` has a number for each loop, outermost first. Outside of all loops
    it is empty.
    """

    values: Any
    steps: Any


class Rows(NamedTuple):
    """Rows as a program returns them. ``steps`` has an axis for the loops; ``present`` None means all."""

    values: Any
    steps: Any
    present: Any


@jax.tree_util.register_pytree_node_class
class Record(Mapping[str, Watched]):
    """Watched values by their names: ``record["s"].values``, ``record["s"].steps``.

    A notebook draws each value over the steps and marks the step that fails; so does the page that
    ``record.to_html("page.html")`` writes.

    It is a pytree. In a batch each array has the batch axis in front; there, and under a transformation of
    JAX, rows of a branch that was not taken stay, with -1 for their steps, and nothing is cut at a
    breakpoint. ``jax.tree.map(lambda x: x[6], record)`` is the record of one row of a batch.
    """

    def __init__(
        self, names: Sequence[str | None], rows: Sequence[Rows], last: int | None = None
    ) -> None:
        self._names, self._rows, self._last = tuple(names), tuple(rows), last

    def tree_flatten(self) -> tuple[Any, Any]:
        return self._rows, (self._names, self._last)

    @classmethod
    def tree_unflatten(cls, fixed: Any, rows: Any) -> Record:
        names, last = fixed
        return cls(names, rows, last)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name in self._names if name is not None))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"Record({', '.join(self)})"

    def __getitem__(self, name: str) -> Watched:
        parts = [rows for n, rows in zip(self._names, self._rows, strict=True) if n == name]
        if not parts:
            raise KeyError(
                f"no watched value has the name {name!r}; the names are {', '.join(self)}"
            )
        if not self.is_known:
            return _as_they_are(parts)
        values, steps = _by_step([_taken(rows) for rows in parts])
        if (stop := self.stop) is not None:
            values, steps = _until(values, steps, stop)
        if self._last is not None:
            values, steps = values[-self._last :], steps[-self._last :]
        return Watched(values, _of_loops(steps))

    @property
    def is_known(self) -> bool:
        """Whether the numbers are known, and of one call: neither traced nor of a batch."""
        return all(map(_is_known, self._rows))

    @property
    def stop(self) -> tuple[int, ...] | None:
        """The first step in which the condition of a `loopax.breakpoint_if` held; None if it never did."""
        if not self.is_known:
            return None
        breakpoints = [
            _taken(rows) for n, rows in zip(self._names, self._rows, strict=True) if n is None
        ]
        held = [when[np.flatnonzero(holds)[0]] for holds, when in breakpoints if holds.any()]
        return min((tuple(int(k) for k in when) for when in held), key=in_order, default=None)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page to ``path``: one file that needs no other file and no network."""
        Path(path).write_text(record_page.page(self), encoding="utf-8")

    def _repr_html_(self) -> str:
        return record_page.body(self)


def in_order(steps: Sequence[int]) -> tuple[float, ...]:
    """A key that sorts steps of different depth; an outer step ends after the steps inside it."""
    return (*steps, np.inf)


def _is_known(rows: Rows) -> bool:
    """Whether these are concrete numbers of one program."""
    tracers = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(tuple(rows)))
    return not tracers and np.ndim(rows.steps) == 2


def _taken(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    values, steps = np.asarray(rows.values), np.asarray(rows.steps)
    if rows.present is None:
        return values, steps
    is_row = np.asarray(rows.present)
    return values[is_row], steps[is_row]


def _by_step(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    if len(parts) == 1:
        return parts[0]
    values, steps = (np.concatenate(xs) for xs in zip(*parts, strict=True))
    order = np.lexsort(steps.T[::-1]) if steps.shape[1] else np.arange(len(steps))
    return values[order], steps[order]


def _until(
    values: np.ndarray, steps: np.ndarray, stop: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """The rows up to the step ``stop``, compared in the loops that both are in."""
    depth = min(len(stop), steps.shape[1])
    keep = np.array([tuple(step[:depth]) <= stop[:depth] for step in steps], bool)
    return values[keep], steps[keep]


def _as_they_are(parts: Sequence[Rows]) -> Watched:
    def steps(rows: Rows) -> Any:
        if rows.present is None:
            return rows.steps
        return jnp.where(jnp.asarray(rows.present)[..., None], rows.steps, -1)

    if len(parts) == 1:
        return Watched(parts[0].values, _of_loops(steps(parts[0])))
    axis = np.ndim(parts[0].steps) - 2
    values = jnp.concatenate([rows.values for rows in parts], axis=axis)
    return Watched(values, _of_loops(jnp.concatenate([*map(steps, parts)], axis=axis)))


def _of_loops(steps: Array) -> Any:
    """Numbers instead of one-element rows, if there is one loop."""
    return steps[..., 0] if steps.shape[-1] == 1 else steps
