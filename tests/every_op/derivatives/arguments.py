"""The arguments that a program is differentiated at: those of its record, and special ones made of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from tests.every_op.cells import Subject
from tests.every_op.record import Example


def _one_zero(x: Any) -> Any:
    x = x.copy()
    x.flat[:1] = 0
    return x


def _rows_repeated(x: Any) -> Any:
    """Singular where it is square; its last two rows are one."""
    x = x.copy()
    if x.ndim > 1 and len(x) > 1:
        x[-1] = x[-2]
    return x


def _identity(x: Any) -> Any:
    """All eigenvalues, and all singular values, are equal."""
    if x.ndim < 2:
        return x
    return np.broadcast_to(np.eye(*x.shape[-2:]), x.shape).astype(x.dtype)


# Of each float argument, what takes its place. Where that leaves all of them as they are, it is left out.
REPLACED: Mapping[str, Callable[[Any], Any]] = {
    "as recorded": lambda x: x,
    "a zero": _one_zero,
    "zeros": np.zeros_like,
    "ties": lambda x: np.full_like(x, np.ravel(x)[0] if x.size else 0),
    "ones": np.ones_like,
    "rounded": np.round,
    "rows repeated": _rows_repeated,
    "identities": _identity,
    "length 1": lambda x: x[(slice(0, 1),) * x.ndim],
    "empty": lambda x: x[(slice(0, 0),) * x.ndim],
}
# Other dtypes of arguments: of all, and of one at a time.
SINGLE, INTEGER = "float32", "integers in argument "


def variants(example: Example) -> Iterator[tuple[str, Subject, list[Any]]]:
    """Programs of the example and arguments for each, by name. The types of inputs say no lengths.

    Arguments of the same shapes, with results of the same shapes, have one program.
    """
    subject = Subject(example)
    programs: dict[object, Subject] = {}
    for name, change in REPLACED.items():
        values = list(subject.values)
        for k in subject.floats:
            values[k] = np.array(change(values[k]), values[k].dtype)
        if name == "as recorded" or not _all_equal(values, subject.values):
            yield name, programs.setdefault(_shapes(subject, values), _at(subject, values)), values
    places = subject.floats
    dtypes = {SINGLE: dict.fromkeys(places, "float32")} if places else {}
    if len(places) > 1:
        dtypes |= {f"{INTEGER}{i}": {k: "int64"} for i, k in enumerate(places)}
    for name, changed in dtypes.items():
        try:
            converted = _with_dtypes(subject, changed)
        except Exception:  # no dtypes of this op
            continue
        yield name, converted, converted.values


def _all_equal(values: Any, others: Any) -> bool:
    return all(
        a is b or (isinstance(a, np.ndarray) and np.array_equal(a, b))
        for a, b in zip(values, others, strict=True)
    )


def _shapes(subject: Subject, values: list[Any]) -> object:
    """The shapes of floats and of results, which the weights have; unique without results."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = subject.reference(values)
    except Exception:
        return object()
    return tuple(np.shape(x) for x in (*subject.floats_of(values), *results))


def _at(subject: Subject, values: list[Any]) -> Subject:
    moved = Subject(subject.example)
    moved.values = values
    return moved


def _with_dtypes(subject: Subject, dtypes: Mapping[int, str]) -> Subject:
    """The program of inputs of other dtypes, its ops applied to them anew."""
    swaps = {}
    for k, dtype in dtypes.items():
        v, x = subject.inputs[k], subject.values[k]
        other = pt.tensor(v.name, dtype=dtype, shape=v.type.shape)
        other.tag.value = np.array(np.round(x) if dtype.startswith("int") else x, dtype)
        swaps[v] = other
    outputs = clone_replace(subject.outputs, swaps, rebuild_strict=False)
    return Subject(replace(subject.example, outputs=outputs, expected=None))
