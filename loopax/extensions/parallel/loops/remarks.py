"""Remarks on loops that run in parallel over their steps, and on loops that do not.

`loopax.explain` shows all of them. There is one warning for a loop for which parallel steps were requested
explicitly, by `jaxify(..., parallel=True)` or `loopax.scan(..., parallel="newton")`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from loopax.extensions.parallel.loops.choice import obstacle
from loopax.ir import Scan
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.values.padded_array import PaddedArray

TRY_NEWTON = (
    "A loop that is smooth and forgets where it began takes all steps at once with "
    "loopax.scan(..., parallel='newton'). Leave parallel out for no warning."
)


class Why(NamedTuple):
    """The reason why a loop runs sequentially, and advice."""

    reason: str
    advice: str = "Leave parallel out, or parallel=False for no warning."


def remark_parallel(site: Site, steps: str, how: str) -> None:
    """Record that a loop runs in parallel."""
    site.context.remarks[f"{site.op}, {steps}, in parallel: {how}"] = None


def remark_one_by_one(site: Site, steps: str, why: Why) -> None:
    """Record why a loop does not run in parallel, and warn if that was requested."""
    site.context.remarks[f"{site.op}, {steps}, one by one: {why.reason}"] = None
    if asked := _request(site):
        message = f"{site.op} takes its steps one by one, with {asked}: {why.reason}. {why.advice}"
        site.context.warn_once(message, message)


def _request(site: Site) -> str:
    if site.op.options.parallel is not None:
        return "parallel='newton'"
    return "parallel=True" if site.context.parallel is True else ""


def remark_unknown_steps(site: Site, args: Any) -> None:
    """Record why a loop that becomes a ``lax.while_loop`` runs sequentially."""
    op: Scan = site.op
    if not op.n_states or (op.options.parallel is None and obstacle(site.context.parallel)):
        return
    if op.stops:
        why = Why(
            "it stops where its step says so",
            "To take all steps at once it needs a number of them that is known while JAX traces: take as "
            "many as there may be, keep the carry with pt.switch where it is done, and leave out the flag.",
        )
    elif any(isinstance(x, PaddedArray) for x in args.sequences):
        why = Why(
            "it takes the rows of a trace whose length is known at the end",
            "To take all steps at once it needs rows of which the number is known while JAX traces.",
        )
    else:
        why = Why(
            "its number of steps is traced",
            "To take all steps at once that must be known while JAX traces: write it as a number, or give "
            "it to a jax.jit of yours with static_argnums.",
        )
    remark_one_by_one(site, "of unknown number", why)
