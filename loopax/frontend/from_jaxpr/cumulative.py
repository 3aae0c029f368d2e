"""Primitives that run along an axis."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt

from loopax.frontend.from_jaxpr.reading import refuse, rule


@rule("cumsum", "cumprod")
def _cumulative(eqn: Any, x: Any) -> Any:
    axis = eqn.params["axis"]
    if not x.type.dtype.startswith("float"):
        raise refuse(eqn, f"of {x.type.dtype}")
    run = pt.cumsum if eqn.primitive.name == "cumsum" else pt.cumprod
    if not eqn.params["reverse"]:
        return run(x, axis=axis)
    flip = (*[slice(None)] * axis, slice(None, None, -1))
    return run(x[flip], axis=axis)[flip]
