"""The IR: PyTensor's own graph with the ops defined here."""

from loopax.ir.batching import vectorize  # noqa: F401  (registers its rules with PyTensor)
from loopax.ir.check import check
from loopax.ir.derivatives.lazy import Derivative, Grad, Jacobian, Pullback, Pushforward
from loopax.ir.derivatives.rules import (  # noqa: F401  (registers rules)
    blockwise,
    choices,
    eigenvalues,
    elementwise,
    factorizations,
    foreign_loops,
    products,
    solves,
    sorting,
    sparse_conversions,
    sparse_products,
    writes,
    zero_gradients,
)
from loopax.ir.evaluation.evaluate import evaluate
from loopax.ir.ops.call import Call
from loopax.ir.ops.calling_convention import (
    UNBOUNDED,
    BodyArgs,
    BodyOuts,
    ScanArgs,
    ScanOptions,
    ScanOuts,
)
from loopax.ir.ops.cond import Cond
from loopax.ir.ops.loop import Loop
from loopax.ir.ops.rows import FitRows, KeepRows
from loopax.ir.ops.scan import Scan
from loopax.ir.ops.trace import Stack, TraceType, Unstack
from loopax.ir.pformat import pformat

__all__ = [
    "UNBOUNDED",
    "BodyArgs",
    "BodyOuts",
    "Call",
    "Cond",
    "Derivative",
    "FitRows",
    "Grad",
    "Jacobian",
    "KeepRows",
    "Loop",
    "Pullback",
    "Pushforward",
    "Scan",
    "ScanArgs",
    "ScanOptions",
    "ScanOuts",
    "Stack",
    "TraceType",
    "Unstack",
    "check",
    "evaluate",
    "pformat",
]
