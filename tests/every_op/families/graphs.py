"""Ops with programs in them, checks, and ops that are about derivatives, copies or printing."""

from typing import Any

import pytensor
import pytensor.tensor as pt
from pytensor.breakpoint import PdbBreakpoint
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import DeepCopyOp, view_op
from pytensor.gradient import disconnected_grad, grad_clip, grad_scale, undefined_grad, zero_grad
from pytensor.printing import Print
from pytensor.raise_op import Assert, CheckAndRaise

from loopax.base.upstream.pytensor import IfElse
from tests.every_op.families.compiled import compiled
from tests.every_op.record import A, B, Example, U, V

TITLE = "Programs, checks, derivatives"
SLOW: set[tuple[str, str]] = set()
REASONS = [
    "`FromFunctionOp`: your own Python function, without a derivative.",
    "`PdbBreakpoint`, `Print`: they act on the host by design.",
    "`UndefinedGrad`: it marks a missing derivative by design.",
]
BASES = {
    **dict.fromkeys(
        ["COp", "ExternalCOp", "OpenMPOp", "SymbolicOp", "_NoPythonCOp", "_NoPythonExternalCOp"]
        + ["_NoPythonOp", "FinalizedOpFromGraph"],
        "a base class",
    ),
    "Output": "stands in a graph for an output that is read; no program has it",
    "OutputGuard": "DebugMode's own, put around outputs while it runs",
}


def x() -> Any:
    return pt.dvector("x")


def from_graph() -> Any:
    a, b = pt.dvector("a"), pt.dscalar("b")
    return OpFromGraph([a, b], [pt.tanh(a) * b, (a**2).sum()])(V, A)


def scanned() -> Any:
    return pytensor.scan(
        lambda row, s, c: pt.tanh(s * c) + row,
        sequences=[V],
        outputs_info=[A],
        non_sequences=[B],
        return_updates=False,
    )


wrap_py = getattr(pytensor, "wrap_py", None) or pytensor.as_op  # the name that 3.0 has for it


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector], infer_shape=lambda *args: args[-1])
def doubled(x: Any) -> Any:
    return 2.0 * x


def with_breakpoint() -> Any:
    return PdbBreakpoint("never")(pt.lt(V.sum(), -1e9), V)


def assumed() -> Any:
    from pytensor.assumptions import assume

    return pt.linalg.inv(assume(pt.eye(3) * (1 + A**2), diagonal=True))


EXAMPLES: dict[str, Any] = {
    "OpFromGraph": from_graph,
    "Scan": scanned,
    "IfElse": lambda: IfElse(1)(pt.gt(A, 0.0), pt.exp(V), V * U),
    "LazyIfElse": lambda: compiled(IfElse(1)(pt.gt(A, 0.0), pt.exp(V), V * U)),
    "FromFunctionOp": lambda: doubled(V),
    "DeepCopyOp": lambda: DeepCopyOp()(V) * 2.0,
    "TypeCastingOp": lambda: view_op(V) * 2.0,
    "ViewOp": lambda: view_op(V) * 2.0,
    "Assert": lambda: Assert("not positive")(V, pt.gt(A, 0.0)),
    "CheckAndRaise": lambda: CheckAndRaise(ValueError, "not positive")(V, pt.gt(A, 0.0)),
    "Print": lambda: Print("v", attrs=())(V) * 2.0,
    "PdbBreakpoint": with_breakpoint,
    "SpecifyAssumptions": assumed,
    "DisconnectedGrad": lambda: Example(V * disconnected_grad(V * U) + U**2, by_pytensor=True),
    "ZeroGrad": lambda: Example(V * zero_grad(V * U), by_pytensor=True),
    "UndefinedGrad": lambda: V * undefined_grad(V * U),
    "GradScale": lambda: Example(V * grad_scale(V * U, -2.0), by_pytensor=True),
    "GradClip": lambda: Example(V * grad_clip(V * U, -1.0, 2.0), by_pytensor=True),
}
