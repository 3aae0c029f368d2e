"""Search for the origin of a nonfinite value, in one run of a program."""

from loopax.diagnosis.report import Diagnosis, Finding, Operand

__all__ = ["Diagnosis", "Finding", "Operand"]
