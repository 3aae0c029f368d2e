"""Numbers kept on disk: the length of a native source, measured times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loopax.cache import folder
from loopax.cache.graph_key import keyed

if TYPE_CHECKING:
    from pytensor.graph.basic import Variable


class Fact:
    """Numbers kept under ``key`` for later processes.

    Parameters
    ----------
    key
        The key of all that the numbers depend on; with None, nothing is kept.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key

    @property
    def has_key(self) -> bool:
        """Whether the numbers can be kept, provided that there is a folder."""
        return self._key is not None

    def known(self) -> tuple[int, ...] | None:
        """The numbers, if they were kept."""
        data = None if self._key is None else folder.read(self._key)
        words = [] if data is None else data.split()
        return tuple(map(int, words)) if words and all(map(bytes.isdigit, words)) else None

    def keep(self, *numbers: int) -> None:
        """Keep the numbers for later processes."""
        if self._key is not None:
            folder.write(self._key, " ".join(map(str, numbers)).encode())


def fact_of_graph(
    inputs: Sequence[Variable], outputs: Sequence[Variable], *key_parts: object
) -> Fact:
    """Numbers about the graph between ``inputs`` and ``outputs``.

    Parameters
    ----------
    key_parts
        The kind of numbers and all that they depend on besides the graph; see `keyed`. With None among
        them, nothing is kept.
    """
    source = None if None in key_parts else keyed(inputs, outputs, "fact", *key_parts)
    return Fact(None if source is None else source.key)
