"""Work that an interrupt must not cut off halfway.

Numba's compiler and Python's imports leave broken state behind where a `KeyboardInterrupt` is raised inside
of them: every later compilation of the process fails ("generator raised StopIteration", "module 'numba' has
no attribute 'core'"; numba 0.60 to 0.68). Python delivers signals to the main thread, so such work
runs in another one. The interrupt is raised at once where the main thread waits, and the work goes on
to its end; a second request finds it done, or waits for the compiler's own lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def uninterrupted(work: Callable[[], T]) -> T:
    """The result of ``work``, which must not take a lock that its caller holds.

    Raises
    ------
    Exception
        What ``work`` raises.
    KeyboardInterrupt
        The caller has been interrupted; ``work`` goes on in its thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    outcome: Future[T] = Future()
    context = copy_context()  # a new thread has none of the caller's settings

    def run() -> None:
        try:
            outcome.set_result(context.run(work))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="loopax compiles").start()
    return outcome.result()


_IMPORTED: dict[str, Any] = {}  # complete ones: `sys.modules` has interrupted ones too


def import_uninterrupted(name: str) -> Any:
    """Import the module ``name`` completely, with all its imports."""
    if name not in _IMPORTED:
        _IMPORTED[name] = uninterrupted(lambda: import_module(name))
    return _IMPORTED[name]
