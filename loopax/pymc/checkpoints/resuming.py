"""Calls of ``pm.sample`` that write to a folder, and resume from its content."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from loopax.base.upstream import nutpie, pymc
from loopax.base.upstream.patching import Patch, patched
from loopax.pymc import blackjax_loop, numpyro_loop
from loopax.pymc.checkpoints.blocks import run_in_blocks
from loopax.pymc.checkpoints.folder import Checkpoint, CheckpointError, checkpoint
from loopax.pymc.checkpoints.nutpie_chains import sample_by_chain
from loopax.pymc.checkpoints.pymc_steps import refuse_population, sample_with_steps
from loopax.pymc.checkpoints.run_parts import run_parts

if TYPE_CHECKING:
    import pymc as pm

_JAX_LOOPS = {"blackjax": blackjax_loop.sample_in_blocks, "numpyro": numpyro_loop.sample_in_blocks}


@contextmanager
def resumable(
    path: str | os.PathLike[str], model: pm.Model, backend: str, options: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """A block whose ``pm.sample(model=model, **options)`` keeps its draws in a folder, and resumes there.

    Yields the options, with the seed of the folder if they have none.

    Raises `CheckpointError` if the folder is of another run, in use, damaged or no checkpoint, or
    the sampler keeps no draws in this call.
    """
    _refuse_options(options)
    with checkpoint(path, run_parts(model, backend, options)) as folder:
        seed = options.get("random_seed")
        seed = folder.entropy % 2**32 if seed is None else seed
        try:
            with patched(_patches(folder, options["nuts_sampler"])):
                yield {**options, "random_seed": seed}
        except BaseException as error:
            if folder.has_draws and not isinstance(error, CheckpointError):
                error.add_note(
                    f"The draws so far are in {str(folder.path)!r}. Call loopax.pymc.sample again with "
                    "the same arguments to resume."
                )
            raise


def _patches(folder: Checkpoint, sampler: str) -> list[Patch]:
    if sampler == "nutpie":
        return [nutpie.sample_patch(partial(sample_by_chain, folder))]
    if sampler == "pymc":
        loops = dict.fromkeys(pymc.LOOPS, partial(sample_with_steps, folder))
        return pymc.loop_patches({**loops, "_sample_population": refuse_population})
    run = partial(run_in_blocks, folder.record("chains"))
    loop = _JAX_LOOPS[sampler]
    return pymc.loop_patches(
        {pymc.JAX_LOOPS[sampler]: lambda original, **arguments: loop(run, **arguments)}
    )


def _refuse_options(options: Mapping[str, Any]) -> None:
    if options.get("trace") is not None:
        raise CheckpointError(
            "checkpoint= and trace= both store the draws: pass one of them. Only checkpoint= can "
            "resume a run."
        )
    if options.get("keep_warning_stat"):
        raise CheckpointError(
            "checkpoint= stores numbers, but keep_warning_stat=True asks for objects: leave it out."
        )
