"""Where a line of progress is shown, written over what was there: a terminal, a notebook, or a log.

    place = place_of(None)
    if place is not None:
        place.show("passes", 2.0)
        place.clear(3.0)

Nothing has to be installed for it: rich draws the line in a terminal if it is there.
"""

from __future__ import annotations

import logging
import shutil
import sys
from importlib.util import find_spec
from typing import Any, Protocol

LOG = logging.getLogger("loopax")


class Place(Protocol):
    """Somewhere that has room for one line."""

    def show(self, what: str, seconds: float) -> None:
        """``what`` takes so long already."""

    def clear(self, seconds: float) -> None:
        """It is over; nothing is left of the line."""


def place_of(asked: bool | None) -> Place | None:
    """The place that a person or a log reads; None where there is none.

    Parameters
    ----------
    asked
        False for none; True for a line on stderr where there is neither a terminal nor a notebook.
    """
    if asked is False:
        return None
    stream = stderr()
    if _is_terminal(stream):
        return Rich(stream) if find_spec("rich") else Terminal(stream)
    if in_notebook():
        return Notebook()
    if asked:
        return Terminal(stream)
    return Log() if LOG.isEnabledFor(logging.INFO) else None


def stderr() -> Any:
    return sys.stderr


def in_notebook() -> bool:
    """Whether the process is a kernel of Jupyter's, whose outputs can be written over."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def line(what: str, seconds: float) -> str:
    return f"loopax: {what} ({seconds:.0f} s)"


class Terminal:
    """By a carriage return. What follows goes over the line, if nothing else clears it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._shown = 0  # characters

    def show(self, what: str, seconds: float) -> None:
        text = line(what, seconds)[: shutil.get_terminal_size().columns - 1]
        self._write(f"\r{text.ljust(self._shown)}")
        self._shown = len(text)

    def clear(self, seconds: float) -> None:
        if self._shown:
            self._write(f"\r{' ' * self._shown}\r")
        self._shown = 0

    def _write(self, text: str) -> None:
        print(text, end="", file=self._stream, flush=True)


class Rich:
    """By rich. What others print meanwhile goes its own way: rich would put itself in front of it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._live: Any = None
        self._spinner: Any = None

    def show(self, what: str, seconds: float) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        text = Text(line(what, seconds), no_wrap=True, overflow="ellipsis")
        if self._live is not None:
            self._spinner.update(text=text)
            return
        self._spinner = Spinner("dots", text)
        self._live = Live(
            self._spinner,
            console=Console(file=self._stream),
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def clear(self, seconds: float) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = None


class Notebook:
    """An output of the cell that is written over, and empty in the end."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, what: str, seconds: float) -> None:
        from IPython.display import display

        data = {"text/plain": line(what, seconds)}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def clear(self, seconds: float) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)
        self._handle = None


class Log:
    """Records of the logger ``loopax`` at the level INFO, each after twice the time of the one before."""

    def __init__(self) -> None:
        self._what, self._logged = "", 0.0

    def show(self, what: str, seconds: float) -> None:
        if not self._what or seconds >= 2 * self._logged:
            LOG.info("%s (%.0f s)", what, seconds)
            self._logged = seconds
        self._what = what

    def clear(self, seconds: float) -> None:
        if self._what:
            LOG.info("%s: done (%.0f s)", self._what, seconds)
        self._what = ""
