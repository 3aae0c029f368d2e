"""Linear algebra of complex numbers, whose derivatives PyTensor writes without conjugates.

    y = f(x), f holomorphic, J its Jacobian:      x̄ = conj(J)^T ȳ = conj(J^T conj(ȳ))

PyTensor's pullbacks of linear algebra and convolutions are ``J^T ȳ`` (3.0.7, 3.3.8), a wrong number for
complex operands. The pullbacks of all other ops with complex operands are right, or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Variable
from pytensor.graph.null_type import NullType
from pytensor.graph.op import Op
from pytensor.tensor.linalg.decomposition.lu import LU, LUFactor
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.products import Expm
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.linalg.summary import Det
from pytensor.tensor.signal.conv import Convolve1d

from loopax.base.errors import describe
from loopax.ir.derivatives.rules.registry import pullback_of
from loopax.ir.ops.inner_graph_op import core_of

_BY_JAX = 'JAX differentiates the op itself: jax.grad(jaxify(..., loops="xla")).'
_HOLOMORPHIC = LU, LUFactor, MatrixInverse, Expm, Solve, SolveTriangular, Det, Convolve1d


def pullback_with_conjugates(
    op: Op, inputs: Sequence[Variable], outputs: Sequence[Variable], cotangents: Sequence[Variable]
) -> Sequence[Any]:
    """`pullback_of`, with the conjugates that it lacks.

    Raises `NotImplementedError` where they cannot be added, as for Hermitian matrices, and where PyTensor
    has no pullback for complex numbers.
    """
    core = core_of(op)
    if not any(map(_is_complex, (*inputs, *outputs))):
        return pullback_of(op, inputs, outputs, cotangents)
    is_linear_algebra = type(core).__module__.startswith("pytensor.tensor.linalg")
    if not is_linear_algebra and not isinstance(core, _HOLOMORPHIC):
        try:
            return pullback_of(op, inputs, outputs, cotangents)
        except NotImplementedError as error:
            if str(error):
                raise
            raise NotImplementedError(
                f"PyTensor has no pullback of {core} of complex numbers, for {describe(outputs[0])}. "
                f"{_BY_JAX}"
            ) from error
    is_hermitian = getattr(core, "assume_a", "gen") in ("her", "pos")
    if not isinstance(core, _HOLOMORPHIC) or is_hermitian:
        raise NotImplementedError(
            f"The pullback of {core}, for {describe(outputs[0])}, lacks conjugates of complex numbers. "
            f"{_BY_JAX}"
        )
    in_cotangents = pullback_of(op, inputs, outputs, [_conjugate(g) for g in cotangents])
    return [_conjugate(g) for g in in_cotangents]


def as_cotangent_of(x: Variable, g: Any) -> Any:
    """Convert ``g`` to the dtype of ``x``.

    If an op has made a real ``x`` complex, its cotangent is the real part alone.
    """
    if g.type.dtype == x.type.dtype:
        return g
    is_real_part = _is_complex(g) and x.type.dtype.startswith("float")
    return (pt.real(g) if is_real_part else g).astype(x.type.dtype)


def _is_complex(v: Variable) -> bool:
    return str(getattr(v.type, "dtype", "")).startswith("complex")


def _conjugate(g: Variable) -> Any:
    is_missing = isinstance(g.type, DisconnectedType | NullType)
    return pt.conj(g) if not is_missing and _is_complex(g) else g
