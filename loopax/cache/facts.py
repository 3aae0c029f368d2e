"""Computed numbers about graphs, kept on disk: the length of a native source, say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopax.cache import folder
from loopax.cache.graph_key import keyed


class Fact:
    """A number about the graph between ``inputs`` and ``outputs``, kept for later processes.

    Parameters
    ----------
    parts
        The kind of number and all that it depends on besides the graph; see `keyed`. With None among
        them, nothing is kept.
    """

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], *key_parts: Any) -> None:
        source = None if None in key_parts else keyed(inputs, outputs, "fact", *key_parts)
        self._key = None if source is None else source.key

    def known(self) -> int | None:
        """The number, if it was kept."""
        data = None if self._key is None else folder.read(self._key)
        return int(data) if data is not None and data.isdigit() else None

    def keep(self, number: int) -> None:
        """Keep the number for later processes."""
        if self._key is not None:
            folder.write(self._key, str(number).encode())
