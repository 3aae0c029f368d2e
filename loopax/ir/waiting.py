"""A line on stderr that says what is waited for, once that has taken two seconds.

    with waiting("native code: 812 lines"):
        compile()

Blocks may lie in one another, and in several threads: the line says the one that began last, and is cleared
when the last one ends. Where nobody looks (`loopax.config`) there is neither a line nor a thread.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from loopax.ir.config import config

AFTER, EVERY = 2.0, 0.25  # seconds

Say = Callable[[str], None]  # where the block is


class Line:
    """What is waited for, as one line that is written over.

    Parameters
    ----------
    write
        To where it is shown.
    clock
        Seconds.
    """

    def __init__(
        self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._clock = write, clock
        self._lock = threading.Lock()
        self._blocks: list[list[str]] = []  # what each is, and where it is
        self._began = 0.0
        self._shown = 0  # characters
        self._done = threading.Event()

    @contextmanager
    def block(self, what: str, ticks: bool = True) -> Iterator[Say]:
        """``what`` is waited for. With ``ticks`` a thread looks after the line."""
        block = [what, ""]
        with self._lock:
            if not self._blocks:
                self._began, self._done = self._clock(), threading.Event()
                if ticks:
                    threading.Thread(target=self._tick, args=[self._done], daemon=True).start()
            self._blocks.append(block)
        try:
            yield lambda where: block.__setitem__(1, where)
        finally:
            with self._lock:
                # By identity: another thread may wait for the same.
                self._blocks = [one for one in self._blocks if one is not block]
                if not self._blocks:
                    self._done.set()
                    self._draw("")

    def _tick(self, done: threading.Event) -> None:
        pause = AFTER
        while not done.wait(pause):
            self.look()
            pause = EVERY

    def look(self) -> None:
        """Write the line, if it is time."""
        with self._lock:
            seconds = self._clock() - self._began
            if self._blocks and seconds >= AFTER:
                what = ": ".join(part for part in self._blocks[-1] if part)
                self._draw(f"loopax: {what} ({seconds:.0f} s)")

    def _draw(self, text: str) -> None:
        text = text[: shutil.get_terminal_size().columns - 1]
        if text or self._shown:
            # Over what is there, and where nothing follows, back to the beginning.
            self._write(f"\r{text.ljust(self._shown)}" + ("" if text else "\r"))
        self._shown = len(text)


def _stream() -> Any:
    return sys.stderr


_LINE = Line(lambda text: print(text, end="", file=_stream(), flush=True))


@contextmanager
def waiting(what: str) -> Iterator[Say]:
    """Say that ``what`` is waited for, where somebody looks; what it gives is told how far it is."""
    if not _is_shown():
        yield lambda where: None
        return
    with _LINE.block(what) as say:
        yield say


def _is_shown() -> bool:
    if config.progress is not None:
        return config.progress
    try:
        return bool(_stream().isatty())
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
