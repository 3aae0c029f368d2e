"""The one lock of loopax: PyTensor's configuration is global, and its rewriters are not reentrant.

It is held while a program is read, imported, lowered or traced. It is reentrant, and no other lock of
ours is taken inside it.
"""

from threading import RLock

TRACING = RLock()
