"""Loops whose steps are taken all at once: the extension ``parallel``, where this installation has it.

Without it all loops take their steps one by one, with the same values, and the options that ask for more
are refused, here too: a function may have been pickled where the extension was.
"""

from __future__ import annotations

from typing import Any

from loopax.base.extensions import provided, required
from loopax.jax_backend.staging.evaluate import Site

_ONE_BY_ONE = "steps one by one, without the option"


def loop_in_parallel(site: Site, args: Any, index: Any, kept: Any) -> tuple[Any, list[Any]] | None:
    """The final states, and the traces at ``kept``; None where the steps are to be taken one by one."""
    run = _part(site, "loop_in_parallel")
    return None if run is None else run(site, args, index, kept)


def remark_unknown_steps(site: Site, args: Any) -> None:
    """Say why a loop that becomes a ``lax.while_loop`` takes its steps one by one."""
    remark = _part(site, "remark_unknown_steps")
    if remark is not None:
        remark(site, args)


def _part(site: Site, name: str) -> Any:
    if site.op.options.parallel is not None:
        required("parallel", "parallel='newton'", _ONE_BY_ONE)
    if site.context.parallel is True:
        required("parallel", "parallel=True", _ONE_BY_ONE)
    return provided("parallel", name)
