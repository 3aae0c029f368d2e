"""``JaxContext``: the values of a program's shared variables, as a pytree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO

from loopax.base.errors import LoopTypeError
from loopax.calling.context import SharedContext
from loopax.calling.context_file import refuse_data, refuse_names
from loopax.calling.conversion import Crossing
from loopax.calling.layout import Layout
from loopax.ir.program import Program
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values import crossing
from loopax.jax_backend.values.generators import is_key
from loopax.numerics.arrays import Array


@jax.tree_util.register_pytree_with_keys_class
class JaxContext(SharedContext):
    """The values of the shared variables of one or more functions, by name: an immutable pytree.

    ``jf.init_context()`` makes one from the variables' current values, `loopax.SharedContext.of` one for
    several functions. A variable without a name is called ``shared``; the second one with a name gets the
    suffix ``_1``. The context shares no memory with PyTensor, and never changes. As a pytree it has one
    subtree for each variable, with its name as the key: ``jax.jit``, ``vmap``, ``lax.scan``, ``device_put``
    and checkpoint libraries take it.

    >>> import numpy as np, pytensor
    >>> from loopax import jaxify
    >>> total = pytensor.shared(np.float64(1.0), name="total")
    >>> jf = jaxify([], total * 2, updates={total: total + 1})
    >>> ctx, out = jf.apply(jf.init_context())
    >>> ctx.get(total), ctx.set(total, 9.0)["total"], total.get_value()
    (Array(2., dtype=float64), array(9.), array(1.))
    """

    __slots__ = ()
    crossing: ClassVar[Crossing] = crossing

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], Layout]:
        keys = map(jax.tree_util.DictKey, self._layout.names)
        return list(zip(keys, self._values, strict=True)), self._layout

    def tree_flatten(self) -> tuple[tuple[Any, ...], Layout]:
        return self._values, self._layout

    @classmethod
    def tree_unflatten(cls, layout: Layout, values: Sequence[Any]) -> JaxContext:
        return cls(layout, values)

    def replicate(self, n: int) -> JaxContext:
        """``n`` contexts along a new leading axis, each with generators of its own.

        ``jax.vmap(jf.apply)`` runs them in parallel: chains, particles, ensembles.
        """
        return jax.tree.map(
            lambda x: _replicated(x, n), self, is_leaf=lambda x: isinstance(x, BCOO)
        )

    def read(self, program: Program) -> list[Any]:
        """The values of a program's shared variables, in its order.

        Raises
        ------
        StatefulFunctionError
            A value is missing, or ambiguous.
        LoopTypeError
            A value has another type, for instance a batch of values outside of ``jax.vmap``.
        """
        for k, s in zip(self._positions(program), program.shared, strict=True):
            ndim = getattr(s.variable.type, "ndim", None)
            if ndim is not None and getattr(self._values[k], "ndim", ndim) > ndim:
                raise LoopTypeError(
                    f"The value of {self._layout.names[k]!r} in the context has rank "
                    f"{self._values[k].ndim}, but the variable has rank {ndim}: it is a batch of "
                    f"values. Make one call for each with jax.vmap({program.name}.apply)(contexts), "
                    "and with in_axes=(0, None) if all calls share the arguments."
                )
        return super().read(program)

    def is_concrete(self) -> bool:
        return not any(map(is_traced, jax.tree.leaves(self)))

    def _kind(self, x: object) -> str:
        leaves = jax.tree.leaves(x)
        if len(leaves) == 1 and hasattr(leaves[0], "dtype"):
            return f"{leaves[0].dtype}{list(leaves[0].shape)}"
        return type(x).__name__

    def _arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        leaves, _ = jax.tree_util.tree_flatten_with_path(self)
        for at, x in leaves:
            yield _path(at), np.asarray(jax.random.key_data(x) if is_key(x) else x)

    def _with_arrays(self, arrays: dict[str, np.ndarray]) -> JaxContext:
        leaves, tree = jax.tree_util.tree_flatten_with_path(self)
        names = [_path(at) for at, _ in leaves]
        refuse_names(arrays, names)
        values = [_restored(arrays[n], x, n) for n, (_, x) in zip(names, leaves, strict=True)]
        return jax.tree.unflatten(tree, values)


def _replicated(x: jax.Array | BCOO, n: int) -> Any:
    if isinstance(x, BCOO):  # JAX would take a batch of matrices for a matrix of rank 3
        data, indices = _replicated(x.data, n), _replicated(x.indices, n)
        return BCOO((data, indices), shape=(n, *x.shape))
    if not is_key(x):
        return jnp.broadcast_to(x, (n, *jnp.shape(x)))
    flat = jax.vmap(lambda key: jax.random.split(key, n), out_axes=1)(x.reshape(-1))
    return flat.reshape((n, *x.shape))


def _path(at: Sequence[Any]) -> str:
    first, *others = at
    return str(first.key) + jax.tree_util.keystr(tuple(others))


def _restored(data: np.ndarray, like: Array, name: str) -> jax.Array:
    if not is_key(like):
        refuse_data(name, like.dtype, like.ndim, data)
        return jnp.array(data)
    kept = jax.random.key_data(like)
    refuse_data(name, kept.dtype, kept.ndim, data)
    if data.shape[-1] != kept.shape[-1]:
        raise LoopTypeError(
            f"The value of {name!r} must be a key of {kept.shape[-1]} words, but the file has one of "
            f"{data.shape[-1]}. Restore into a context with the same kind of keys."
        )
    return jax.random.wrap_key_data(jnp.array(data), impl=jax.random.key_impl(like))
