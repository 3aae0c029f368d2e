"""Ops on tensors: shapes, reductions, order, Fourier transforms, convolutions."""

from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor import typed_list
from pytensor.tensor.basic import (
    AllocDiag,
    AllocEmpty,
    ExtractDiag,
    Nonzero,
    PermuteRowElements,
    scalar_from_tensor,
    tensor_from_scalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CpuContiguous, Repeat, SearchsortedOp
from pytensor.tensor.math import Min, MulWithoutZeros, ProdWithoutZeros
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.signal import convolve1d
from pytensor.tensor.type_other import MakeSlice

from tests.every_op.record import FLAGS, SQUARE, A, B, K, M, N, Q, U, V, W, given

TITLE = "Tensors"
SLOW = {
    ("Convolve1d", "Numba"),
    ("Convolve1d", "loopax.grad"),
    ("Pad", "loopax.grad"),
    ("Prod", "loopax.grad"),
}
REASONS: list[str] = []
BASES = {
    **dict.fromkeys(
        [
            "FixedOpCAReduce",
            "FusibleSymbolicOp",
            "MaxAndMinCAReduce",
            "NonZeroDimsCAReduce",
            "TensorSymbolicOp",
        ],
        "a base class",
    ),
    "Fourier": "its `perform` calls NumPy in a way that NumPy 2 refuses; `pt.fft` has the transforms",
    "OpWithCoreShape": "a base class",
    "BlockwiseWithCoreShape": "with the ops of compiled programs",
}
IMAGE = given(np.sin(np.arange(20.0)).reshape(4, 5), "image")
LONGER = given([2, 0, 1], "longer")


def convolve2d() -> Any:
    from pytensor.tensor.signal import convolve2d

    return [
        convolve2d(IMAGE, M, mode=m, method=h) for m in ("full", "valid") for h in ("direct", "fft")
    ]


def padded() -> Any:
    modes: dict[str, Any] = {
        "reflect": {},
        "wrap": {},
        "linear_ramp": {"end_values": 0.5},
        "mean": {},
    }
    if not pytensor.__version__.startswith(
        "3.0."
    ):  # it broadcasts an axis that it does not declare
        modes["edge"] = {}
    return [pt.pad(M, 1), *(pt.pad(M, 1, mode=m, **options) for m, options in modes.items())]


EXAMPLES: dict[str, Any] = {
    # what makes arrays
    "ARange": lambda: [pt.arange(N), pt.arange(5, 0, -N)],
    "Alloc": lambda: pt.alloc(V, 2, V.shape[0]),
    "AllocEmpty": lambda: pt.set_subtensor(AllocEmpty("float64")(V.shape[0], 2)[:], A),
    "AllocDiag": lambda: AllocDiag(offset=1, axis1=0, axis2=1)(V),
    "ExtractDiag": lambda: ExtractDiag(offset=1, axis1=0, axis2=1)(M),
    "Eye": lambda: pt.eye(V.shape[0], 4, 1),
    "MakeVector": lambda: pt.stack([A, B, A * B]),
    "Bartlett": lambda: pt.bartlett(N + 3),
    "ScalarFromTensor": lambda: tensor_from_scalar(scalar_from_tensor(A) * ps.constant(2.0)),
    "TensorFromScalar": lambda: tensor_from_scalar(scalar_from_tensor(A)),
    "MakeSlice": lambda: typed_list.make_list([V, U, V * 2])[MakeSlice()(1, 3, None)][0],
    # shapes
    "Shape": lambda: Shape()(M),
    "Shape_i": lambda: Shape_i(1)(M),
    "SpecifyShape": lambda: pt.specify_shape(M, (2, None)),
    "Reshape": lambda: [M.reshape((3, -1)), M.reshape((V.shape[0], 2))],
    "JoinDims": lambda: JoinDims(0, 2)(M),
    "SplitDims": lambda: SplitDims(axis=1)(M, (1, 3)),
    "DimShuffle": lambda: M.dimshuffle(1, "x", 0),
    "CpuContiguous": lambda: CpuContiguous()(M.T),
    # joining and taking apart
    "Join": lambda: [pt.join(0, V, U), pt.join(1, M, M * 2)],
    "Split": lambda: pt.split(V, [1, 2], n_splits=2),
    "Repeat": lambda: [pt.repeat(M, 2, axis=1), Repeat(axis=0)(V, LONGER)],
    "Pad": padded,
    "FillDiagonal": lambda: pt.fill_diagonal(SQUARE, A),
    "FillDiagonalOffset": lambda: pt.fill_diagonal_offset(SQUARE, A, 1),
    # elementwise, reduced, accumulated
    "Elemwise": lambda: pt.exp(V) * M,
    "Blockwise": lambda: Blockwise(pt.linalg.Cholesky(), signature="(m,m)->(m,m)")(
        pt.stack([SQUARE @ SQUARE.T, pt.eye(3)])
    ),
    "CAReduce": lambda: [CAReduce(ps.add, axis=0)(M), CAReduce(ps.mul)(V), CAReduce(ps.or_)(K)],
    "Sum": lambda: [M.sum(), M.sum(axis=0), K.sum()],
    "Prod": lambda: [M.prod(), M.prod(axis=1), (V * pt.constant([1.0, 0.0, 2.0])).prod()],
    "ProdWithoutZeros": lambda: ProdWithoutZeros()(V * pt.constant([1.0, 0.0, 2.0])),
    "MulWithoutZeros": lambda: Elemwise(MulWithoutZeros(ps.upcast_out))(V, U),
    "Max": lambda: [pt.max(M, axis=0), pt.max(V)],
    "Min": lambda: [Min(axis=(0,))(M), Min(axis=(0,))(V)],
    "All": lambda: pt.all(FLAGS),
    "Any": lambda: pt.any(FLAGS),
    "Argmax": lambda: pt.argmax(M, axis=0),
    "CumOp": lambda: [pt.cumsum(M, axis=0), pt.cumprod(V), pt.cumsum(K)],
    "Dot": lambda: [pt.dot(M, V), pt.dot(M, M.T), pt.dot(V, U)],
    "Einsum": lambda: pt.einsum("ij,kj,k->i", M, SQUARE, V),
    "LogAddExp": lambda: pt.logaddexp(V, U),
    "LogSumExp": lambda: pt.logsumexp(M, axis=1),
    "LogSoftmax": lambda: pt.special.log_softmax(M, axis=1),
    "Softmax": lambda: pt.special.softmax(M, axis=1),
    "FusibleSymbolicOpDerivative": lambda: pytensor.grad((pt.logsumexp(M, axis=1) ** 2).sum(), M),
    "XLogY": lambda: pt.special.xlogy(V, Q),
    "XLog1PY": lambda: pt.special.xlog1py(V, Q),
    # order and choice
    "SortOp": lambda: [pt.sort(V), pt.sort(-M, axis=0)],
    "ArgSortOp": lambda: pt.argsort(V),
    "SearchsortedOp": lambda: SearchsortedOp(side="right")(pt.sort(W), V),
    "Unique": lambda: pt.unique(K, return_counts=True),
    "Nonzero": lambda: Nonzero()(FLAGS),
    "Choose": lambda: pt.choose(K // 2, [V, U]),
    "PermuteRowElements": lambda: PermuteRowElements(inverse=False)(V, pt.constant([2, 0, 1])),
    "RavelMultiIndex": lambda: pt.ravel_multi_index((K, K // 2), (3, 2)),
    "UnravelIndex": lambda: list(pt.unravel_index(K, (2, 3))),
    # signals
    "RFFTOp": lambda: pt.fft.rfft(M),
    "IRFFTOp": lambda: pt.fft.irfft(pt.fft.rfft(M), is_odd=True),
    "Convolve1d": lambda: [convolve1d(W, V, mode=m) for m in ("full", "valid", "same")],
    "Convolve2d": convolve2d,
}
