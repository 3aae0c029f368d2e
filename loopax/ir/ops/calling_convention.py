"""The calling convention of loops: which input and which output is what, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pytensor.tensor.type import TensorType

INDEX_TYPE = TensorType("int64", ())
FLAG_TYPE = TensorType("bool", ())
# The number of steps of a loop that has no bound: it ends when its body says so.
UNBOUNDED = int(np.iinfo("int64").max)


class ScanArgs(NamedTuple):
    """The inputs of a `Scan` node, or values for them."""

    n_steps: Any
    sequences: Sequence[Any]
    states: Sequence[Any]
    consts: Sequence[Any]

    def flat(self) -> list[Any]:
        return [self.n_steps, *self.sequences, *self.states, *self.consts]


class ScanOuts(NamedTuple):
    """The outputs of a `Scan` node. ``n_done`` and ``stopped`` exist where the loop can stop."""

    finals: Sequence[Any]
    traces: Sequence[Any]
    n_done: Any = None
    stopped: Any = None

    def flat(self) -> list[Any]:
        end = [] if self.n_done is None else [self.n_done, self.stopped]
        return [*self.finals, *self.traces, *end]


class BodyArgs(NamedTuple):
    """The inputs of a body: the index of the step, this step's rows, the states, the constants."""

    i: Any
    rows: Sequence[Any]
    states: Sequence[Any]
    consts: Sequence[Any]

    def flat(self) -> list[Any]:
        return [self.i, *self.rows, *self.states, *self.consts]


class BodyOuts(NamedTuple):
    """The outputs of a body. ``stop`` is None where the loop cannot stop early."""

    states: Sequence[Any]
    ys: Sequence[Any]
    stop: Any = None

    def flat(self) -> list[Any]:
        return [*self.states, *self.ys, *([] if self.stop is None else [self.stop])]


Checkpoint = int | Literal["sqrt"] | tuple[int, ...] | None


class Newton(NamedTuple):
    """Newton's method on all steps of a loop at once, where a backend has it: the same values to ``tol``.

    Parameters
    ----------
    tol
        How little an iteration moves the trajectory at the end, relative to 1 plus its largest number; None
        for what fits its dtype.
    max_iters
        How many iterations there are at most.
    otherwise
        What happens where they do not do: ``"raise"`` a `ConvergenceError`, or take the steps one by one.
    """

    tol: float | None = None
    max_iters: int = 100
    otherwise: Literal["raise", "sequential"] = "raise"


@dataclass(frozen=True)
class Origin:
    """What messages say of a loop: no part of what it means, nor of what is kept on disk.

    Parameters
    ----------
    labels
        The names of the states and then of the traces, as their author has them, "" for what has none; of a
        loop of other ones they are gone.
    line
        Where its author wrote it, as `loopax.base.errors.source_line` says it.
    """

    is_for_messages: ClassVar[bool] = True

    labels: tuple[str, ...] = ()
    line: str = ""


class ScanOptions(NamedTuple):
    """What a `Scan` has besides its body. Only ``reverse`` changes values.

    Parameters
    ----------
    name
        For printing: it takes part neither in equality nor in the hash.
    reverse
        Whether the steps are taken from row ``n_steps - 1`` to row 0; ``i`` counts down with them.
    unroll
        How many steps a backend may write out in one iteration of its loop.
    checkpoint
        What reverse mode keeps: None leaves it to the backend; ``k`` keeps the states before every
        ``k`` th step and computes the rest again; ``"sqrt"`` takes the root of ``n_steps`` for ``k``. A
        tuple has one number for each level: of what ``k`` steps keep, every so many keep theirs, and so on.
    truncate_gradient
        How many steps, from the last one back, a derivative goes through; -1 for all of them. As
        `pytensor.scan` has it: nothing that an earlier step read or made gets a cotangent.
    parallel
        How a backend that can is to run all steps at once; None leaves it to the backend.
    origin
        What messages say of it. Loops of two lines are not equal: equal nodes of frozen graphs are one, and
        would have the line of one.
    """

    name: str | None = None
    reverse: bool = False
    unroll: int = 1
    checkpoint: Checkpoint = None
    truncate_gradient: int = -1
    parallel: Newton | None = None
    origin: Origin = Origin()

    @property
    def meaning(self) -> ScanOptions:
        """The options without what is for printing alone."""
        return self._replace(name=None, origin=Origin())
