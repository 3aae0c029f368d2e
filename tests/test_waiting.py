"""The line that says what is waited for: where it is shown, what it says, and that it goes."""

import io
import subprocess
import sys
import threading

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

import loopax
from loopax import jaxify, scan
from loopax.ir import waiting
from loopax.ir.waiting import Line
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
    return Line(screen.write, lambda: clock[0])


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
    monkeypatch.setattr(waiting, "_stream", lambda: screen)
    monkeypatch.setattr(waiting, "AFTER", 0.0)
    monkeypatch.setattr(loopax.config, "progress", None)
    return screen


def wait_for(screen):
    assert screen.seen.wait(20), "the line has not come"


def test_a_terminal_shows_it(stderr):
    with waiting.waiting("something"):
        wait_for(stderr)
        assert stderr.shown.startswith("loopax: something")
    assert stderr.shown == ""


@pytest.mark.parametrize(("terminal", "progress"), [(False, None), (True, False)])
def test_where_nobody_looks_there_is_no_line_and_no_thread(stderr, terminal, progress):
    stderr.terminal = terminal
    loopax.config.progress = progress
    before = threading.active_count()
    with waiting.waiting("something") as say:
        say("here")
        assert threading.active_count() == before
    assert stderr.getvalue() == ""


def test_it_is_shown_where_it_is_asked_for(stderr):
    stderr.terminal = False
    loopax.config.progress = True
    with waiting.waiting("something"):
        wait_for(stderr)
    assert stderr.shown == ""


def test_a_process_without_stderr(monkeypatch):
    monkeypatch.setattr(waiting, "_stream", lambda: None)
    monkeypatch.setattr(loopax.config, "progress", None)
    with waiting.waiting("something"):
        pass


def test_a_process_that_is_not_interactive_writes_nothing():
    program = (
        "import loopax.ir.waiting as w, pytensor.tensor as pt, loopax\n"
        "w.AFTER = 0.0\n"
        "x = pt.dvector('x')\n"
        "print(loopax.jaxify([x], x.sum(), backend='numba')([1.0, 2.0]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "3.0\n" and "loopax:" not in run.stderr


def test_options():
    assert repr(loopax.config) == "Config(progress=None)"
    with pytest.raises(AttributeError, match=r"loopax.config has no 'progres'. It has progress"):
        loopax.config.progres = True
    with pytest.raises(ValueError, match="progress is True, False or None, got 'yes'"):
        loopax.config.progress = "yes"


# -- what is said ------------------------------------------------------------------------------------


@pytest.fixture
def heard(monkeypatch, stderr):
    """What is waited for, in order, and where each is."""
    found = []

    class Listening(Line):
        def block(self, what, ticks=True):
            found.append(what)
            return super().block(what, ticks=False)

    monkeypatch.setattr(waiting, "_LINE", Listening(stderr.write))
    return found


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
    line = Line(stderr.write, lambda: 0.0)
    monkeypatch.setattr(waiting, "_LINE", line)

    def one(graph):
        at.append([*line._blocks[-1]])

    def another(graph):
        at.append([*line._blocks[-1]])

    run_passes(FunctionGraph([x], [x * 2.0], clone=True), [one, another])
    assert at == [["passes", "one"], ["passes", "another"]]
