"""What the callables of both backends have in common: arguments, contexts, state."""

from loopax.calling.arguments import Arguments
from loopax.calling.context import BaseContext
from loopax.calling.function import ProgramFunction
from loopax.calling.stateful import StatefulFunction

__all__ = ["Arguments", "BaseContext", "ProgramFunction", "StatefulFunction"]
