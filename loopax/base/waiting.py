"""A line that says what is waited for, once that has taken two seconds; `showing.py` says where.

    with waiting("native code: 812 lines"):
        compile()

Blocks may lie in one another, and in several threads: the line says the one that began last, and is cleared
when the last one ends. Where nobody looks (`loopax.config`) there is neither a line nor a thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial

from loopax.base.config import config
from loopax.base.showing import Place, place_of

AFTER, EVERY = 2.0, 0.25  # seconds

Say = Callable[[str], None]  # where the block is


class Line:
    """What is waited for, as one line that is written over. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._blocks: list[list[str]] = []  # what each is, and where it is
        self._place: Place | None = None  # that of the block that began first
        self._began = 0.0
        self._done = threading.Event()

    @contextmanager
    def block(self, what: str, place: Place, ticks: bool = True) -> Iterator[Say]:
        """``what`` is waited for, which ``place`` shows. With ``ticks`` a thread looks after the line."""
        block = [what, ""]
        with self._lock:
            if not self._blocks:
                self._place = place
                self._began, self._done = self._clock(), threading.Event()
                if ticks:
                    # In the context of the caller, by which Jupyter knows the cell.
                    tick = partial(copy_context().run, self._tick, self._done)
                    threading.Thread(target=tick, daemon=True).start()
            self._blocks.append(block)
        try:
            yield lambda where: block.__setitem__(1, where)
        finally:
            with self._lock:
                # By identity: another thread may wait for the same.
                self._blocks = [one for one in self._blocks if one is not block]
                if not self._blocks:
                    self._done.set()
                    if self._place is not None:
                        self._place.clear(self._clock() - self._began)

    def _tick(self, done: threading.Event) -> None:
        pause = AFTER
        while not done.wait(pause):
            self.look()
            pause = EVERY

    def look(self) -> None:
        """Write the line, if it is time."""
        with self._lock:
            seconds = self._clock() - self._began
            if self._blocks and self._place is not None and seconds >= AFTER:
                self._place.show(": ".join(part for part in self._blocks[-1] if part), seconds)

    def forget(self) -> None:
        """In a forked process nobody waits, and the thread that may have held the lock is not there."""
        self._lock, self._blocks = threading.Lock(), []


_LINE = Line()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LINE.forget)


@contextmanager
def waiting(what: str) -> Iterator[Say]:
    """Say that ``what`` is waited for, where somebody looks; what it gives is told how far it is."""
    place = place_of(config.progress)
    if place is None:
        yield lambda where: None
        return
    with _LINE.block(what, place) as say:
        yield say
