"""Search for the origin of a value that is not finite, in one run of a program."""

from loopax.diagnosis.report import Diagnosis, Finding, Operand

__all__ = ["Diagnosis", "Finding", "Operand"]
