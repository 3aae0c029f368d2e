"""``Cond`` -> ``lax.cond``: only the chosen branch runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from loopax.ir import Cond
from loopax.jax_backend.control_flow.failing import RAISED, is_of_program, without_numbers
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.lists import as_row
from loopax.jax_backend.values.sparse import OrderedBCOO, carried
from loopax.numerics import manual_axes


class _UnequalBranches(Exception):
    """The branches return values of unequal shapes."""


@rule(Cond)
def cond_rule(site: Site, condition: ArrayLike, *operands: object) -> tuple[Any, ...]:
    """Choose the branch while tracing if the condition is static; branches may then differ in shape."""
    op: Cond = site.op
    used = [k for k, u in enumerate(site.used) if u]
    variables = [site.node.outputs[k] for k in used]

    def branch(chosen: bool) -> list[Any]:
        graph = op.branches[0 if chosen else 1]
        outs = site.run(graph, operands, site.node.inputs[1:])
        return [as_row(outs[k], v) for k, v in zip(used, variables, strict=True)]

    if not is_traced(condition):
        outs = branch(bool(condition))
    else:
        traced: dict[bool, Sequence[Any]] = {}
        try:
            run = _of_one_form(partial(_or_no_numbers, site, branch), traced)
            outs = _with_common(manual_axes.cond(condition, *run), *traced.values())
        except _UnequalBranches:
            # The shape of the result depends on the condition, which must then be known.
            outs = branch(bool(site.static(0)))
    results = dict(zip(used, outs, strict=True))
    return tuple(results.get(k) for k in range(op.n_outs))


def _or_no_numbers(site: Site, branch: Callable[[bool], list[Any]], chosen: bool) -> Any:
    """The outputs of a branch; if tracing it raises, `no_number` in the form of the other one's outputs."""
    try:
        return branch(chosen)
    except RAISED as error:
        if not is_of_program(error):
            raise
        return without_numbers(site, _as_jax(branch(not chosen)), error)


def _as_jax(outs: object) -> Any:
    return jax.tree.map(
        lambda x: carried(x) if isinstance(x, OrderedBCOO) else jnp.asarray(x),
        outs,
        is_leaf=lambda x: isinstance(x, OrderedBCOO),
    )


def _with_common(outs: Sequence[Any], first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Replace integers in ``outs`` that both branches know, and that agree, by that value: lengths."""
    return [
        a if all(map(_is_known_integer, (a, b))) and np.array_equal(a, b) else x
        for x, a, b in zip(outs, first, second, strict=True)
    ]


def _is_known_integer(x: object) -> bool:
    return isinstance(x, np.ndarray | np.integer) and x.dtype.kind in "iu"


def _of_one_form(
    branch: Callable[[bool], list[Any]], traced: dict[bool, Sequence[Any]]
) -> list[Any]:
    """The two branches for `lax.cond`; the one traced last checks that their forms are equal.

    ``traced`` receives the results of each, before their conversion for JAX.
    """
    forms = set()

    def run(chosen: bool) -> Any:
        traced[chosen] = branch(chosen)
        outs = _as_jax(traced[chosen])
        leaves, tree = jax.tree.flatten(outs)
        forms.add((tree, tuple(x.shape for x in leaves)))
        if len(forms) > 1:
            raise _UnequalBranches
        return outs

    return [partial(run, True), partial(run, False)]
