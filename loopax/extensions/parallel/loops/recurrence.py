"""Affine recurrences ``s[t] = a[t] s[t - 1] + b[t]`` in blocks, whose derivatives are again recurrences.

    ds[t] = a[t] ds[t - 1] + (da[t] s[t - 1] + db[t])

in forward mode; in reverse mode, as JAX transposes the blocks, the recurrence with the transposed matrices
from the last step to the first. No first derivative goes through the matrix products of the blocks.

A step that forgets a state, at a restart or because the state leaves a window, has a 0 in its matrix, but
0 times NaN is NaN. So ``reads`` says which entries the step reads: the others are left out of all products,
so that what is NaN or infinite ends where the loop forgets it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from loopax.extensions.parallel.loops.blocks import scan_in_blocks
from loopax.numerics.manual_axes import zeros_like

# Up to this size matrices are multiplied by elementwise operations, which XLA fuses into one.
_WRITTEN_OUT = 4


@partial(jax.custom_jvp, nondiff_argnums=(4,))
def affine_recurrence(a: Any, b: Any, start: Any, reads: Any, reverse: bool) -> Any:
    """The states after each step.

    Parameters
    ----------
    a
        The matrices, ``(N, K, K, M)``, or ``(1, K, K, M)`` if all steps share one. ``M`` may be 1 if all
        vectors share one.
    b
        The offsets, ``(N, K, M)``.
    start
        The state before the first step, ``(K, M)``.
    reads
        Which entries of ``a`` the steps read, bools of its shape; None if they read all of them. Entries
        that they do not read must be 0.
    reverse
        Whether the steps are taken from the last row to the first.

    Returns
    -------
    Array
        ``(N, K, M)``: row ``t`` is the state after the step of row ``t``.
    """
    return linear_recurrence(a, b, start, reads, reverse)


def linear_recurrence(a: Any, b: Any, start: Any, reads: Any, reverse: bool) -> Any:
    """The recurrence without its own derivative rule: for tangents, in which it is linear."""
    if a.shape[0] == 1 < b.shape[0]:  # constant: blocks use its powers
        one = jax.tree.map(lambda x: x[0][..., None], (a, reads))
        return scan_in_blocks(_combined, _moved, b, start, reverse, lambda row: (*one, row))
    return scan_in_blocks(_combined, _moved, (a, reads, b), start, reverse)


@partial(affine_recurrence.defjvp, symbolic_zeros=True)
def _jvp(reverse: bool, primals: Any, tangents: Any) -> Any:
    a, b, start, reads = primals
    da, db, d_start, _ = tangents
    states = affine_recurrence(a, b, start, reads, reverse)
    offset = zeros_like(b) if isinstance(db, SymbolicZero) else db
    if not isinstance(da, SymbolicZero):
        before = states_before(states, start, reverse)[:, None]
        offset = (da * _kept(reads, before)).sum(2) + offset
    if isinstance(d_start, SymbolicZero):
        d_start = zeros_like(start)
    # Not the function with the rule: JAX transposes a `custom_jvp` as if it were linear in all arguments.
    return states, linear_recurrence(a, offset, d_start, reads, reverse)


def states_before(states: Any, start: Any, reverse: bool) -> Any:
    """Shift states after each step to states before each step."""
    if reverse:
        return jnp.concatenate([states[1:], start[None]])
    return jnp.concatenate([start[None], states[:-1]])


def _combined(first: Any, second: Any) -> Any:
    (a, a_reads, b), (c, c_reads, d) = first, second
    offset = _vectors(c, c_reads, b) + d
    if c_reads is None:
        return _matrices(c, a), None, offset
    reads = c_reads[:, :, None] & a_reads[None]
    # Both factors are selected, not their product: a derivative would multiply NaN by 0.
    product = (_kept(reads, c[:, :, None]) * _kept(reads, a[None])).sum(1)
    return product, reads.any(1), offset


def _moved(element: Any, state: Any) -> Any:
    a, reads, b = element
    return _vectors(a, reads, state) + b


def _kept(reads: Any, x: Any) -> Any:
    """Replace what is not read by zeros."""
    return x if reads is None else jnp.where(reads, x, 0)


def _vectors(a: Any, reads: Any, x: Any) -> Any:
    """Multiply ``(K, K, ...)`` by ``(K, ...)``."""
    n = x.shape[0]
    if reads is not None:
        return (a * _kept(reads, x[None])).sum(1)
    if n <= _WRITTEN_OUT:
        return jnp.stack([sum(a[i, j] * x[j] for j in range(n)) for i in range(n)])
    if a.size == n * n:  # a single matrix: a single product
        return jnp.tensordot(a.reshape(n, n), x, 1)
    return jnp.einsum("ij...,j...->i...", *_of_one_shape(a, x))


def _matrices(a: Any, x: Any) -> Any:
    """Multiply ``(K, K, ...)`` by ``(K, K, ...)``."""
    n = x.shape[0]
    if n <= _WRITTEN_OUT:
        columns = [_vectors(a, None, x[:, k]) for k in range(n)]
        return columns[0][:, None] if n == 1 else jnp.stack(columns, axis=1)
    return jnp.einsum("ij...,jk...->ik...", *_of_one_shape(a, x, 2))


def _of_one_shape(a: Any, x: Any, own: int = 1) -> tuple[Any, Any]:
    """Broadcast the batch axes of both arrays to a common shape."""
    batch = jnp.broadcast_shapes(a.shape[2:], x.shape[own:])
    return (
        jnp.broadcast_to(a, (*a.shape[:2], *batch)),
        jnp.broadcast_to(x, (*x.shape[:own], *batch)),
    )
