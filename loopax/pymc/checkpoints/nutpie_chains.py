"""Run nutpie's chains separately, and store each when it has ended.

nutpie exposes the draws of a running chain, but not its state. So each chain has a seed of its own, and a
chain that was running when the process ended is drawn again, with equal draws.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np

from loopax.pymc.checkpoints.folder import Arrays, Checkpoint, CheckpointError

_REFUSED = ("blocking", "return_raw_trace", "zarr_store")
_POLL = 0.02  # seconds to wait for one chain before looking at the next

Tree = Any  # xarray.DataTree


def sample_by_chain(
    checkpoint: Checkpoint,
    sample: Callable[..., Any],
    compiled_model: Any,
    *,
    draws: int,
    tune: int,
    chains: int,
    cores: int,
    seed: int,
    progress_callback: Callable[[list[Any]], None] = lambda chains: None,
    **options: Any,
) -> Tree:
    """Draw all chains, with the arguments and the result of nutpie's ``sample``."""
    if refused := [name for name in _REFUSED if name in options]:
        raise CheckpointError(
            f"checkpoint= keeps nutpie's draws and returns all of them: leave out {refused[0]}=."
        )
    records = [checkpoint.record(f"chain-{k}") for k in range(chains)]
    seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(chains)]
    waiting = [k for k in range(chains) if not records[k].n_blocks]
    progress = _Progress(progress_callback, tune + draws, chains, waiting)
    running: dict[int, Any] = {}
    try:
        while waiting or running:
            while waiting and len(running) < cores:
                k = waiting.pop(0)
                settings = {"draws": draws, "tune": tune, "chains": 1, "cores": 1, "seed": seeds[k]}
                report = progress.of_chain(k)
                running[k] = sample(
                    compiled_model, **settings, blocking=False, progress_callback=report, **options
                )
            for k, chain in list(running.items()):
                with suppress(TimeoutError):  # it has not ended
                    records[k].append(_arrays(chain.wait(timeout=_POLL)), {})
                    del running[k]
    finally:
        for chain in running.values():
            chain.cancel()
    return _tree([next(record.blocks()) for record in records], compiled_model)


class _Progress:
    """The progress of all chains, reported by one callback as if nutpie ran them together."""

    def __init__(
        self, callback: Callable[[list[Any]], None], total: int, chains: int, waiting: list[int]
    ) -> None:
        self._callback, self._lock = callback, Lock()
        self._chains: list[Any] = [
            SimpleNamespace(
                finished_draws=0 if k in waiting else total,
                total_draws=total,
                started=k not in waiting,
                tuning=k in waiting,
                divergences=0,
                divergent_draws=[],
                latest_num_steps=0,
                total_num_steps=0,
                step_size=0.0,
                runtime_ms=0,
            )
            for k in range(chains)
        ]

    def of_chain(self, k: int) -> Callable[[list[Any]], None]:
        def tell(progress: list[Any]) -> None:  # in a thread of nutpie's
            with self._lock:
                self._chains[k] = progress[0]
                self._callback(list(self._chains))

        return tell


# -- from the draws of a chain to arrays, and back ---------------------------------------------------


def _arrays(tree: Tree) -> Arrays:
    """The variables of a tree by ``group/name``, and under ``"about"`` their dimensions, as JSON."""
    arrays: dict[str, np.ndarray] = {}
    about: dict[str, Any] = {}
    for group in tree.children.values():
        for name, variable in group.data_vars.items():
            values, key = variable.values, f"{group.name}/{name}"
            as_json = values.dtype == object  # messages of divergences, mostly None
            arrays[key] = _as_bytes(values.tolist()) if as_json else values
            about[key] = {
                "dims": variable.dims[2:],
                "json": as_json,
                "group": group.name,
                "name": name,
            }
    attrs = tree["sample_stats"].attrs
    settings = {k: str(attrs[k]) for k in attrs if k.startswith("inference_library")}
    return {**arrays, "about": _as_bytes({"variables": about, "attrs": settings})}


def _tree(chains: list[dict[str, np.ndarray]], compiled_model: Any) -> Tree:
    about = _from_bytes(chains[0].pop("about"))
    groups: dict[str, dict[str, np.ndarray]] = {}
    dims: dict[str, list[str]] = {}
    for key, description in about["variables"].items():
        parts = [chain[key] for chain in chains]
        if description["json"]:
            parts = [np.array(_from_bytes(x), dtype=object) for x in parts]
        groups.setdefault(description["group"], {})[description["name"]] = np.concatenate(parts)
        dims[description["name"]] = description["dims"]
    coords: Mapping[str, Any] = compiled_model.coords or {}
    return import_module("arviz").from_dict(
        groups,
        coords=dict(coords),
        dims=dims,
        attrs={"sample_stats": about["attrs"]},
        save_warmup=True,
    )


def _as_bytes(value: object) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _from_bytes(data: np.ndarray) -> Any:
    return json.loads(data.tobytes())
