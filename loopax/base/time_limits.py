"""``time_limit``: a block whose native loops end in time, and the memory that they look at."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from loopax.base.errors import TimeLimitExceeded

# What native code reads and writes (`loopax.numba_backend.runtime.safepoints`): when Python was asked last,
# how long it need not be asked, the main thread, in how many threads there is something to look at, and the
# functions that look at it, and that raise an error later.
LAST, INTERVAL, MAIN, ASKED, CHECK, LATER = range(6)
WORDS = (ctypes.c_int64 * 6)()

COUNTS_CYCLES = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
# In cycles: 50 to 130 ms. Elsewhere the counter of cycles is not for programs to read: in nanoseconds.
_INTERVAL = 1 << 28 if COUNTS_CYCLES else 100_000_000
_FINER = 16  # so much shorter is the interval while there is a limit
_LOCK = threading.Lock()
_deadlines: dict[int, list[float]] = {}  # of each thread, those of the blocks that it is in
# Of each thread, what is raised in it when XLA has returned to Python.
_pending: dict[int, type] = {}


def address_of_words() -> int:
    return ctypes.addressof(WORDS)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """A block in which native loops of this thread end when it has taken so long.

    Of blocks in one another the one that ends first counts. A loop is left some hundredths of a second
    after the limit; what it was called for is as if it had not been called. What other threads run goes on.

    Parameters
    ----------
    seconds
        From the beginning of the block.

    Raises
    ------
    TimeLimitExceeded
        From a native loop, or else at the end of the block: XLA's own operations cannot be stopped, nor can
        BLAS, nor what Python itself computes, nor a loop that XLA runs in a thread of its own. Then the
        block is late, and raises when these have come to their end.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> import loopax
    >>> x = pt.dscalar("x")
    >>> f = loopax.jaxify([x], loopax.while_loop(lambda s: s > 0, pt.cos, x), backend="numba")
    >>> try:
    ...     with loopax.time_limit(0.1):
    ...         f(0.5)
    ... except loopax.TimeLimitExceeded:
    ...     print("no result")
    no result
    """
    deadline = time.monotonic() + seconds
    mine = threading.get_ident()
    with _LOCK:
        _deadlines.setdefault(mine, []).append(deadline)
        _ask()
    try:
        yield
        _check()
    finally:
        with _LOCK:
            _deadlines[mine].remove(deadline)
            if not _deadlines[mine]:
                del _deadlines[mine]
            _ask()


def _ask() -> None:
    """Have native code ask Python as often as there is need for it."""
    WORDS[ASKED] = len(_deadlines) + len(_pending)
    at_once = 0 if _pending else _INTERVAL // _FINER
    WORDS[INTERVAL] = at_once if _deadlines or _pending else _INTERVAL


def _check() -> None:
    """Raise if this thread is over time, or has been stopped and is not out of XLA yet."""
    if threading.get_ident() in _pending:
        raise _StillStopped
    limits = _deadlines.get(threading.get_ident())
    if limits and time.monotonic() > min(limits):
        raise TimeLimitExceeded("A block of loopax.time_limit has taken longer than it may.")


class _StillStopped(Exception):
    """The error pending in this thread: native code that XLA calls next stops as well."""


def _later(error: BaseException) -> type:
    """A class for Python to raise in this thread when it can: it is ``error``, when it is instantiated.

    Native code inside of XLA cannot raise, and an error of XLA's would be another one. So it returns as if
    it had ended, and Python raises before anybody sees what it has returned.
    """
    mine = threading.get_ident()

    def raised(cls: type) -> BaseException:
        with _LOCK:
            _pending.pop(mine, None)
            _ask()
        return error

    if mine not in _pending:
        kind = type(error)
        with _LOCK:
            _pending[mine] = type(kind.__name__, (kind,), {"__new__": raised})
            _ask()
    return _pending[mine]


def _know_main_thread() -> None:
    """Where a process begins, or a thread has forked it: that thread is its main thread."""
    main = threading.main_thread().ident
    assert main is not None
    WORDS[MAIN], WORDS[CHECK], WORDS[LATER] = main, id(_check), id(_later)


def _in_child() -> None:
    mine = threading.get_ident()
    for other in [thread for thread in _deadlines if thread != mine]:
        del _deadlines[other]
    _pending.clear()
    _ask()
    _LOCK._at_fork_reinit()  # type: ignore[attr-defined]  # as in `lock.py`
    _know_main_thread()


_know_main_thread()
_ask()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
