"""A cache of compiled code with the interface of Numba's own, by function and types."""

from __future__ import annotations

import hashlib
from typing import Any

from loopax.base.upstream.numba import (
    CPUContext,
    Dispatcher,
    NullCache,
    compiled_of,
    numbers_functions_in_order,
    stored,
    use_cache,
)
from loopax.cache import folder
from loopax.numba_backend.cache.content import content_key

# Code compiled or loaded in this process, by key and types; functions with equal content share it. It
# is never dropped, since LLVM keeps it in any case (Numba removes no module, of half a megabyte and
# more, from its engine), and the next equal function would add another module.
_IN_PROCESS: dict[str, Any] = {}


class CodeCache(NullCache):  # type: ignore[misc]  # Numba has no types
    """Native code in this process and on disk, for one function by its `content_key`.

    It replaces the cache in a Numba dispatcher or C function, for which Numba has no public interface:
    Numba's own cache stores code by the file of a function, and generated functions have none.
    """

    def __init__(self, key: str) -> None:
        self._key = key

    def load_overload(self, signature: object, target_context: CPUContext) -> Any:
        """The code compiled for ``signature``, or None."""
        key = self._entry(signature)
        if key in _IN_PROCESS:
            return _IN_PROCESS[key]._replace(metadata={})  # each dispatcher records its own times
        data = folder.read(key)
        if data is None:
            return None
        target_context.refresh()
        try:
            loaded = compiled_of(target_context, data)
        except Exception:  # a damaged entry is compiled again
            folder.remove(key)
            return None
        return _IN_PROCESS.setdefault(key, loaded)

    def save_overload(self, signature: object, compiled: Any) -> None:
        """Store compiled code, unless it contains addresses of this process."""
        if not compiled.lifted and not compiled.library.has_dynamic_globals:
            key = self._entry(signature)
            folder.write(key, stored(compiled))
            # Without the type annotations, which serve Numba's debug output alone.
            _IN_PROCESS[key] = compiled._replace(type_annotation=None)

    def _entry(self, signature: object) -> str:
        types = hashlib.sha256(str(signature).encode()).hexdigest()
        return f"{self._key}-{types[:16]}"


def keep_on_disk(dispatcher: Dispatcher, *parts: str) -> None:
    """Attach a cache on disk to a function that Numba is to compile, where its content is known.

    ``parts`` are further dependencies of the code; see `content_key`.
    """
    key = content_key(dispatcher.py_func, *parts)
    if key is not None and is_possible():
        use_cache(dispatcher, CodeCache(key))


def is_possible() -> bool:
    """Whether code of another process can be loaded into this one.

    Numba numbers the functions of a process, and their symbols with them, so that code from the disk
    may have the symbols of other functions: https://github.com/numba/numba/issues/10486. PyTensor gives
    them random numbers, in 3.0.7 and 3.3.7.
    """
    return not numbers_functions_in_order()
