"""Reading and writing parts of arrays."""

from typing import Any

import pytensor.tensor as pt
from pytensor.tensor import subtensor

from tests.every_op.record import FLAGS, A, K, M, N, U, V

TITLE = "Indexing"
SLOW: set[tuple[str, str]] = set()
REASONS: list[str] = []
BASES: dict[str, str] = {}


def of_a_vector(name: str) -> Any:
    """A class that 3.0 has."""
    return getattr(subtensor, name)


EXAMPLES: dict[str, Any] = {
    "Subtensor": lambda: [M[:, 1:], M[::-1, -1], V[N - 1 : N + 1], V[-N]],
    "IncSubtensor": lambda: [
        pt.set_subtensor(M[:, 1:], A),
        pt.inc_subtensor(V[::2], U[:2]),
        pt.set_subtensor(V[N], A),
    ],
    "AdvancedSubtensor": lambda: [V[K], M[:, K], M[[0, 1], [2, -1]]],
    "AdvancedIncSubtensor": lambda: [
        pt.inc_subtensor(V[K], U),
        pt.set_subtensor(M[:, [0, 2]], A),
        pt.set_subtensor(V[FLAGS], A),
    ],
    "AdvancedSubtensor1": lambda: of_a_vector("AdvancedSubtensor1")()(V, K),
    "AdvancedIncSubtensor1": lambda: of_a_vector("AdvancedIncSubtensor1")()(V, U, K),
}
