"""Values of shared variables, and everything computed from them alone, as arguments of compiled programs.

Both stay on the device until a shared variable changes. In JAX's 32-bit mode nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.tensor.type import TensorType

from loopax.base.upstream.jax import jax_config
from loopax.calling.memo import Memo, MemoizedValues
from loopax.ir.program import EarlyPart, Program, Shared
from loopax.jax_backend.values.crossing import accept, current


class SharedValues:
    """The values of a program's shared variables; ``whats`` describe them in messages."""

    def __init__(self, program: Program, whats: Sequence[str]) -> None:
        self._shared, self._whats = program.shared, whats
        self._on_device = {
            k: _kept_on_device(s, whats[k])
            for k, s in enumerate(program.shared)
            if isinstance(s.variable.type, TensorType)
        }

    def at(self, positions: Iterable[int], concrete: bool) -> list[Any]:
        """The current values; ``concrete`` says that no transformation is under way."""
        keeps = concrete and jax_config.jax_enable_x64
        values = []
        for k in positions:
            x = self._shared[k].value
            if keeps and type(x) is np.ndarray and k in self._on_device:
                values.append(self._on_device[k]([x]))
            else:
                values.append(current(x, self._shared[k].variable.type, self._whats[k]))
        return values


class EarlyValues:
    """The values of a program's early ``part``, which depend on its shared variables alone."""

    def __init__(self, program: Program, part: EarlyPart) -> None:
        self._read = [program.shared[k] for k in part.reads]
        self._kept = MemoizedValues(part.early, _arrays_on_device)

    def now(self) -> list[Any] | None:
        """The early values for the current shared variables, or None if they cannot be kept."""
        arrays = [s.value for s in self._read]
        if not all(isinstance(x, np.ndarray) for x in arrays) or not jax_config.jax_enable_x64:
            return None
        return self._kept(arrays)


def _kept_on_device(shared: Shared, what: str) -> Memo:
    """The value of a shared variable on the device, converted again when it has changed."""
    held = shared.variable.type

    def make(copies: list[np.ndarray]) -> jax.Array:
        with jax.ensure_compile_time_eval():
            return jnp.asarray(accept(copies[0], held, what))

    return Memo(make)


def _arrays_on_device(values: Sequence[np.ndarray]) -> list[Any]:
    """Put values on the device, outside of any trace that is under way."""
    with jax.ensure_compile_time_eval():
        return [jnp.array(x) for x in values]
