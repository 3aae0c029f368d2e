"""Ops with inner graphs that always run: ``Call`` and ``Blockwise``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.type import integer_dtypes

from loopax.base.lock import TRACING
from loopax.base.upstream.pytensor import check_batch_shapes, core_node
from loopax.ir import Call
from loopax.ir.batching.row_values import shared_row
from loopax.ir.derivatives.pullback import floats
from loopax.ir.matrices import batch_signature
from loopax.ir.sequences import with_items
from loopax.jax_backend.control_flow.shared_calls import shared_call
from loopax.jax_backend.staging.context import Plan
from loopax.jax_backend.staging.custom import refused_by, with_pullback
from loopax.jax_backend.staging.evaluate import Site, convert
from loopax.jax_backend.staging.frame import Frame
from loopax.jax_backend.staging.intervals import known_interval
from loopax.jax_backend.staging.legal import refused_rows
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import PaddedArray, as_padded


@rule(Call)
def call_rule(site: Site, *values: object) -> Any:
    op: Call = site.op
    rule = op.rule
    if rule is None:
        shared = shared_call(site, values)
        return _run(site, values) if shared is None else shared
    traced = [k for k, x in enumerate(values) if is_traced(x)]
    args = Leaves([values[k] for k in traced])
    outs: list[Leaves] = []  # filled while the value is traced

    def whole(inputs: Sequence[Any]) -> list[Any]:
        return with_items(values, traced, args.structured(inputs))

    def value(*inputs: jax.Array) -> list[Any]:
        outs[:] = [Leaves(_run(site, whole(inputs)))]
        return outs[0].leaves

    def pullback(
        residuals: Sequence[jax.Array],
        outputs: Sequence[jax.Array],
        cotangents: Sequence[jax.Array],
    ) -> Any:
        inputs, results = whole(residuals), outs[0].structured(outputs)
        with TRACING:
            graph = site.context.lowered(rule)
            arrived = [
                results[k].cotangent(ct) if isinstance(results[k], PaddedArray) else ct
                for k, ct in zip(float_outs, cotangents, strict=True)
            ]
            cotangents_of = site.pull_back(graph, inputs, results, arrived)
        return [
            g.fitted(as_padded(inputs[k], g.axis).bound).masked(0)
            if isinstance(g, PaddedArray)
            else g
            for k, g in zip(floats(site.node.inputs), cotangents_of, strict=True)
            if k in traced
        ]

    def refusals() -> dict[int, Exception]:
        refusal = refused_by(site.node, rule)
        return {args.firsts[traced.index(k)]: e for k, e in refusal.items() if k in traced}

    float_ins = [args.firsts[traced.index(k)] for k in floats(site.node.inputs) if k in traced]
    float_outs = floats(site.node.outputs)
    function = with_pullback(
        value, pullback, float_ins, lambda: [outs[0].firsts[k] for k in float_outs], refusals
    )
    leaves = function(*args.leaves)
    return outs[0].structured(leaves)


def _run(site: Site, values: Sequence[Any]) -> list[Any]:
    """Evaluate a call, and record the intervals of its integer outputs in the outer frame."""
    inside = site.frame_of(site.op.fgraph, values, site.node.inputs)
    for v, out in zip(site.node.outputs, inside.plan.outputs, strict=True):
        interval = (
            known_interval(inside, out) if getattr(v.type, "dtype", "") in integer_dtypes else None
        )
        if interval is not None:
            site.frame.intervals[v] = interval
    return [inside.read(v) for v in inside.plan.outputs]


@rule(Blockwise)
def blockwise_rule(site: Site, *values: object) -> Any:
    """Apply the core op's own conversion by ``jnp.vectorize``.

    A static input that is equal in every batch row, such as a number of steps, stays static. If the length
    of a row, or of its result, is known only at run time, all rows must have equal lengths, as in PyTensor:
    otherwise the results are `no_number`.
    """
    op: Any = site.op
    batch_ndim = op.batch_ndim(site.node)
    padded = {k: x for k, x in enumerate(values) if isinstance(x, PaddedArray)}
    values = tuple(x.data if isinstance(x, PaddedArray) else x for x in values)
    check_batch_shapes(site.node, values)
    of_row = core_node(op, site.node.inputs, keeps_shared=True)
    static = {
        k: row
        for k, x in enumerate(values)
        if isinstance(x, np.ndarray) and (row := shared_row(x, batch_ndim)) is not None
    }
    frame = Frame(site.context, Plan(tuple(of_row.inputs)), {}, site.node.inputs, site.frame)
    core_site = Site(of_row, site.used, frame)

    padded_axes: list[int | None] = []  # of the outputs, filled while a row is traced

    def core(*rows: jax.Array) -> tuple[Any, ...]:
        values = [static.get(k, row) for k, row in enumerate(rows)]
        for k, x in padded.items():
            values[k] = PaddedArray(rows[k], x.length, x.axis - batch_ndim)
        frame.values.update(zip(of_row.inputs, values, strict=True))
        outs = convert(core_site, values)
        padded_axes[:] = [x.axis if isinstance(x, PaddedArray) else None for x in outs]
        lengths = [x.length if isinstance(x, PaddedArray) else 0 for x in outs]
        arrays = [x.data if isinstance(x, PaddedArray) else x for x in outs]
        return tuple(jnp.asarray(x) for x in (*arrays, *lengths))

    batches = jnp.vectorize(core, signature=_signature(op, site.node))(*map(jnp.asarray, values))
    n_outs = len(site.node.outputs)
    outs = zip(batches[:n_outs], batches[n_outs:], padded_axes, strict=True)
    return tuple(
        data if axis is None else _of_equal_lengths(site, data, lengths, batch_ndim + axis)
        for data, lengths, axis in outs
    )


def _of_equal_lengths(site: Site, data: jax.Array, lengths: jax.Array, axis: int) -> PaddedArray:
    """Combine ``data`` and the ``lengths`` of its rows, which must be equal, to a `PaddedArray`."""
    length = jnp.max(lengths, initial=0)
    rows = PaddedArray(data, length, axis)
    return refused_rows(site.context, jnp.all(lengths == length), rows)


def _signature(op: Blockwise, node: Apply) -> str:
    """The signature for the arrays of one row, and for output lengths known only at run time.

    The axes of an output have names of their own, since its padding may make it longer than an input.
    """
    core_inputs = batch_signature(op)[0]
    out_dims = [[f"o{k}_{d}" for d in range(len(names))] for k, names in enumerate(op.outputs_sig)]
    out_dims += [[] for _ in node.outputs]
    return "->".join(
        ",".join(f"({','.join(names)})" for names in part) for part in (core_inputs, out_dims)
    )


# -- values as arrays ------------------------------------------------------------------------------


class Leaves:
    """The arrays inside ``values``: for example the data and the length of a padded array.

    >>> import jax.numpy as jnp
    >>> from loopax.jax_backend.values.padded_array import PaddedArray
    >>> both = Leaves([PaddedArray(jnp.ones(3), 2), 5.0])
    >>> both.firsts, len(both.leaves), both.structured([jnp.zeros(3), 1, 6.0])[1]
    ([0, 2], 3, 6.0)
    """

    def __init__(self, values: Sequence[Any]) -> None:
        flat = [jax.tree.flatten(x) for x in values]
        self.leaves = [leaf for leaves, _ in flat for leaf in leaves]
        self._trees: list[Any] = [tree for _, tree in flat]
        # The position of each value's first leaf, which is the data of an array.
        self.firsts = list(accumulate((len(leaves) for leaves, _ in flat), initial=0))[:-1]

    def structured(self, leaves: Sequence[Any]) -> list[Any]:
        """Rebuild the structure of the values with other ``leaves``."""
        ends = zip(self.firsts, self._trees, strict=True)
        return [jax.tree.unflatten(t, leaves[k : k + t.num_leaves]) for k, t in ends]
