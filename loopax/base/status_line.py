"""A status line that names an activity once it has taken two seconds; `showing.py` displays it.

    with waiting("native code: 812 lines"):
        compile()

Blocks may be nested, and in several threads: the line names the one that began last, and is cleared
when the last one ends. Without a display (`loopax.config`) there is neither a line nor a thread.
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
from loopax.base.showing import Display, display_of

AFTER, EVERY = 2.0, 0.25  # seconds

Say = Callable[[str], None]  # takes the progress of a block, in words


class Line:
    """The running activities as one line that is overwritten. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._blocks: list[list[str]] = []  # the activity of each, and its progress
        self._display: Display | None = None  # the display of the block that began first
        self._began = 0.0
        self._done = threading.Event()

    @contextmanager
    def block(self, activity: str, display: Display, ticks: bool = True) -> Iterator[Say]:
        """A block in which ``display`` shows ``activity``. With ``ticks`` a thread updates the line."""
        block = [activity, ""]
        with self._lock:
            if not self._blocks:
                self._display = display
                self._began, self._done = self._clock(), threading.Event()
                if ticks:
                    # In the context of the caller, by which Jupyter identifies the cell.
                    tick = partial(copy_context().run, self._tick, self._done)
                    threading.Thread(target=tick, daemon=True).start()
            self._blocks.append(block)
        try:
            yield lambda where: block.__setitem__(1, where)
        finally:
            with self._lock:
                # By identity: another thread may wait for the same.
                self._blocks = [other for other in self._blocks if other is not block]
                if not self._blocks:
                    self._done.set()
                    if self._display is not None:
                        self._display.clear(self._clock() - self._began)

    def _tick(self, finished: threading.Event) -> None:
        pause = AFTER
        while not finished.wait(pause):
            self.look()
            pause = EVERY

    def look(self) -> None:
        """Write the line, if it is due."""
        with self._lock:
            seconds = self._clock() - self._began
            if self._blocks and self._display is not None and seconds >= AFTER:
                self._display.show(": ".join(text for text in self._blocks[-1] if text), seconds)

    def forget(self) -> None:
        """Reset the line in a forked process, which lacks the thread that may have held the lock."""
        self._lock, self._blocks = threading.Lock(), []


_LINE = Line()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LINE.forget)


@contextmanager
def waiting(activity: str) -> Iterator[Say]:
    """A block with a status line for ``activity``; it yields a function that takes the progress."""
    display = display_of(config.progress)
    if display is None:
        yield lambda where: None
        return
    with _LINE.block(activity, display) as say:
        yield say
