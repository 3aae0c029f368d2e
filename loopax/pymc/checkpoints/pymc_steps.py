"""PyMC's own sampler, with draws and step states stored while it runs.

PyMC's loop, in this process or in one for each chain, calls a step that replays the stored draws, and
adopts the state after the last of them:

    step(point) -> recorded draw 0, ..., recorded draw k - 1 (and the state after it), draw k, ...

All draws pass through this process, the only one that writes; about once a second a draw carries the state
of its step. Chains are equal in one process and in several, and wherever they were stopped.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from loopax.pymc.checkpoints.blocks import Cadence
from loopax.pymc.checkpoints.folder import Checkpoint, CheckpointError, Record
from loopax.pymc.checkpoints.step_state import as_arrays, from_arrays

if TYPE_CHECKING:
    from pymc.step_methods.compound import BlockedStep, CompoundStep

_N_DRAWS = "draws"  # in the state: the number of previous draws, tuning included
_DIVERGENCES = "divergences"  # a count that PyMC's steps keep outside of their state
_WARNING = "warning"  # a statistic of objects, which PyMC omits from its result


def sample_with_steps(
    checkpoint: Checkpoint,
    loop: Callable[..., None],
    *,
    step: BlockedStep | CompoundStep,
    draws: int,
    traces: Sequence[Any],
    rngs: Sequence[Any],
    callback: Callable[..., None] | None = None,
    **options: Any,
) -> None:
    """Draw all chains by PyMC's ``loop``, with the arguments of PyMC's ``_sample_many`` and ``_mp_sample``.

    ``draws`` includes the tuning draws.
    """
    refuse_steps([step])
    names = [f"chain-{k}" for k in range(len(traces))]
    writers = [_Writer(checkpoint.record(name)) for name in names]
    recorded = {
        _generator_key(rng): _RecordedDraws(checkpoint, name, writer.n_draws)
        for rng, name, writer in zip(rngs, names, writers, strict=True)
    }

    def tell(trace: object, draw: Any) -> None:
        writers[draw.chain].add(draw.draw_idx, draw.point, draw.stats)
        if callback is not None:
            callback(trace=trace, draw=draw)

    replayed = ReplayedStep(step, recorded, draws)
    loop(step=replayed, draws=draws, traces=traces, rngs=rngs, callback=tell, **options)
    if any(len(trace) < draws for trace in traces):
        raise KeyboardInterrupt  # by which PyMC's loop ends


def refuse_population(*_: object, **options: object) -> None:
    """Raise in place of running PyMC's ``_sample_population``."""
    raise CheckpointError(
        "checkpoint= keeps chains that are independent, but this step draws a population of chains "
        "together. Use pm.DEMetropolisZ, which draws each chain alone, or leave out checkpoint=."
    )


def parts_of(step: BlockedStep | CompoundStep) -> list[Any]:
    """The steps of a compound step."""
    return list(getattr(step, "methods", [step]))


def refuse_steps(steps: list[Any]) -> None:
    """Raise for a step whose state PyMC cannot export."""
    for step in (part for one in steps for part in parts_of(one)):
        name = f"{type(step).__module__}.{type(step).__qualname__}"
        if not name.startswith("pymc."):
            raise CheckpointError(
                f"checkpoint= keeps the states of PyMC's own steps, but {name} is not one of them. A "
                "model without discrete variables needs no step with sampler='nutpie'; otherwise "
                "leave out checkpoint=."
            )


def _generator_key(rng: np.random.Generator) -> str:
    """A text that identifies a chain's generator, equal in the process of that chain."""
    return repr(rng.bit_generator.state)


def _end_with_parent() -> None:
    """End the process of a chain when its parent is gone, which a forked process does not notice.

    Each forked process holds both ends of its pipe, and would wait forever if its parent was killed.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# -- writing -----------------------------------------------------------------------------------------


class _Writer:
    """The draws of one chain, written up to each draw that carries the state of its step."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._rows: list[tuple[Any, Any]] = []
        self.n_draws = 0 if record.state is None else int(record.state[_N_DRAWS])

    def add(self, k: int, point: Mapping[str, Any], stats: StatsWithState) -> None:
        if k < self.n_draws + len(self._rows):
            return  # replayed
        # Copies: a step may write its next draw into the same array.
        self._rows.append((_copied(point), [_copied(step_stats) for step_stats in stats]))
        if stats.state is not None:
            self.n_draws += len(self._rows)
            state = {**stats.state, _N_DRAWS: np.array(self.n_draws)}
            self._record.append(_block(self._rows), state)
            self._rows = []


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: x.copy() if isinstance(x, np.ndarray) else x
        for name, x in values.items()
        if name != _WARNING
    }


def _block(rows: list[tuple[Any, Any]]) -> dict[str, np.ndarray]:
    """The values of the points by ``point/name``, and of the statistics by ``stats/step/name``."""
    columns: dict[str, list[Any]] = {}
    for point, stats in rows:
        for name, value in point.items():
            columns.setdefault(f"point/{name}", []).append(value)
        for k, step_stats in enumerate(stats):
            for name, value in step_stats.items():
                columns.setdefault(f"stats/{k}/{name}", []).append(value)
    block = {name: np.array(column) for name, column in columns.items()}
    for name, column in block.items():
        if column.dtype == object or len(column) != len(rows):
            raise CheckpointError(
                f"checkpoint= cannot save {name.rpartition('/')[2]!r} of this step."
            )
    # A step without statistics has an entry in each row, too.
    return {**block, "steps": np.array(len(rows[0][1]))}


# -- replaying ---------------------------------------------------------------------------------------


class _RecordedDraws(NamedTuple):
    """The recorded draws of a chain; the process that draws it reads them when it starts."""

    checkpoint: Checkpoint
    name: str
    n_draws: int

    def draws(self) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        for block in self.checkpoint.record(self.name).blocks():
            n_steps = int(block.pop("steps"))
            for k in range(len(next(iter(block.values())))):
                point: dict[str, Any] = {}
                stats: list[dict[str, Any]] = [{} for _ in range(n_steps)]
                for key, column in block.items():
                    kind, _, name = key.partition("/")
                    if kind == "point":
                        point[name] = np.array(column[k])
                    else:
                        step_stats, _, name = name.partition("/")
                        stats[int(step_stats)][name] = column[k]
                yield point, stats


class StatsWithState(list[dict[str, Any]]):
    """The statistics of a draw, with the state of the step after it."""

    state: dict[str, np.ndarray] | None = None


class ReplayedStep:
    """A PyMC step that begins with recorded draws, and otherwise behaves like the wrapped step.

    Parameters
    ----------
    recorded
        The recorded draws of each chain, by the key of its generator.
    n_steps
        The number of draws of a chain, including tuning.
    """

    def __init__(
        self, step: BlockedStep | CompoundStep, recorded: Mapping[str, _RecordedDraws], n_steps: int
    ) -> None:
        # Not by `setattr`: attributes belong to the step.
        vars(self).update(_step=step, _recorded=recorded, _n_steps=n_steps, _main=os.getpid())
        vars(self).update(_chain=None, _done=n_steps)

    def setup_chain(self, rng: np.random.Generator, tune: int, draws: int) -> None:
        self._begin(rng)
        self._step.setup_chain(rng, tune, draws)

    def set_rng(self, rng: np.random.Generator) -> None:  # called instead by PyMC before 6.4
        self._begin(rng)
        self._step.set_rng(rng)

    def _begin(self, rng: np.random.Generator) -> None:
        if self._done < self._n_steps:
            raise KeyboardInterrupt  # in the previous chain, after which PyMC starts the next one
        if os.getpid() != self._main:
            _end_with_parent()
        chain = self._recorded[_generator_key(rng)]
        vars(self).update(_chain=chain, _replay=chain.draws(), _done=0, _cadence=Cadence())

    def step(self, point: Mapping[str, Any]) -> tuple[Any, StatsWithState]:
        chain, done = self._chain, self._done + 1
        if done <= chain.n_draws:
            point, values = next(self._replay)
            stats = StatsWithState(values)
            for step_stats, dtypes in zip(stats, self._step.stats_dtypes, strict=False):
                step_stats.update({_WARNING: None} if _WARNING in dtypes else {})
            if done == chain.n_draws:
                state = chain.checkpoint.record(chain.name).state
                self._step.sampling_state = from_arrays(state, self._step.sampling_state)
                for step, step_stats in zip(parts_of(self._step), stats, strict=False):
                    if _DIVERGENCES in step_stats:
                        setattr(step, _DIVERGENCES, int(step_stats[_DIVERGENCES]))
        else:
            point, values = self._step.step(point)
            stats = StatsWithState(values)
            if self._cadence.is_due() or done == self._n_steps:
                stats.state = as_arrays(self._step.sampling_state)
        vars(self)["_done"] = done
        return point, stats

    def stop_tuning(self) -> None:
        if self._done >= self._chain.n_draws:  # otherwise it stopped tuning in the restored state
            self._step.stop_tuning()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_step" not in vars(self):  # during unpickling
            raise AttributeError(name)
        return getattr(self._step, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._step, name, value)
