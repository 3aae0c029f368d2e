"""Costs of operations on whole arrays in native code, in nanoseconds per entry of the result, or per call.

`python -m benchmarks.op_costs` measures these figures, and the figures of scalar functions in `scalars.py`,
on arrays of 2,000 entries. Each is the geometric mean of two machines: one with vectors of 4 numbers, and
one with vectors of 8 (AVX-512), where functions and arithmetic take 0.3 of the time, but a gather or a
write 0.7. A form that is cheaper by these figures is cheaper on both machines, or nearly so. `COPY` and
`KEEP` were measured on the first machine only, and scaled like similar operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from pytensor.graph.op import Op
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.core import SolveBase
from pytensor.tensor.linalg.summary import Det

GATHER = 0.33  # 0.2 in the first cache, 1.0 from main memory
WRITE = 0.5
COPY = 0.06
PRODUCT = 0.2  # a multiplication in a product of matrices
KEEP = 0.2  # an entry that is written in one loop and read in others
ARRAY = 10.0  # per array, whatever its size
UNKNOWN_LENGTH = 100  # assumed for an unknown length


def product(entries: float, inner: float) -> float:
    """The nanoseconds of a product of matrices, each of whose entries is a sum of ``inner`` products."""
    return 2 * ARRAY + PRODUCT * entries * inner


class LapackCost(NamedTuple):
    """The nanoseconds of a LAPACK call for a matrix of n rows, and a right-hand side of some columns."""

    call: float
    cube: float  # for each of n^3 operations
    right: float = 0.0  # for each of n^2 operations with a column of the right side

    def __call__(self, n: float, columns: float = 0.0) -> float:
        return self.call + self.cube * n**3 + self.right * n**2 * columns

    def for_arrays(self, shapes: Sequence[Sequence[float]]) -> float:
        """The time for inputs of these shapes: a batch of matrices, and last the right-hand side."""
        matrix = max(shapes, key=prod, default=[1.0])
        batch, core = prod(matrix[:-2]), matrix[-2:]
        n = (prod(core) * min(core, default=1.0)) ** (1 / 3)
        return batch * self(n, prod(shapes[-1]) / (batch * n) if shapes else 0.0)


DETERMINANT = LapackCost(300, 0.3)
INVERSE = LapackCost(500, 1.0)
SOLVE = LapackCost(400, 0.3, 0.5)
LAPACK = LapackCost(300, 0.5)  # of all others


def lapack_cost_of(op: Op) -> LapackCost | None:
    """The cost of ``op`` for one matrix; None if it is not a function of matrices."""
    match op:
        case Det() | Cholesky():
            return DETERMINANT
        case MatrixInverse():
            return INVERSE
        case SolveBase():
            return SOLVE
    return LAPACK if "linalg" in type(op).__module__ else None
