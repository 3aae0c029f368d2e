"""What NumPy does with an array, as a table: each entry makes a PyTensor variable of one.

``x`` is the array, ``y`` another one with the rows of the same mask, ``whole`` an array without a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

Rules = dict[str, Callable[[], Any]]
PARTS = {
    "first": 0,
    "last": -1,
    "from": slice(1, None),
    "to": slice(None, -1),
    "two": slice(None, 2),
    "last two": slice(-2, None),
    "every second": slice(None, None, 2),
    "backwards": slice(None, None, -1),
    "backwards in twos": slice(-2, None, -2),
    "beyond": slice(5, 100),
    "before": slice(-100, -5),
    "places": np.array([0, -1, 0]),
    "table": np.array([[0, -1], [-1, 0]]),
}


@dataclass(frozen=True)
class Arrays:
    x: Any
    y: Any
    whole: Any
    axis: int  # of the mask

    @property
    def others(self) -> list[int]:
        return [k for k in range(self.x.ndim) if k != self.axis]

    def one(self) -> Any:
        return np.asarray(1, self.x.dtype)

    def at(self, axis: int, e: Any) -> Any:
        return self.x[(*[slice(None)] * axis, e)]

    def row_mask(self, axis: int) -> Any:
        """Which places along ``axis`` are positive, in the first element of every other axis."""
        if self.x.ndim == 1:
            return self.x > 0
        return (self.x > 0).any(axis=tuple(k for k in range(self.x.ndim) if k != axis))


def reductions(a: Arrays) -> Rules:
    x, n = a.x, a.x.ndim
    axes = [None, *range(-n, n), *combinations(range(n), 2)]
    rules: Rules = {}
    names = ["max", "min", "sum", "prod", "argmax", "argmin", "any", "all"]
    for name in names if x.dtype == "bool" else [*names, "mean", "var"]:
        y = x > 0 if name in ("any", "all") and x.dtype != "bool" else x
        reduce = getattr(pt, name)
        for axis in axes:
            rules[f"{name} {axis}"] = lambda f=reduce, y=y, k=axis: f(y, axis=k)
            rules[f"{name} {axis} kept"] = lambda f=reduce, y=y, k=axis: f(y, axis=k, keepdims=True)
    for order in permutations(range(n)):
        rules[f"argmax of {order}"] = lambda order=order: pt.argmax(x.dimshuffle(*order))
        rules[f"argmin of {order}"] = lambda order=order: pt.argmin(x.dimshuffle(*order))
    rules["at argmax"] = lambda: x.ravel()[pt.argmax(x)]
    if n > 1:
        rules["unravelled"] = lambda: pt.stack(pt.unravel_index(pt.argmax(x), x.shape))
        rules["all unravelled"] = lambda: pt.unravel_index(pt.argmax(x, axis=a.others[0]), (2, 3))[
            0
        ]
    return rules


def along_axes(a: Arrays) -> Rules:
    x, n, rules = a.x, a.x.ndim, {}
    for axis in [None, *range(-n, n)]:
        rules[f"sort {axis}"] = lambda k=axis: pt.sort(x, axis=k)
        rules[f"argsort {axis}"] = lambda k=axis: pt.argsort(x, axis=k, kind="stable")
        if x.dtype not in ("bool", "uint8"):  # PyTensor declares another type than NumPy's
            rules[f"cumsum {axis}"] = lambda k=axis: pt.cumsum(x, axis=k)
            rules[f"cumprod {axis}"] = lambda k=axis: pt.cumprod(x, axis=k)
    for axis in range(n):
        if x.dtype.startswith("float"):
            rules[f"softmax {axis}"] = lambda k=axis: pt.special.softmax(x, axis=k)
            rules[f"log softmax {axis}"] = lambda k=axis: pt.special.log_softmax(x, axis=k)
        if x.dtype != "bool":
            rules[f"differences {axis}"] = lambda k=axis: pt.diff(x, axis=k)
            rules[f"range {axis}"] = lambda k=axis: pt.ptp(x, axis=k)
        rules[f"joined {axis}"] = lambda k=axis: pt.concatenate([x, a.y, x], axis=k)
        rules[f"stacked {axis}"] = lambda k=axis: pt.stack([x, a.y], axis=k)
        rules[f"repeated {axis}"] = lambda k=axis: pt.repeat(x, 2, axis=k)
        rules[f"rolled {axis}"] = lambda k=axis: pt.roll(x, 1, axis=k)
        rules[f"split {axis}"] = lambda k=axis: pt.split(
            x, [1, x.shape[k] - 1], n_splits=2, axis=k
        )[1]
        rules[f"a loop over {axis}"] = lambda k=axis: pytensor.scan(
            lambda row: row.sum(), sequences=[pt.moveaxis(x, k, 0)], return_updates=False
        )
    rules[f"joined to a whole one {a.axis}"] = lambda: pt.concatenate([x, a.whole], axis=a.axis)
    return rules


def indices(a: Arrays) -> Rules:
    x, n, rules = a.x, a.x.ndim, {}
    for axis in range(n):
        for name, e in PARTS.items():
            rules[f"read {name} {axis}"] = lambda k=axis, e=e: a.at(k, e)
            rules[f"set {name} {axis}"] = lambda k=axis, e=e: pt.set_subtensor(a.at(k, e), a.one())
            if x.dtype != "bool":
                rules[f"add {name} {axis}"] = lambda k=axis, e=e: pt.inc_subtensor(
                    a.at(k, e), a.at(k, e) + a.one()
                )
    k = a.axis
    rules["read a mask of a mask"] = lambda: a.at(k, a.row_mask(k))
    rules["set a mask of a mask"] = lambda: pt.set_subtensor(a.at(k, a.row_mask(k)), a.one())
    rules["nonzero"] = lambda: pt.stack(x.nonzero())
    rules["flat nonzero"] = lambda: pt.flatnonzero(x)
    rules["read by its own mask"] = lambda: x[x > 0]
    rules["set by its own mask"] = lambda: pt.set_subtensor(x[x > 0], a.one())
    rules["every flat one"] = lambda: x.ravel()[pt.arange(x.size)]
    if x.dtype != "bool":
        rules["add by its own mask"] = lambda: pt.inc_subtensor(x[x > 0], x[x > 0])
        again = np.array([0, -1, 0])
        rules["add once at an index"] = lambda: pt.inc_subtensor(
            a.at(k, again), a.at(k, again) + a.one(), ignore_duplicates=True
        )
    if n > 1:
        two = np.array([0, -1])
        rules["x[-1, -1]"] = lambda: x[-1, -1]
        rules["x[1:, -1]"] = lambda: x[1:, -1]
        rules["x[-1, 1:]"] = lambda: x[-1, 1:]
        rules["x[two, two]"] = lambda: x[two, two]
        rules["x[two, 1:]"] = lambda: x[two, 1:]
        rules["x[1:, two]"] = lambda: x[1:, two]
        rules["x[two[:, None], two]"] = lambda: x[two[:, None], two]
        rules["set x[two, two]"] = lambda: pt.set_subtensor(x[two, two], a.one())
        rules["set x[::-1, two]"] = lambda: pt.set_subtensor(x[::-1, two], x[:, two])
        rules["set x[two, ::-1]"] = lambda: pt.set_subtensor(x[two, ::-1], x[two])
    if n > 2:
        rules["x[0, :, two]"] = lambda: x[0, :, two]
        rules["x[two, 1:, two]"] = lambda: x[two, 1:, two]
        rules["x[1:, two, two]"] = lambda: x[1:, two, two]
        rules["set x[two, 1:, two]"] = lambda: pt.set_subtensor(
            x[two, 1:, two], x[two, 1:, two][::-1]
        )
    return rules


def shapes(a: Arrays) -> Rules:
    x, n = a.x, a.x.ndim
    rules: Rules = {
        "shape": lambda: x.shape,
        "size": lambda: x.size,
        "flat": lambda: x.flatten(),
        "in one column": lambda: x.reshape((-1, 1)),
        "a new axis": lambda: x[None],
        "a new axis behind": lambda: x[..., None],
        "tiled": lambda: pt.tile(x, 2),
        "tiled along all": lambda: pt.tile(x, (2,) * n),
        "zeros": lambda: pt.zeros_like(x),
        "full": lambda: pt.full_like(x, a.one()),
        "unique": lambda: pt.extra_ops.unique(x),
        "unique counts": lambda: pt.extra_ops.unique(x, return_counts=True)[1],
        "unique first": lambda: pt.extra_ops.unique(x, return_index=True)[1],
        "broadcast": lambda: pt.broadcast_to(x, (2, *[x.shape[k] for k in range(n)])),
    }
    for order in permutations(range(n)):
        rules[f"transposed {order}"] = lambda order=order: x.dimshuffle(*order)
        rules[f"flat of {order}"] = lambda order=order: x.dimshuffle(*order).ravel()
    if n > 1:
        lengths = [x.shape[k] for k in range(n)]
        rules["flat in two axes"] = lambda: x.flatten(2)
        for k in range(n):
            rules[f"-1 for {k}"] = lambda k=k: x.reshape([*lengths[:k], -1, *lengths[k + 1 :]])
        for k in range(n - 1):
            rules[f"{k} and {k + 1} as one"] = lambda k=k: x.reshape(
                [*lengths[:k], lengths[k] * lengths[k + 1], *lengths[k + 2 :]]
            )
            rules[f"{k} and {k + 1} joined"] = lambda k=k: pt.join_dims(x, k, 2)
            rules[f"{k} and {k + 1} the other way round"] = lambda k=k: x.reshape(
                [*lengths[:k], lengths[k + 1], lengths[k], *lengths[k + 2 :]]
            )
    return rules


def arithmetic(a: Arrays) -> Rules:
    x, y, k = a.x, a.y, a.axis
    first = pt.moveaxis(pt.moveaxis(a.whole, k, 0)[:1], 0, k)
    rules: Rules = {"equal": lambda: pt.eq(x, y), "with one row": lambda: pt.gt(x, first)}
    if x.dtype == "bool":
        return rules | {"and": lambda: x & y, "not": lambda: ~x}
    rules |= {
        "sum of two": lambda: x + y,
        "all in one row": lambda: x * first,
        "chosen": lambda: pt.switch(x > 0, x, y),
        "contracted": lambda: pt.tensordot(x, y, axes=x.ndim),
        "contracted along the rows": lambda: pt.tensordot(x, y, axes=[[k], [k]]),
    }
    if x.ndim == 1:
        rules |= {
            "dot": lambda: pt.dot(x, y),
            "vector and matrix": lambda: pt.dot(x, pt.stack([x, y], 1)),
            "matrix and vector": lambda: pt.dot(pt.stack([x, y]), x),
            "searched": lambda: pt.extra_ops.searchsorted(pt.sort(x), y),
            "searched from the right": lambda: pt.extra_ops.searchsorted(
                pt.sort(x), y, side="right"
            ),
            "searched in it": lambda: pt.extra_ops.searchsorted(pt.sort(x), a.whole),
            "searched for it": lambda: pt.extra_ops.searchsorted(pt.sort(a.whole), x),
        }
    if x.ndim == 2:
        rows, columns = pt.moveaxis(x, k, 0), pt.moveaxis(x, k, -1)
        rules |= {
            "gram": lambda: pt.dot(columns, rows),
            "matmul": lambda: columns @ pt.moveaxis(y, k, 0),
            "with a vector": lambda: pt.dot(rows, rows[0]),
            "with a whole row": lambda: pt.dot(rows, pt.moveaxis(a.whole, k, 0)[0]),
            "a vector in front": lambda: pt.dot(rows[:, 0], rows),
            "einsum": lambda: pt.einsum("ij,ij->j", rows, pt.moveaxis(y, k, 0)),
        }
    return rules


def all_rules(a: Arrays) -> Rules:
    groups = (reductions, along_axes, indices, shapes, arithmetic)
    return {name: rule for group in groups for name, rule in group(a).items()}
