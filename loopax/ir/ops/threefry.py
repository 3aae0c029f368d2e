"""``Threefry``: the cipher of JAX's random bits, as a function of four integers.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011: threefry2x32 of 20
rounds. The two words of 32 bits that it returns are the lower and the upper half of a word of 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.type import Type
from pytensor.tensor.elemwise import Elemwise

from loopax.facts.record import ScalarFacts
from loopax.facts.scalars import register_scalar
from loopax.ir.ops.flat_scalar import FlatScalar

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
_WORD = 2**32


class Threefry(FlatScalar):
    """``(key_1, key_2, x, y) -> word of 64 bits``, all unsigned.

    >>> hex(Threefry(name="threefry").impl(0, 0, 0, 0))
    '0x99ba4efe6b200159'
    """

    nin = 4
    nout = 1

    def output_types(self, types: Sequence[Type]) -> list[Any]:
        return [ps.uint64]

    def impl(self, *words: int) -> Any:
        key_1, key_2, a, b = (int(w) for w in words)
        keys = key_1, key_2, key_1 ^ key_2 ^ PARITY
        a, b = (a + key_1) % _WORD, (b + key_2) % _WORD
        for k in range(5):
            for rotation in ROTATIONS[k % 2]:
                a = (a + b) % _WORD
                b = a ^ ((b << rotation) | (b >> (32 - rotation))) % _WORD
            a = (a + keys[(k + 1) % 3]) % _WORD
            b = (b + keys[(k + 2) % 3] + k + 1) % _WORD
        return np.uint64(b << 32 | a)


threefry = Elemwise(Threefry(name="threefry"))
register_scalar(Threefry, ScalarFacts(9.0, 90))
