"""Evaluation of ``AssociativeScan`` in blocks of elements that are combined in parallel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from loopax.extensions.parallel.associative_scan import AssociativeScan
from loopax.extensions.parallel.loops.blocks import scan_in_blocks
from loopax.extensions.parallel.loops.remarks import remark_parallel
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule


@rule(AssociativeScan)
def associative_scan_rule(site: Site, *values: Any) -> tuple[Any, ...]:
    op: AssociativeScan = site.op
    rows = tuple(map(jnp.asarray, values))
    n, reverse = rows[0].shape[0], op.reverse
    if n < 2:
        return rows
    origins = ["an element of an associative scan"] * (2 * len(rows))

    def one(*elements: Any) -> tuple[Any, ...]:
        combined = site.run(op.combine, elements, origins)
        return tuple(map(jnp.asarray, combined))

    def combine(first: Any, second: Any) -> Any:
        count = max(first[0].shape[-1], second[0].shape[-1])
        wide = [jnp.broadcast_to(x, (*x.shape[:-1], count)) for x in (*first, *second)]
        return jax.vmap(one, in_axes=-1, out_axes=-1)(*wide)

    begin, others_at = (-1, slice(None, -1)) if reverse else (0, slice(1, None))
    start, others = tuple(x[begin] for x in rows), tuple(x[others_at] for x in rows)
    scanned = scan_in_blocks(combine, lambda e, s: combine(s, e), others, start, reverse)
    remark_parallel(site, f"{n} steps", "elements that are combined in any grouping")
    return tuple(
        jnp.concatenate([x, s[None]] if reverse else [s[None], x])
        for s, x in zip(start, scanned, strict=True)
    )
