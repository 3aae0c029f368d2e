"""Slices as values: ``slice(a, b)`` of variables."""

from __future__ import annotations

from pytensor.tensor.type_other import MakeSlice

from loopax.numba_backend.emit.emitter import Site, rule
from loopax.numba_backend.emit.expressions import call
from loopax.numba_backend.emit.values import Opaque, Value


@rule(MakeSlice)
def make_slice(site: Site, *parts: Value | Opaque | None) -> Opaque:
    emit = site.emit
    bounds = [emit.scalar(part) if isinstance(part, Value) else None for part in parts]
    return Opaque(emit.temp(call("slice", *bounds), "slice"))
