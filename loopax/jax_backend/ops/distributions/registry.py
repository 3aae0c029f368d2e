"""The record of a sampler, and the choice of one for an op."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.jax.dispatch.random import jax_sample_fn
from pytensor.tensor.random.op import RandomVariable

from loopax.numerics.arrays import Array, widest_float

Draw = Callable[..., Any]
# The conditions on the parameters: description -> truth, elementwise. Each uses as few parameters as it
# can, so that it is known while JAX traces whenever these are.
Conditions = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class Family:
    """The draws of a class of `RandomVariable`."""

    conditions: Conditions  # on the parameters as they are given, NumPy or JAX
    # ``draw(key, shape, dtype, *parameters, **options(op))``, with ``shape`` the batch shape. The
    # parameters' batch dimensions broadcast to it. None: PyTensor's own sampler is right.
    draw: Draw | None
    # The dtype to which parameters are converted first: ``"like the draw"``, its float dtype or a wider
    # float dtype of a parameter; ``"widest"``, the widest float dtype, for draws that are counts; ``"as
    # given"``, none.
    numbers: str = "like the draw"
    # The positions of an op's parameters that JAX must know while it traces.
    known: Callable[[Any], tuple[int, ...]] = lambda op: ()
    # Further arguments of the sampler, from the op.
    options: Callable[[Any], Mapping[str, Any]] = lambda op: {}

    def converted(
        self, op: RandomVariable, parameters: Sequence[Array], dtype: np.dtype
    ) -> list[Any]:
        """Convert the parameters to JAX arrays, in the dtype of the computation; known ones stay NumPy."""
        known = self.known(op)
        if self.numbers == "as given":
            return [p if k in known else jnp.asarray(p) for k, p in enumerate(parameters)]
        arrays = [jnp.asarray(p) for p in parameters]
        if self.numbers == "widest":
            working = widest_float()
        else:
            floats = [a.dtype for a in arrays if jnp.issubdtype(a.dtype, jnp.floating)]
            working = jnp.result_type(jax.dtypes.canonicalize_dtype(dtype), *floats)
        return [a.astype(working) for a in arrays]


_FAMILIES: dict[type, Family] = {}


def family(
    cls: type,
    conditions: Conditions,
    draw: Draw,
    numbers: str = "like the draw",
    known: Callable[[Any], tuple[int, ...]] = lambda op: (),
    options: Callable[[Any], Mapping[str, Any]] = lambda op: {},
) -> None:
    """Register the draw of an Op class; a second registration for a class is an error."""
    _add(cls, Family(conditions, draw, numbers, known, options))


def pytensors(cls: type, conditions: Conditions) -> None:
    """Register PyTensor's own sampler of an Op class as right."""
    _add(cls, Family(conditions, None))


def _add(cls: type, new: Family) -> None:
    assert cls not in _FAMILIES, f"{cls.__name__} already has a sampler: {_FAMILIES[cls]}"
    _FAMILIES[cls] = new


def families() -> tuple[type, ...]:
    """The Op classes with a sampler of loopax, or one of PyTensor's that we accept."""
    return tuple(_FAMILIES)


def find_family(op: RandomVariable) -> Family | None:
    """The family of the nearest class of ``op``, if ``op`` draws in the same way."""
    for cls in type(op).__mro__:
        if cls in _FAMILIES:
            return _FAMILIES[cls] if _draws_as(op, cls) else None
    return None


def _draws_as(op: RandomVariable, cls: Any) -> bool:
    """Whether ``op`` uses the code of ``cls``: a subclass with its own is another distribution."""

    def code(of: type, name: str) -> Any:
        return inspect.getattr_static(of, name, None)

    same = all(
        code(type(op), name) is code(cls, name) for name in ("rng_fn", "rng_fn_scipy", "perform")
    )
    # The inherited rng_fn calls the method of NumPy's Generator that has the op's name.
    by_name = code(cls, "rng_fn") is code(RandomVariable, "rng_fn")
    return same and (not by_name or op.name == cls.name)


def users_sampler(op: RandomVariable) -> Any:
    """The function that a user registered with ``jax_sample_fn`` for the class of ``op``, or None."""
    function = jax_sample_fn.dispatch(type(op))
    return None if function.__module__.startswith("pytensor.") else function


def has_sampler(op: RandomVariable) -> bool:
    """Whether draws of ``op`` can be made in JAX."""
    return users_sampler(op) is not None or find_family(op) is not None


def pytensors_draw(
    op: RandomVariable,
    node: Apply,
    key: jax.Array,
    shape: tuple[int, ...],
    dtype: str,
    *parameters: jax.Array,
) -> Any:
    """Draw by the function that PyTensor, or a user, registered with ``jax_sample_fn``."""
    return jax_sample_fn(op, node=node)(key, shape, dtype, *parameters)
