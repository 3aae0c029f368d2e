"""Cotangents of operands that an op has broadcast."""

from __future__ import annotations

from typing import Any


def summed(g: Any, x: Any) -> Any:
    """``g``, of the shape that ``x`` was broadcast to, summed over the axes along which it was."""
    extra = g.type.ndim - x.type.ndim
    g = g.sum(axis=tuple(range(extra))) if extra else g
    axes = [k for k, n in enumerate(x.type.shape) if n == 1 and g.type.shape[k] != 1]
    return g.sum(axis=axes, keepdims=True) if axes else g
