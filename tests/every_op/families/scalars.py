"""Scalar ops, each elementwise."""

from typing import Any

import numpy as np
import pytensor.scalar.basic as basic
import pytensor.scalar.math as special
import pytensor.tensor as pt
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise

from tests.every_op.record import FLAGS, A, P, Q, U, V, given

TITLE = "Scalar ops"
HEAVY = "BetaInc", "GammaInc", "GammaIncC", "Hyp2F1", "BetaIncInv", "GammaIncInv", "GammaIncCInv"
SLOW = {(name, c) for name in (*HEAVY, "Grad2F1Loop") for c in ("second", "vmap", "loopax.grad")}
REASONS = [
    "`Ive`, `Jv`, `Kve`: JAX has no Bessel functions of real orders.",
    "`Hyp2F1`: runs on the host if its series converges too slowly for an element.",
]
WHOLE, OTHERS = given([6, 3, 9], "i"), given([2, 5, 4], "j")
ABOVE, BELOW = given([1.3, 2.5, 4.0], "above"), given([-0.4, -1.5, -3.0], "below")
X, Y, Z = given([1.1, -2.3, 0.7], "x"), given([0.6, 1.9, -1.4], "y"), given([0.2, -0.5, 0.4], "z")

# What an op takes where floats of either sign and any size will not do.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["AND", "OR", "XOR"], (WHOLE, OTHERS)),
    "Invert": (WHOLE,),
    **dict.fromkeys(["ArcCos", "ArcSin", "ArcTanh", "Erfinv"], (Z,)),
    **dict.fromkeys(["Log", "Log2", "Log10", "Sqrt", "Erfcinv"], (P,)),
    "ArcCosh": (ABOVE,),
    "Log1p": (Z,),
    **dict.fromkeys(["Log1mexp", "NdtriExp"], (BELOW,)),
    "Pow": (P, X),
    "Switch": (FLAGS, V, U),
    "Clip": (X, -A, A),
    **dict.fromkeys(["Gamma", "GammaLn", "Psi", "TriGamma"], (Q,)),
    "PolyGamma": (pt.constant(2), Q),
    **dict.fromkeys(["GammaInc", "GammaIncC", "GammaU", "GammaL"], (Q, ABOVE)),
    **dict.fromkeys(["GammaIncInv", "GammaIncCInv"], (Q, P)),
    **dict.fromkeys(["BetaInc", "BetaIncInv"], (Q, ABOVE, P)),
    **dict.fromkeys(["Jv", "Ive", "Kve"], (pt.constant(1.5), Q)),
    "Hyp2F1": (P, Q, ABOVE, Z),
    "ComplexFromPolar": (P, X),
    "Real": (pt.exp(1j * X),),
    "Imag": (pt.exp(1j * X),),
    "Conj": (pt.exp(1j * X),),
    "Angle": (pt.exp(1j * X),),
    "Complex": (X, Y),
    "IsNan": (X,),
    "IsInf": (X,),
}

BASES = dict.fromkeys(
    [
        *("BinaryBitOp", "BinaryScalarOp", "FixedLogicalComparison", "LogicalComparison"),
        *("ScalarOp", "UnaryBitOp", "UnaryScalarOp", "ScalarInnerGraphOp"),
    ],
    "a base class",
)


def _instances() -> dict[str, Any]:
    actual: dict[str, Any] = {}
    for module in (basic, special):
        for op in vars(module).values():
            if isinstance(op, basic.ScalarOp):
                actual.setdefault(type(op).__name__, op)
    return actual


def _of(name: str, op: Any) -> Any:
    def build() -> Any:
        arguments = ARGUMENTS.get(name, (X, Y)[: op.nin] if op.nin > 0 else (X, Y))
        return Elemwise(op)(*arguments)

    return build


def composite() -> Any:
    x, y = basic.float64("x"), basic.float64("y")
    return Elemwise(basic.Composite([x, y], [basic.exp(x) * y, x - y]))(X, Y)


def newton_steps() -> Any:
    """The square root of 2, twelve steps from x."""
    x = basic.float64("x")
    return Elemwise(ScalarLoop([x], [(x + 2.0 / x) / 2.0]))(np.int64(4), Q)


def until_small() -> Any:
    x = basic.float64("x")
    return Elemwise(ScalarLoop([x], [x / 2.0], until=basic.lt(x, 1.0)))(np.int64(9), Q)


def derivative_of_hyp2f1() -> Any:
    return pt.grad(pt.hyp2f1(P, Q, ABOVE, Z).sum(), P)


EXAMPLES: dict[str, Any] = {name: _of(name, op) for name, op in _instances().items()}
EXAMPLES |= {
    "Cast": lambda: [X * pt.cast(WHOLE, "float32"), pt.cast(WHOLE, "float64"), pt.cast(X, "int8")],
    "Composite": composite,
    "ScalarLoop": lambda: [newton_steps(), *until_small()],
    "Grad2F1Loop": derivative_of_hyp2f1,
    "Mod": lambda: [X % Y, WHOLE % OTHERS],
    "IntDiv": lambda: [X // Y, WHOLE // OTHERS],
}
