"""How Numba compiles a function that native code alone calls."""

from __future__ import annotations

from functools import partial

from numba import njit

# Without the wrappers by which Python and C call a function, which take as long to compile as the function:
# 18 ms instead of 61 for one of numbers, 65 instead of 140 for one of arrays. A call from Python would end
# the process; that of its ``py_func`` does not.
njit_inner = partial(njit, no_cpython_wrapper=True, no_cfunc_wrapper=True)
