"""Functions of other packages, replaced in a block, with a warning for releases that lack one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import RLock
from typing import Any

from loopax.base.lock import free_in_children

_PATCHING = RLock()  # all threads see the replacements
free_in_children(_PATCHING)


@dataclass(frozen=True)
class Patch:
    """Replaces the function ``name`` of ``module`` by ``replacement(module, original)``.

    ``if_missing`` describes the effect of a release without that function, for a warning, or for an error
    if the function is ``required``.
    """

    module: str
    name: str
    replacement: Callable[[Any, Any], Any]
    if_missing: str
    required: bool = False


@contextmanager
def patched(patches: Sequence[Patch]) -> Iterator[None]:
    """Replace the functions in the block, for all threads, and restore them at its end.

    >>> with patched([Patch("math", "tau", lambda module, tau: tau / 2, "nothing is halved")]):
    ...     import math
    ...     math.tau == math.pi
    True
    """
    with _PATCHING:
        originals = []
        try:
            for patch in patches:
                module = import_module(patch.module)
                if not hasattr(module, patch.name):
                    message = (
                        f"{patch.module} has no {patch.name} in this release: {patch.if_missing}."
                    )
                    if patch.required:
                        raise NotImplementedError(message)
                    # of `loopax.pymc.installed`, the caller
                    warnings.warn(message, RuntimeWarning, stacklevel=5)
                    continue
                original = getattr(module, patch.name)
                originals.append((module, patch.name, original))
                setattr(module, patch.name, patch.replacement(module, original))
            yield
        finally:
            for module, name, original in reversed(originals):
                setattr(module, name, original)
