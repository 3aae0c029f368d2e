"""Random bits: the cipher threefry, in machine words. See `loopax.ir.ops.threefry`."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(forceinline=True, no_cfunc_wrapper=True)
def _four_rounds(a, b, i, j, k, m):  # type: ignore[no-untyped-def]
    a = np.uint32(a + b)
    b = np.uint32(a ^ np.uint32(np.uint32(b << i) | np.uint32(b >> np.uint32(32 - i))))
    a = np.uint32(a + b)
    b = np.uint32(a ^ np.uint32(np.uint32(b << j) | np.uint32(b >> np.uint32(32 - j))))
    a = np.uint32(a + b)
    b = np.uint32(a ^ np.uint32(np.uint32(b << k) | np.uint32(b >> np.uint32(32 - k))))
    a = np.uint32(a + b)
    b = np.uint32(a ^ np.uint32(np.uint32(b << m) | np.uint32(b >> np.uint32(32 - m))))
    return a, b


@njit(forceinline=True, no_cfunc_wrapper=True)
def threefry(key_1, key_2, x, y):  # type: ignore[no-untyped-def]
    """Encrypt four words of 32 bits, each in 64, to one word of 64 bits."""
    k1, k2 = np.uint32(key_1), np.uint32(key_2)
    k3 = np.uint32(k1 ^ k2 ^ np.uint32(0x1BD11BDA))
    a, b = np.uint32(np.uint32(x) + k1), np.uint32(np.uint32(y) + k2)
    a, b = _four_rounds(a, b, np.uint32(13), np.uint32(15), np.uint32(26), np.uint32(6))
    a, b = np.uint32(a + k2), np.uint32(b + np.uint32(k3 + np.uint32(1)))
    a, b = _four_rounds(a, b, np.uint32(17), np.uint32(29), np.uint32(16), np.uint32(24))
    a, b = np.uint32(a + k3), np.uint32(b + np.uint32(k1 + np.uint32(2)))
    a, b = _four_rounds(a, b, np.uint32(13), np.uint32(15), np.uint32(26), np.uint32(6))
    a, b = np.uint32(a + k1), np.uint32(b + np.uint32(k2 + np.uint32(3)))
    a, b = _four_rounds(a, b, np.uint32(17), np.uint32(29), np.uint32(16), np.uint32(24))
    a, b = np.uint32(a + k2), np.uint32(b + np.uint32(k3 + np.uint32(4)))
    a, b = _four_rounds(a, b, np.uint32(13), np.uint32(15), np.uint32(26), np.uint32(6))
    a, b = np.uint32(a + k3), np.uint32(b + np.uint32(k1 + np.uint32(5)))
    return np.uint64(np.uint64(b) << np.uint64(32)) | np.uint64(a)


FUNCTIONS = {"threefry": threefry}
