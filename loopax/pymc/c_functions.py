"""C functions for nutpie, in a form that Numba compiles fast.

nutpie assigns whole arrays, for which Numba compiles the errors of unequal shapes too. Here a loop
copies the elements; checks and return codes are nutpie's (0.16).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from types import ModuleType
from typing import Any

import numpy as np
from numba import carray

from loopax.numba_backend.callable.array_function import called_natively


def logp_function(compiling: ModuleType, theirs: Callable[..., Any]) -> Any:
    """Replaces ``nutpie.compile_pymc._make_c_logp_func``; ``theirs`` is the original."""

    def make(
        n: int,
        logp: Callable[..., Any],
        user_data: np.ndarray,
        keys: Sequence[str],
        shared: Mapping[str, Any],
    ) -> tuple[Any, Any]:
        _, signature = theirs(n, logp, user_data, keys, shared)
        extract = compiling.make_extraction_fn(called_natively(logp), shared, keys, user_data.dtype)

        def c_logp(dim: int, x: Any, gradient: Any, value: Any, data: Any) -> int:
            if dim != n:
                return -1
            try:
                density, slopes = extract(carray(x, (n,)), data)
            except Exception:
                return 1
            are_finite = True
            for k in range(n):
                gradient[k] = slopes[k]
                are_finite &= isfinite(slopes[k])
            value[0] = density[()]
            if not are_finite:
                return 3
            return 0 if isfinite(value[0]) else 4

        return c_logp, signature

    return make


def expand_function(compiling: ModuleType, theirs: Callable[..., Any]) -> Any:
    """Replaces ``nutpie.compile_pymc._make_c_expand_func``; ``theirs`` is the original."""

    def make(
        n: int,
        n_expanded: int,
        expand: Callable[..., Any],
        user_data: np.ndarray,
        keys: Sequence[str],
        shared: Mapping[str, Any],
    ) -> tuple[Any, Any]:
        _, signature = theirs(n, n_expanded, expand, user_data, keys, shared)
        extract = compiling.make_extraction_fn(
            called_natively(expand), shared, keys, user_data.dtype
        )

        def c_expand(dim: int, expanded: int, x: Any, out: Any, data: Any) -> int:
            if dim != n or expanded != n_expanded:
                return -1
            try:
                (values,) = extract(carray(x, (n,)), data)
            except Exception:
                return -2
            for k in range(n_expanded):
                out[k] = values[k]
            return 0

        return c_expand, signature

    return make
