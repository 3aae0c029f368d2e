"""Chunked ``jax.vmap``: a number of rows at a time, to limit memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from loopax.calling.progress import Progress
from loopax.ir.sequences import with_items
from loopax.numerics import manual_axes


def vmap(
    f: Callable[..., Any],
    in_axes: int | Sequence[Any] | None = 0,
    out_axes: Any = 0,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Callable[..., Any]:
    """Apply ``jax.vmap``; with ``batch_size``, by a ``lax.scan`` over batches of that many rows.

    ``progress(done, total)`` is called on the host when a batch begins, and at the end.

    Raises
    ------
    ValueError
        The arguments have axes of unequal lengths, or none to map over; a result is to have no axis.
    """
    if batch_size is None:
        return jax.vmap(f, in_axes, out_axes)

    def batched(*args: object, **kwargs: object) -> Any:
        arguments = (args, kwargs)
        axes = _matched((tuple(in_axes) if isinstance(in_axes, list) else in_axes, 0), arguments)
        leaves, tree = jax.tree.flatten(arguments)
        n = _length(leaves, axes)
        mapped = [k for k, a in enumerate(axes) if a is not None]

        def one(rows: Sequence[jax.Array]) -> Any:
            some, named = jax.tree.unflatten(tree, with_items(leaves, mapped, rows))
            return f(*some, **named)

        rows = [jnp.moveaxis(leaves[k], axes[k], 0) for k in mapped]
        outs = _in_batches(one, rows, n, batch_size, progress)
        out_leaves, out_tree = jax.tree.flatten(outs)
        places = _matched(out_axes, outs)
        if None in places:
            raise ValueError(
                "With batch_size, each result has an axis for the rows: out_axes cannot be None."
            )
        return jax.tree.unflatten(
            out_tree, [jnp.moveaxis(x, 0, a) for x, a in zip(out_leaves, places, strict=True)]
        )

    return batched


def _matched(prefix: object, tree: object) -> list[Any]:
    """The entry of ``prefix``, a tree prefix of ``tree``, for each leaf; None counts as a leaf."""

    def is_none(x: object) -> bool:
        return x is None

    entries = jax.tree.broadcast(prefix, tree, is_leaf=is_none)
    return jax.tree.leaves(entries, is_leaf=is_none)


def _length(leaves: Sequence[Any], axes: Sequence[int | None]) -> int:
    lengths = {jnp.shape(x)[a] for x, a in zip(leaves, axes, strict=True) if a is not None}
    if len(lengths) != 1:
        received = f"axes of lengths {sorted(lengths)}" if lengths else "no axis"
        raise ValueError(
            "vmap maps one axis of each argument that in_axes names, all of one length, but got "
            f"{received}."
        )
    return lengths.pop()


def _in_batches(
    one: Callable[..., Any],
    rows: Sequence[jax.Array],
    n: int,
    batch_size: int,
    progress: Progress | None,
) -> Any:
    size = min(batch_size, n)
    whole = n // size if size else 0

    def report(k: ArrayLike) -> None:
        if progress is not None:
            jax.debug.callback(lambda k: progress(int(k) * size, n), k)

    def batch(k: ArrayLike, some: Sequence[jax.Array]) -> Any:
        report(k)
        return k + 1, jax.vmap(one)(some)

    first = [x[: whole * size].reshape(whole, size, *x.shape[1:]) for x in rows]
    _, outs = manual_axes.scan(batch, jnp.asarray(0), first, length=whole)
    outs = jax.tree.map(lambda y: y.reshape(whole * size, *y.shape[2:]), outs)
    if whole * size < n:
        report(whole)
        remainder = jax.vmap(one)([x[whole * size :] for x in rows])
        outs = jax.tree.map(lambda y, more: jnp.concatenate([y, more]), outs, remainder)
    if progress is not None:
        # Depends on a result, so that it is not called before the result exists.
        jax.debug.callback(lambda _: progress(n, n), [y.ravel()[:1] for y in jax.tree.leaves(outs)])
    return outs
