"""The line that says what is waited for: where it is shown, what it says, and that it goes."""

import io
import logging
import os
import subprocess
import sys
import threading
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

import loopax
from loopax import jaxify, scan
from loopax.base import showing, status_line
from loopax.base.showing import Log, Notebook, Rich, Terminal
from loopax.base.status_line import Line
from loopax.lowering import run_passes

x = pt.dvector("x")
FINAL = scan(lambda c, r: (pt.sin(c * r), None), pt.ones(()), x)[0]


class Screen(io.StringIO):
    """What is written, and what a terminal would show of it. ``seen`` is set once something is."""

    def __init__(self, terminal=True):
        super().__init__()
        self.terminal, self.seen = terminal, threading.Event()

    def isatty(self):
        return self.terminal

    def write(self, text):
        written = super().write(text)
        if text.strip():
            self.seen.set()
        return written

    @property
    def shown(self):
        """The line as it is now, of which a carriage return goes back to the beginning."""
        line = ""
        for part in self.getvalue().split("\r"):
            line = part + line[len(part) :]
        return line.rstrip()


@pytest.fixture
def clock():
    """A clock that is set by hand, in place of the one of the machine."""
    return [0.0]


def line(screen, clock):
    """A line, of which a test opens blocks without a thread."""
    said, place = Line(lambda: clock[0]), Terminal(screen)
    return SimpleNamespace(
        look=said.look, block=lambda what, ticks: said.block(what, place, ticks=ticks)
    )


# -- the line ----------------------------------------------------------------------------------------


def test_nothing_is_said_within_two_seconds(clock):
    screen = Screen()
    said = line(screen, clock)
    with said.block("passes", ticks=False):
        clock[0] = 1.9
        said.look()
    assert screen.getvalue() == ""


def test_it_says_what_where_and_how_long_and_is_cleared(clock):
    screen = Screen()
    said = line(screen, clock)
    with said.block("passes", ticks=False) as say:
        say("stabilize")
        clock[0] = 2.2
        said.look()
        assert screen.shown == "loopax: passes: stabilize (2 s)"
        say("lower")
        clock[0] = 3.9
        said.look()
        assert screen.shown == "loopax: passes: lower (4 s)"  # nothing left of what was longer
    assert screen.shown == "" and screen.getvalue().endswith("\r")


def test_it_is_cleared_where_the_block_raises(clock):
    screen = Screen()
    said = line(screen, clock)
    with pytest.raises(KeyboardInterrupt), said.block("passes", ticks=False):
        clock[0] = 5.0
        said.look()
        assert screen.shown
        raise KeyboardInterrupt
    assert screen.shown == ""


def test_blocks_within_blocks(clock):
    screen = Screen()
    said = line(screen, clock)
    with said.block("outer", ticks=False):
        clock[0] = 1.5
        with said.block("inner", ticks=False):
            clock[0] = 2.5
            said.look()
            assert screen.shown == "loopax: inner (2 s)"  # since all of it began
        assert screen.shown  # it is not over yet
        said.look()
        assert screen.shown == "loopax: outer (2 s)"
    assert screen.shown == ""
    with said.block("another", ticks=False):  # which begins anew
        clock[0] = 4.0
        said.look()
        assert screen.shown == ""


def test_it_is_no_longer_than_the_terminal(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    screen = Screen()
    said = line(screen, clock)
    with said.block("x" * 100, ticks=False):
        clock[0] = 3.0
        said.look()
        assert len(screen.shown) == 19


# -- where it is shown -------------------------------------------------------------------------------


@pytest.fixture
def stderr(monkeypatch):
    """A terminal, on which the line comes at once."""
    screen = Screen()
    monkeypatch.setattr(showing, "stderr", lambda: screen)
    monkeypatch.setattr(
        showing, "find_spec", lambda name: None
    )  # rich, if it is there, has its own test
    monkeypatch.setattr(status_line, "AFTER", 0.0)
    monkeypatch.setattr(loopax.config, "progress", None)
    return screen


def wait_for(screen):
    screen.seen.wait()


def test_a_terminal_shows_it(stderr):
    with status_line.waiting("something"):
        wait_for(stderr)
        assert stderr.shown.startswith("loopax: something")
    assert stderr.shown == ""


@pytest.mark.parametrize(("terminal", "progress"), [(False, None), (True, False)])
def test_where_nobody_looks_there_is_no_line_and_no_thread(stderr, terminal, progress):
    stderr.terminal = terminal
    loopax.config.progress = progress
    before = threading.active_count()
    with status_line.waiting("something") as say:
        say("here")
        assert threading.active_count() == before
    assert stderr.getvalue() == ""


def test_it_is_shown_where_it_is_asked_for(stderr):
    stderr.terminal = False
    loopax.config.progress = True
    with status_line.waiting("something"):
        wait_for(stderr)
    assert stderr.shown == ""


def test_a_process_without_stderr(monkeypatch):
    monkeypatch.setattr(showing, "stderr", lambda: None)
    monkeypatch.setattr(loopax.config, "progress", None)
    with status_line.waiting("something"):
        pass


@pytest.mark.slow
def test_a_process_that_is_not_interactive_writes_nothing():
    program = (
        "import loopax.base.status_line as w, pytensor.tensor as pt, loopax\n"
        "w.AFTER = 0.0\n"
        "x = pt.dvector('x')\n"
        "print(loopax.jaxify([x], x.sum(), backend='numba')([1.0, 2.0]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "3.0\n" and "loopax:" not in run.stderr


def test_rich_draws_it_in_a_terminal(stderr, monkeypatch):
    pytest.importorskip("rich", reason="loopax needs no rich; it draws the line if it is there")
    monkeypatch.setattr(showing, "find_spec", lambda name: name == "rich")
    place = showing.display_of(None)
    assert isinstance(place, Rich)
    place.clear(0.0)
    assert stderr.getvalue() == ""
    place.show("passes", 2.0)
    place.show("[bold] native", 3.0)  # no mark-up; the first may not have been drawn yet
    place.clear(4.0)
    assert "[bold] native (3 s)" in stderr.getvalue()


@pytest.fixture
def kernel(stderr, monkeypatch):
    """A kernel of Jupyter's, by what it is asked for: what a cell shows, by the identity of each output."""
    outputs = {}

    def display(data, *, raw, display_id):
        assert raw and display_id is True
        key = len(outputs)
        outputs[key] = data
        return SimpleNamespace(update=lambda data, raw: outputs.__setitem__(key, data))

    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    ipython.display = ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    stderr.terminal = False
    return outputs


def test_a_notebook_shows_it_as_one_output(kernel, stderr):
    place = showing.display_of(None)
    assert isinstance(place, Notebook)
    place.show("passes", 2.0)
    place.show("passes", 3.0)
    assert kernel == {0: {"text/plain": "loopax: passes (3 s)"}}
    place.clear(4.0)
    assert not any(kernel[0].values()) and stderr.getvalue() == ""


def test_the_display_of_ipython_takes_it(monkeypatch):
    shell = pytest.importorskip(
        "IPython.core.interactiveshell", reason="IPython comes with Jupyter"
    )
    from IPython.core.displaypub import CapturingDisplayPublisher

    publisher = CapturingDisplayPublisher()
    monkeypatch.setattr(shell.InteractiveShell, "initialized", lambda: True)
    monkeypatch.setattr(
        shell.InteractiveShell, "instance", lambda: SimpleNamespace(display_pub=publisher)
    )
    place = Notebook()
    place.show("passes", 2.0)
    place.clear(3.0)
    shown, cleared = publisher.outputs
    assert shown["data"] == {"text/plain": "loopax: passes (2 s)"} and cleared["update"]
    assert shown["transient"] == cleared["transient"]  # one and the same output


def test_a_thread_knows_the_cell(stderr):
    cell = ContextVar("cell", default=None)
    cell.set("the third")
    seen, there = [], threading.Event()

    def show(what, seconds):
        seen.append(cell.get())
        there.set()

    with Line().block("passes", SimpleNamespace(show=show, clear=lambda seconds: None)):
        there.wait()
    assert seen[0] == "the third"


def test_a_server_has_it_in_its_log(stderr, caplog):
    stderr.terminal = False
    assert showing.display_of(None) is None
    with caplog.at_level(logging.INFO, "loopax"):
        place = showing.display_of(None)
        assert isinstance(place, Log)
        place.clear(1.0)
        for seconds in (2.0, 3.0, 4.0, 7.9, 8.0):
            place.show("passes", seconds)
        place.clear(9.0)
        assert showing.display_of(False) is None
    said = ["passes (2 s)", "passes (4 s)", "passes (8 s)", "passes: done (9 s)"]
    assert [record.getMessage() for record in caplog.records] == said
    assert stderr.getvalue() == ""


FORKED = """
import os
from loopax.base.status_line import _LINE, waiting

with _LINE.block("the parent's", None, ticks=False), _LINE._lock:  # as a thread has it that writes
    child = os.fork()
    if not child:
        free = _LINE._lock.acquire(blocking=False)
        os._exit(0 if free and not _LINE._blocks else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no forks")
def test_a_forked_process_has_a_line_of_its_own():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def test_options():
    assert repr(loopax.config) == "Config(progress=None)"
    with pytest.raises(AttributeError, match=r"loopax.config has no 'progres'. It has progress"):
        loopax.config.progres = True
    with pytest.raises(ValueError, match="progress must be True, False or None, got 'yes'"):
        loopax.config.progress = "yes"
    with pytest.raises(ValueError, match="got 1"):
        loopax.config.progress = 1


# -- what is said ------------------------------------------------------------------------------------


@pytest.fixture
def heard(monkeypatch, stderr):
    """What is waited for, in order, and where each is."""
    actual = []

    class Listening(Line):
        def block(self, what, place, ticks=True):
            actual.append(what)
            return super().block(what, place, ticks=False)

    monkeypatch.setattr(status_line, "_LINE", Listening())
    return actual


def test_native_code(heard):
    f = jaxify([x], FINAL, backend="numba")
    assert heard == ["passes"]
    value = f(np.ones(3))
    lines = f.source.count("\n") + 1
    assert heard == ["passes", f"native code of {lines} lines"]
    assert f(np.ones(3)) == value and len(heard) == 2


def test_native_code_in_jax(heard):
    jaxify([x], FINAL, loops="native", name="mine")(np.ones(3))
    assert heard[:2] == ["passes", "mine, traced and compiled by XLA"]
    assert any(what.startswith("native code of ") for what in heard[2:])


def test_a_program_in_jax(heard):
    f = jaxify([x], FINAL, loops="xla", name="mine")
    expected = f(np.ones(3))
    assert heard == ["passes", "mine, traced and compiled by XLA"]
    np.testing.assert_array_equal(f(np.ones(3)), expected)
    assert len(heard) == 2


def test_a_mode_of_pytensor(heard):
    pytensor.function([x], FINAL, mode="LOOPAX_NUMBA")(np.ones(3))
    assert any(what.startswith("native code of ") for what in heard)


def test_passes_say_which_one_runs(stderr, monkeypatch):
    at = []
    line = Line(lambda: 0.0)
    monkeypatch.setattr(status_line, "_LINE", line)

    def one(graph):
        at.append([*line._blocks[-1]])

    def another(graph):
        at.append([*line._blocks[-1]])

    run_passes(FunctionGraph([x], [x * 2.0], clone=True), [one, another])
    assert at == [["passes", "one"], ["passes", "another"]]
