"""Parts that the callables of all backends share: arguments, contexts, state; the record of a backend."""

from loopax.calling.arguments import Arguments
from loopax.calling.backend import (
    DEFAULT,
    Backend,
    BackendFunction,
    backend_named,
    register_backend,
)
from loopax.calling.context import SharedContext
from loopax.calling.function import ProgramFunction
from loopax.calling.stateful import StatefulFunction
from loopax.calling.traced import TracedFunction

__all__ = [
    "DEFAULT",
    "Arguments",
    "Backend",
    "BackendFunction",
    "ProgramFunction",
    "SharedContext",
    "StatefulFunction",
    "TracedFunction",
    "backend_named",
    "register_backend",
]
