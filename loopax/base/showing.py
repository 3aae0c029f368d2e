"""Displays for one line of progress: a terminal, a notebook, or a log.

    place = display_of(None)
    if place is not None:
        place.show("passes", 2.0)
        place.clear(3.0)

rich draws the line in a terminal if it is installed; nothing is required.
"""

from __future__ import annotations

import logging
import shutil
import sys
from importlib.util import find_spec
from typing import Any, Protocol, TextIO

LOG = logging.getLogger("loopax")


class Display(Protocol):
    """A display with room for one line."""

    def show(self, activity: str, seconds: float) -> None:
        """Show that ``activity`` has taken ``seconds`` so far."""

    def clear(self, seconds: float) -> None:
        """Remove the line: the activity is over."""


def display_of(setting: bool | None) -> Display | None:
    """The display that a person or a log reads; None if there is none.

    Parameters
    ----------
    setting False for none; True for a line on stderr where there is neither a terminal nor a
    notebook.
    """
    if setting is False:
        return None
    stream = stderr()
    if _is_terminal(stream):
        return Rich(stream) if find_spec("rich") else Terminal(stream)
    if in_notebook():
        return Notebook()
    if setting:
        return Terminal(stream)
    return Log() if LOG.isEnabledFor(logging.INFO) else None


def stderr() -> Any:
    return sys.stderr


def in_notebook() -> bool:
    """Whether the process is a Jupyter kernel, whose outputs can be overwritten."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False


def line(activity: str, seconds: float) -> str:
    return f"loopax: {activity} ({seconds:.0f} s)"


class Terminal:
    """A line that carriage returns overwrite; later output overwrites it too, if nothing clears it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0  # characters

    def show(self, activity: str, seconds: float) -> None:
        text = line(activity, seconds)[: shutil.get_terminal_size().columns - 1]
        self._write(f"\r{text.ljust(self._shown)}")
        self._shown = len(text)

    def clear(self, seconds: float) -> None:
        if self._shown:
            self._write(f"\r{' ' * self._shown}\r")
        self._shown = 0

    def _write(self, text: str) -> None:
        print(text, end="", file=self._stream, flush=True)


class Rich:
    """A line drawn by rich, which does not redirect the output of others."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live: Any = None
        self._spinner: Any = None

    def show(self, activity: str, seconds: float) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        text = Text(line(activity, seconds), no_wrap=True, overflow="ellipsis")
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
    """An output of the cell that is overwritten, and empty in the end."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, activity: str, seconds: float) -> None:
        from IPython.display import display

        data = {"text/plain": line(activity, seconds)}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def clear(self, seconds: float) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)
        self._handle = None


class Log:
    """Records of the logger ``loopax`` at the level INFO, each at twice the time of the last one."""

    def __init__(self) -> None:
        self._what, self._logged = "", 0.0

    def show(self, activity: str, seconds: float) -> None:
        if not self._what or seconds >= 2 * self._logged:
            LOG.info("%s (%.0f s)", activity, seconds)
            self._logged = seconds
        self._what = activity

    def clear(self, seconds: float) -> None:
        if self._what:
            LOG.info("%s: done (%.0f s)", self._what, seconds)
        self._what = ""
