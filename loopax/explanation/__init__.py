"""Reports on the passes over a program, as text and as a page."""

from loopax.explanation.explanation import Explanation
from loopax.explanation.native_loops import NativeLoops
from loopax.explanation.profile import Profile

__all__ = ["Explanation", "NativeLoops", "Profile"]
