"""Random variables: sequential draws from a generator, which is an input and an output.

A draw changes its generator in place if it is the only reader, so that a loop draws from the generator
that it carries; otherwise it draws from a copy. So two draws from one generator variable are equal.

A draw is a call of a *sampler*, a native function of the generator and of the parameters of one draw:
see `samplers.py`. A distribution without one runs as Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.op import RandomVariable

from loopax.base.upstream.pytensor import shape_of_draw
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Dim, Expr, Index, as_dim, call, dtype_name, expr
from loopax.numba_backend.emit.object_mode import object_mode
from loopax.numba_backend.emit.opaque import result
from loopax.numba_backend.emit.values import Array, Opaque, Value, small
from loopax.numba_backend.runtime.samplers import conditions, sampler


@rule(RandomVariable)
def draw(site: Site, rng: Opaque, size: Value | None, *params: Value) -> Any:
    emit, op = site.emit, site.op
    function = sampler(op, site.node)
    if function is None:
        return object_mode(site, rng, size, *params)
    generator = site.owned(0, rng)
    n_batch = op.batch_ndim(site.node)
    one_draw = _Draw(site, emit.bind(function, op.name), generator.name, params)
    shape = _sized(emit, size) if isinstance(size, Value) else _broadcast(emit, one_draw, n_batch)
    if op.ndim_supp:
        return generator, _arrays(site, one_draw, shape)
    return generator, _numbers(site, one_draw, shape)


# -- one draw --------------------------------------------------------------------------------------


class _Draw:
    """The call for one draw, with the parameters at one index of the batch."""

    def __init__(self, site: Site, function: str, rng: Expr, params: Sequence[Value]) -> None:
        self.emit, self.function, self.rng = site.emit, function, rng
        self.op, self.core = site.op, site.op.ndims_params
        self.params = [
            self._contiguous(p) if n else self.emit.indexable(p)
            for p, n in zip(params, self.core, strict=True)
        ]
        # Flags of the axes of the batch that the types of the parameters broadcast.
        self.spread = [
            v.type.broadcastable[: v.type.ndim - n]
            for v, n in zip(site.op.dist_params(site.node), self.core, strict=True)
        ]
        self._check_lengths()

    def _check_lengths(self) -> None:
        """Check common lengths, such as of a mean and a covariance: a sampler may read out of bounds."""
        if not self.op.signature:
            return
        lengths: dict[str, Dim] = {}
        for p, names in zip(self.params, self.op.inputs_sig, strict=True):
            for n, name in zip(p.shape[len(p.shape) - len(names) :], names, strict=True):
                if lengths.setdefault(name, n) != n:
                    self.emit.do("agree", lengths[name], n)

    def _contiguous(self, value: Value) -> Value:
        array = self.emit.dense(value)
        name = self.emit.temp(call("np.ascontiguousarray", array.name), "a")
        return Array(name, array.shape, array.dtype)

    def batches(self) -> list[tuple[Dim, ...]]:
        return [p.shape[: len(p.shape) - n] for p, n in zip(self.params, self.core, strict=True)]

    def strides(self, shape: Sequence[Dim]) -> list[list[Index]]:
        """Strides of each parameter along the axes of the batch: 0 where it is broadcast."""
        return [
            [
                self._stride(m, n, spread)
                for m, n, spread in zip(batch, shape[len(shape) - len(batch) :], flags, strict=True)
            ]
            for batch, flags in zip(self.batches(), self.spread, strict=True)
        ]

    def _stride(self, m: Dim, n: Dim, spread: bool) -> Index:
        if m == n:
            return 1
        if not spread:
            self.emit.do("agree", m, n)
        return 0 if spread else 1

    def at(self, place: Sequence[Index], strides: Sequence[Sequence[Index]]) -> Expr:
        """Write checks of the parameters; returns the call."""
        emit, args = self.emit, list[Expr]()
        for p, n, steps in zip(self.params, self.core, strides, strict=True):
            index = [
                emit.number(i * s)
                for i, s in zip(place[len(place) - len(steps) :], steps, strict=True)
            ]
            if n:
                args.append(p.name[index] if index else p.name)  # type: ignore[union-attr]
            else:
                args.append(emit.read(p, index))
        for condition in conditions(self.op):
            holds = expr(condition, *args)
            if _holds_now(holds):
                continue
            with emit.when(expr("not {}", holds)):
                message = f"A parameter of {self.op.name} is out of range: {condition}"
                emit.fail("ValueError", message)
        return call(self.function, self.rng, *args)


def _holds_now(condition: Expr) -> bool:
    """Whether a condition on literals holds; False for one with locals."""
    try:
        return bool(eval(condition.text, {"np": np}))
    except NameError:
        return False


# -- batches ------------------------------------------------------------------------------------------


def _sized(emit: Emitter, size: Value) -> list[Dim]:
    n = size.shape[0]
    assert isinstance(n, int), size  # as many as the draw has axes
    lengths = [as_dim(emit.read(size, [k])) for k in range(n)]
    return [
        n if isinstance(n, int) else emit.number(call("size", n), "n", may_raise=True)
        for n in lengths
    ]


def _broadcast(emit: Emitter, one_draw: _Draw, n_batch: int) -> list[Dim]:
    """The common shape of the parameters, for draws without a size."""
    shape: list[Any] = [None] * n_batch
    for batch, flags in zip(one_draw.batches(), one_draw.spread, strict=True):
        for k, (n, spread) in enumerate(zip(batch, flags, strict=True), n_batch - len(batch)):
            if spread:
                continue
            if shape[k] is None:
                shape[k] = n
            elif n != shape[k]:
                emit.do("agree", shape[k], n)
    return [1 if n is None else n for n in shape]


def _numbers(site: Site, one_draw: _Draw, shape: Sequence[Dim]) -> Value:
    emit, dtype = site.emit, site.node.outputs[1].type.dtype
    strides = one_draw.strides(shape)
    if not shape:
        return small(emit.temp(one_draw.at([], strides).astype(dtype)), dtype)
    name = emit.empty(shape, dtype)
    with emit.loops(shape) as places:
        for place in places:
            emit.set(name[place], one_draw.at(place, strides))
    return Array(name, tuple(shape), dtype, fresh=True)


def _arrays(site: Site, one_draw: _Draw, shape: Sequence[Dim]) -> Value:
    """Draws that are arrays themselves: multivariate normal, permutations."""
    emit, out = site.emit, site.node.outputs[1]
    dtype, strides = out.type.dtype, one_draw.strides(shape)
    if not shape:
        return result(emit, one_draw.at([], strides).method("astype", dtype_name(dtype)), out)
    rows = _row_shape(site, one_draw)
    name = emit.empty([*shape, *rows], dtype)
    with emit.loops(shape) as places:
        for place in places:
            row = emit.temp(one_draw.at(place, strides), "row")
            for k, n in enumerate(rows):
                emit.do("agree", row.length(k), n)
            with emit.loops(rows) as indices:
                for at in indices:
                    emit.set(name[*place, *at], row[at])
    return Array(name, (*shape, *rows), dtype, fresh=True)


def _row_shape(site: Site, one_draw: _Draw) -> list[Dim]:
    """The shape of one draw, as the op computes it from the parameters."""
    emit, op = site.emit, site.op
    inputs = [v.type() for v in op.dist_params(site.node)]
    dims = [pt.as_tensor(n).astype("int64") for n in shape_of_draw(op, inputs)]
    graph = FunctionGraph(inputs, dims, clone=False)
    return [as_dim(emit.scalar(n)) for n in emit.run(graph, one_draw.params)]
