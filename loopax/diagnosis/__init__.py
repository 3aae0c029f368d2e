"""Where a value that is not finite comes from: a program run once with its values kept."""

from loopax.diagnosis.report import Diagnosis, Finding, Operand

__all__ = ["Diagnosis", "Finding", "Operand"]
