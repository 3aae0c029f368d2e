"""``time_limit``: a block whose native loops end in time, and the memory by which it stops them."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from loopax.base.errors import TimeLimitExceeded

# Words that native code reads and writes (`loopax.numba_backend.runtime.safepoints`): the time of its
# last check in Python, the interval between checks, the main thread, the number of deadlines and
# pending errors, and the functions that check and that raise an error later.
LAST, INTERVAL, MAIN, ASKED, CHECK, LATER = range(6)
WORDS = (ctypes.c_int64 * 6)()

COUNTS_CYCLES = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
# In cycles: 50 to 130 ms. Where programs may not read the counter of cycles: in nanoseconds.
_INTERVAL = 1 << 28 if COUNTS_CYCLES else 100_000_000
_FINER = 16  # the factor by which the interval is shorter while there is a limit
_LOCK = threading.Lock()
_deadlines: dict[int, list[float]] = {}  # of each thread, the deadlines of the blocks that it is in
# Of each thread, the error that is raised in it when XLA has returned to Python.
_pending: dict[int, type] = {}


def address_of_words() -> int:
    return ctypes.addressof(WORDS)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the time of native loops in a block, for this thread.

    In nested blocks the earliest limit counts. A loop stops a few hundredths of a second after the
    limit, and its program has no effect, as if it had not been called. Other threads continue.

    Parameters
    ----------
    seconds
        The limit, from the start of the block.

    Raises
    ------
    TimeLimitExceeded
        Raised in a native loop, or otherwise at the end of the block. XLA's own operations, BLAS,
        Python code and loops in XLA's own threads cannot be stopped, so the block raises after they
        have ended.

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
    ident = threading.get_ident()
    with _LOCK:
        _deadlines.setdefault(ident, []).append(deadline)
        _ask()
    try:
        yield
        _check()
    finally:
        with _LOCK:
            _deadlines[ident].remove(deadline)
            if not _deadlines[ident]:
                del _deadlines[ident]
            _ask()


def _ask() -> None:
    """Set how often native code checks in with Python."""
    WORDS[ASKED] = len(_deadlines) + len(_pending)
    at_once = 0 if _pending else _INTERVAL // _FINER
    WORDS[INTERVAL] = at_once if _deadlines or _pending else _INTERVAL


def _check() -> None:
    """Raise if this thread is over its limit, or has been stopped and has not left XLA yet."""
    if threading.get_ident() in _pending:
        raise _StillStopped
    limits = _deadlines.get(threading.get_ident())
    if limits and time.monotonic() > min(limits):
        raise TimeLimitExceeded("The time limit of a loopax.time_limit block ran out.")


class _StillStopped(Exception):
    """Raised while the error of this thread is pending: native code that XLA calls next stops as well."""


def _later(error: BaseException) -> type:
    """A class for Python to raise in this thread when it can; its instance is ``error``.

    Native code inside of XLA cannot raise this error, and XLA would raise another one. So it returns
    normally, and Python raises before the result can be used.
    """
    ident = threading.get_ident()

    def raised(cls: type) -> BaseException:
        with _LOCK:
            _pending.pop(ident, None)
            _ask()
        return error

    if ident not in _pending:
        kind = type(error)
        with _LOCK:
            _pending[ident] = type(kind.__name__, (kind,), {"__new__": raised})
            _ask()
    return _pending[ident]


def _know_main_thread() -> None:
    """Record the main thread, at the start of a process and in a forked child."""
    main = threading.main_thread().ident
    assert main is not None
    WORDS[MAIN], WORDS[CHECK], WORDS[LATER] = main, id(_check), id(_later)


def _in_child() -> None:
    own_ident = threading.get_ident()
    for ident in [thread for thread in _deadlines if thread != own_ident]:
        del _deadlines[ident]
    _pending.clear()
    _ask()
    _LOCK._at_fork_reinit()  # type: ignore[attr-defined]  # as in `lock.py`
    _know_main_thread()


_know_main_thread()
_ask()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
