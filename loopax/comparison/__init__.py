"""One program in every form, its derivatives and its precision, side by side."""

from loopax.comparison.report import Comparison, Row

__all__ = ["Comparison", "Row"]
