"""The calling convention of loops: names for the groups of inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pytensor.tensor.type import TensorType

INDEX_TYPE = TensorType("int64", ())
FLAG_TYPE = TensorType("bool", ())
# The number of steps of a loop without a bound, which ends at a flag of its body.
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
    """The outputs of a body. ``stop`` is None if the loop cannot stop early."""

    states: Sequence[Any]
    ys: Sequence[Any]
    stop: Any = None

    def flat(self) -> list[Any]:
        return [*self.states, *self.ys, *([] if self.stop is None else [self.stop])]


Checkpoint = int | Literal["sqrt"] | tuple[int, ...] | None


class Newton(NamedTuple):
    """Newton's method on all steps of a loop at once, to the tolerance ``tol``, in some backends."""

    # The change of the trajectory in the last iteration, at most, relative to 1 plus its largest
    # number; None for a default for its dtype.
    tol: float | None = None
    max_iters: int = 100  # the greatest number of iterations
    # The action without convergence: ``"raise"`` a `ConvergenceError`, or take the steps
    # sequentially.
    otherwise: Literal["raise", "sequential"] = "raise"


@dataclass(frozen=True)
class Origin:
    """The origin of a loop, for messages; not part of its meaning, nor of its key on disk."""

    is_for_messages: ClassVar[bool] = True

    # The user's names of the states and then of the traces, "" for a missing one; dropped where the
    # loop's states or traces change.
    labels: tuple[str, ...] = ()
    line: str = ""  # the user's line, in the form of `loopax.base.errors.source_line`


class ScanOptions(NamedTuple):
    """The options of a `Scan`. Only ``reverse`` changes values.

    Parameters
    ----------
    name
        For printing: it takes part neither in equality nor in the hash.
    reverse
        Whether the steps are taken from row ``n_steps - 1`` to row 0; ``i`` counts down with them.
    unroll
        The number of steps that a backend may unroll in one iteration of its loop.
    checkpoint
        The states that reverse mode keeps: None leaves it to the backend; ``k`` keeps the states
        before every ``k`` th step and computes the others again; ``"sqrt"`` takes the root of
        ``n_steps`` for ``k``. A tuple has a number for each level of nested blocks, the largest
        first.
    truncate_gradient
        The number of last steps through which a derivative goes; -1 for all. As in `pytensor.scan`,
        no value that an earlier step read or computed gets a cotangent.
    parallel
        A method for all steps together, in backends that have it; None leaves it to the backend.
    origin
        The origin, for messages. Loops from different lines are not equal: equal nodes of frozen
        graphs are merged, and would share one line.
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
        """The options without the printing-only ones."""
        return self._replace(name=None, origin=Origin())
