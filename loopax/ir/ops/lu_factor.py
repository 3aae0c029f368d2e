"""``LapackLUFactor``: LU factors of all matrices, singular ones too.

PyTensor's ``LUFactor`` is nan for a singular matrix (3.0.7, 3.3.8). The factors exist, and JAX's
determinants are products of their diagonals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytensor.graph.basic import Apply
from pytensor.graph.op import OutputStorageType
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.lu import LUFactor
from scipy.linalg import get_lapack_funcs

if TYPE_CHECKING:
    import numpy as np


class LapackLUFactor(LUFactor):
    """``a -> factors, pivots``, as from LAPACK: a singular matrix has zeros on the diagonal of its factor.

    >>> import numpy as np
    >>> lapack_lu_factor(np.ones((2, 2)))[0].eval()
    array([[1., 1.],
           [1., 0.]])
    """

    def perform(
        self, node: Apply, inputs: Sequence[np.ndarray], outputs: OutputStorageType
    ) -> None:
        (a,) = inputs
        (getrf,) = get_lapack_funcs(("getrf",), (a,))
        outputs[0][0], outputs[1][0], _ = getrf(a)


lapack_lu_factor = Blockwise(LapackLUFactor())
