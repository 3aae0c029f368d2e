"""Permutations, and choices without replacement, of rows along the first core axis."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics.arrays import Array, Shape, widest_float
from loopax.numerics.no_number import or_no_number


def _rows(shape: Shape, x: Array, core_ndim: int) -> jax.Array:
    """Broadcast the batch dimensions of ``x`` to ``shape``, and flatten them."""
    core = x.shape[x.ndim - core_ndim :]
    return jnp.broadcast_to(x, (*shape, *core)).reshape(-1, *core)


def permutation(
    key: jax.Array,
    shape: Shape,
    dtype: np.dtype,
    x: Array,
    *,
    core_ndim: int,
    name: str = "permutation",
) -> jax.Array:
    """Permute the rows of ``x``, along the first of its last ``core_ndim`` axes, independently for each
    draw.

    Without such an axis ``x`` is a NumPy number, and that many integers are permuted.

    Raises `ValueError` if the numbers differ, or are negative: the message opens with ``name``.
    """
    if core_ndim == 0:
        lengths = np.unique(np.asarray(x))
        if lengths.size > 1 or (lengths < 0).any():
            raise ValueError(
                f"{name}: the permutations of {lengths.tolist()} items do not form an array. All must "
                "have the same number of items, 0 or more."
            )
        items = jnp.arange(lengths[0] if lengths.size else 0)
        x = jnp.broadcast_to(items, (*shape, items.size))
    rows = _rows(shape, x, max(core_ndim, 1))
    keys = jax.random.split(key, rows.shape[0])
    permuted = jax.vmap(jax.random.permutation)(keys, rows)
    return permuted.reshape(*shape, *rows.shape[1:])


def choice(
    key: jax.Array,
    shape: Shape,
    dtype: np.dtype,
    a: Array,
    *p_and_shape: Array,
    core_ndim: int,
    name: str = "choice",
) -> jax.Array:
    """Choose rows of ``a`` without replacement: the first of a random order; ``a`` is as in
    `permutation`.

    ``p_and_shape`` has the probabilities of the rows, if given, and the shape of a draw, a NumPy array.
    The order is uniform, or with probabilities the order of ``log p`` plus Gumbel noise.

    The latter is the order of successive draws in proportion to the remaining rows (Yellott, "The
    relationship between Luce's choice axiom, Thurstone's theory of comparative judgment, and the double
    exponential distribution", Journal of Mathematical Psychology 15, 1977), which is how NumPy draws.
    """
    p = p_and_shape[0] if len(p_and_shape) == 2 else None
    shapes = np.asarray(p_and_shape[-1])
    core_shape = tuple(int(n) for n in shapes.reshape(-1, shapes.shape[-1])[0])
    of_range = core_ndim == 0
    sizes = np.broadcast_to(np.asarray(a), shape) if of_range else None
    count = int(sizes.max(initial=0)) if sizes is not None else a.shape[a.ndim - core_ndim]
    least = int(sizes.min(initial=count)) if sizes is not None else count
    n_chosen = int(np.prod(core_shape, dtype=np.int64))
    if min(core_shape, default=0) < 0 or n_chosen > least:
        raise ValueError(
            f"{name}: {core_shape} of {least} items cannot be chosen without replacement. Choose "
            "fewer, or choose with replace=True."
        )
    if p is not None and p.shape[-1] != count:
        raise ValueError(
            f"{name} has {count} items to choose from, but {p.shape[-1]} probabilities."
        )
    keys = jax.random.split(key, int(np.prod(shape, dtype=np.int64)))
    if p is None:
        order = jax.vmap(lambda k: jax.random.permutation(k, count))(keys)
        if sizes is not None:  # the order of all items, without those absent from a row
            absent = order >= sizes.reshape(-1, 1)
            order = jnp.take_along_axis(order, jnp.argsort(absent, axis=-1, stable=True), axis=-1)
        order = order[:, :n_chosen]
    else:
        p = _rows(shape, p, 1).astype(widest_float())
        noise = jax.vmap(lambda k: jax.random.gumbel(k, (count,), p.dtype))(keys)
        log_p = jnp.where(p > 0, jnp.log(jnp.where(p > 0, p, 1)), -jnp.inf)
        order = jax.lax.top_k(log_p + noise, n_chosen)[1]
    if of_range:
        chosen = order.reshape(*shape, *core_shape)
    else:
        rows = _rows(shape, a, core_ndim)
        chosen = jax.vmap(lambda x, k: x[k])(rows, order)
        chosen = chosen.reshape(*shape, *core_shape, *rows.shape[2:])
    if p is None:
        return chosen
    enough = ((p > 0).sum(-1) >= n_chosen).reshape(*shape, *[1] * (chosen.ndim - len(shape)))
    return or_no_number(enough, chosen)
