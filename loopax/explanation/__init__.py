"""What the passes did to a program, as text and as a page."""

from loopax.explanation.explanation import Explanation

__all__ = ["Explanation"]
