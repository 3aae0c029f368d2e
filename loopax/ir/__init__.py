"""The one IR: PyTensor's own graph plus the ops defined here."""

from loopax.ir.call import Call
from loopax.ir.check import check
from loopax.ir.errors import (
    DynamicShapeError,
    LoopaxError,
    LoopTypeError,
    MissingInputError,
    StatefulFunctionError,
    UnsupportedOpError,
    VerifyError,
)
from loopax.ir.evaluate import evaluate
from loopax.ir.pformat import pformat
from loopax.ir.rows import FitRows
from loopax.ir.scan import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOuts

__all__ = [
    "BodyArgs",
    "BodyOuts",
    "Call",
    "DynamicShapeError",
    "FitRows",
    "LoopTypeError",
    "LoopaxError",
    "MissingInputError",
    "Scan",
    "ScanArgs",
    "ScanOuts",
    "StatefulFunctionError",
    "UnsupportedOpError",
    "VerifyError",
    "check",
    "evaluate",
    "pformat",
]
