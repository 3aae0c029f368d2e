"""A number that was found out about a graph, on disk: how long its native source is, say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopax.cache import folder
from loopax.cache.graph_key import keyed


class Fact:
    """A number about the graph between ``inputs`` and ``outputs``, that a second process need not find out.

    Parameters
    ----------
    parts
        What it is, and what it depends on besides the graph; see `keyed`. None among them: nothing is kept.
    """

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], *parts: Any) -> None:
        source = None if None in parts else keyed(inputs, outputs, "fact", *parts)
        self._key = None if source is None else source.key

    def known(self) -> int | None:
        """The number, if it was kept."""
        data = None if self._key is None else folder.read(self._key)
        return int(data) if data is not None and data.isdigit() else None

    def keep(self, number: int) -> None:
        """For the processes that come later."""
        if self._key is not None:
            folder.write(self._key, str(number).encode())
