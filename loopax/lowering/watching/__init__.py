"""Watched values of a program: remove the marks, or return the values."""

from loopax.lowering.watching.drop import drop_watches, has_watches
from loopax.lowering.watching.expose import expose
from loopax.lowering.watching.exposed import Exposed

__all__ = ["Exposed", "drop_watches", "expose", "has_watches"]
