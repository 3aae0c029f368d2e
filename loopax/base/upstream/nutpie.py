"""Patches of `loopax.pymc` for nutpie: the compilation of a PyMC model to C functions, and `nutpie.sample`.

Tried on nutpie 0.16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from loopax.base.upstream.patching import Patch

_MODULE = "nutpie.compile_pymc"


def compilation_patches(
    *,
    make_functions: Callable[[Any], Any],
    compile_model: Callable[[Any], Any],
    c_logp: Callable[[Any, Any], Any],
    c_expand: Callable[[Any, Any], Any],
) -> list[Patch]:
    """Patches that wrap nutpie's functions; ``c_logp`` and ``c_expand`` also take its module."""
    slower = "nutpie's own function is compiled, which takes longer"
    return [
        Patch(
            _MODULE,
            "_make_functions",
            lambda _, original: make_functions(original),
            "nutpie compiles by PyTensor's NUMBA mode, without loopax",
        ),
        Patch(
            _MODULE,
            "_compile_pymc_model_numba",
            lambda _, original: compile_model(original),
            "Python's collector of cyclic garbage stays on, which takes longer",
        ),
        Patch(_MODULE, "_make_c_logp_func", c_logp, slower),
        Patch(_MODULE, "_make_c_expand_func", c_expand, slower),
    ]


def sample_patch(sample: Callable[..., Any]) -> Patch:
    """The patch of ``nutpie.sample`` by ``sample(original, ...)``."""
    return Patch(
        "nutpie",
        "sample",
        lambda _, original: partial(sample, original),
        "checkpoint= knows no other way to nutpie",
        required=True,
    )
