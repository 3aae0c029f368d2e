"""The state of a PyMC step as arrays and JSON, and back.

PyMC keeps the state of a step in data classes (``step.sampling_state``). It is read back into the classes
of the current step: a file names none.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from loopax.pymc.checkpoints.folder import Arrays, CheckpointError

TREE = "tree"
_PLAIN = (bool, int, float, str, type(None))
_KIND, _VALUE = "kind", "value"


def as_arrays(state: object) -> dict[str, np.ndarray]:
    """The arrays of a state, and under ``"tree"`` the rest of it, as JSON.

    Raises `CheckpointError` if the state holds an object of another kind.
    """
    arrays: dict[str, np.ndarray] = {}

    def write(value: object, place: str) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
            name = str(len(arrays))
            arrays[name] = np.asarray(value)
            kind = "array" if isinstance(value, np.ndarray) else "scalar"
            return {_KIND: kind, _VALUE: name}
        if is_dataclass(value):
            by_name = {
                f.name: write(getattr(value, f.name), f"{place}.{f.name}") for f in fields(value)
            }
            return {_KIND: type(value).__qualname__, _VALUE: by_name}
        if isinstance(value, dict) and all(isinstance(k, str) for k in value):
            return {
                _KIND: "dict",
                _VALUE: {k: write(x, f"{place}[{k!r}]") for k, x in value.items()},
            }
        if isinstance(value, list | tuple):
            parts = [write(x, f"{place}[{k}]") for k, x in enumerate(value)]
            return parts if isinstance(value, list) else {_KIND: "tuple", _VALUE: parts}
        raise CheckpointError(
            f"checkpoint= cannot save the state of this step: {place} is a {type(value).__name__}."
        )

    tree = json.dumps(write(state, "state"))
    return {**arrays, TREE: np.frombuffer(tree.encode(), np.uint8)}


def from_arrays(arrays: Arrays, like: Any) -> Any:
    """The state that `as_arrays` wrote, in the classes of ``like``, a state of the same step.

    Raises `CheckpointError` if it is the state of a step of another form.
    """

    def read(written: object, like: Any) -> Any:
        if isinstance(written, list):
            matches = isinstance(like, list) and len(like) == len(written)
            return [read(x, like[k] if matches else None) for k, x in enumerate(written)]
        if not isinstance(written, dict):
            return written
        kind, value = written[_KIND], written[_VALUE]
        if kind == "array":
            return np.array(arrays[value])
        if kind == "scalar":
            return arrays[value][()]
        if kind == "dict":
            inner = like if isinstance(like, dict) else {}
            return {k: read(x, inner.get(k)) for k, x in value.items()}
        if kind == "tuple":
            matches = isinstance(like, tuple) and len(like) == len(value)
            parts = [read(x, like[k] if matches else None) for k, x in enumerate(value)]
            return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)
        if kind != type(like).__qualname__ or {f.name for f in fields(like)} != value.keys():
            raise CheckpointError(
                f"The folder holds the state of a {kind}, but this step has a {type(like).__name__}."
            )
        return replace(like, **{k: read(x, getattr(like, k)) for k, x in value.items()})

    return read(json.loads(arrays[TREE].tobytes()), like)
