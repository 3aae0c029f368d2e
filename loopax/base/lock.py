"""The one lock of loopax: PyTensor's configuration is global, and its rewriters are not reentrant.

It is held while a program is read, imported, lowered or traced. It is reentrant, and no other lock of
ours is taken inside it.
"""

import os
from threading import RLock
from typing import Any

TRACING = RLock()


def free_in_children(lock: Any) -> None:
    """Release ``lock`` in a forked process, which lacks the thread that may have held it."""
    if hasattr(os, "register_at_fork"):
        # As the standard library does with the locks of `logging` and `concurrent.futures`.
        os.register_at_fork(after_in_child=lock._at_fork_reinit)


free_in_children(TRACING)


def forks_wait_for(lock: Any) -> None:
    """Let a fork wait until no other thread holds ``lock``, and release it in the child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock._at_fork_reinit
        )
