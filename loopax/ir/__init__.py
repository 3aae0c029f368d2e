"""The one IR: PyTensor's own graph plus the ops defined here."""

from loopax.ir.batching import vectorize  # noqa: F401  (registers its rules with PyTensor)
from loopax.ir.call import Call
from loopax.ir.check import check
from loopax.ir.cond import Cond
from loopax.ir.derivatives.lazy import Derivative, Grad, Jacobian, Pullback, Pushforward
from loopax.ir.errors import (
    DynamicShapeError,
    LoopaxError,
    LoopTypeError,
    MissingInputError,
    StatefulFunctionError,
    UnsupportedOpError,
    VerifyError,
)
from loopax.ir.evaluation.evaluate import evaluate
from loopax.ir.loop import Loop
from loopax.ir.pformat import pformat
from loopax.ir.records import UNBOUNDED, BodyArgs, BodyOuts, ScanArgs, ScanOptions, ScanOuts
from loopax.ir.rows import FitRows, KeepRows
from loopax.ir.scan import Scan
from loopax.ir.trace import Stack, TraceType, Unstack

__all__ = [
    "UNBOUNDED",
    "BodyArgs",
    "BodyOuts",
    "Call",
    "Cond",
    "Derivative",
    "DynamicShapeError",
    "FitRows",
    "Grad",
    "Jacobian",
    "KeepRows",
    "Loop",
    "LoopTypeError",
    "LoopaxError",
    "MissingInputError",
    "Pullback",
    "Pushforward",
    "Scan",
    "ScanArgs",
    "ScanOptions",
    "ScanOuts",
    "Stack",
    "StatefulFunctionError",
    "TraceType",
    "UnsupportedOpError",
    "Unstack",
    "VerifyError",
    "check",
    "evaluate",
    "pformat",
]
