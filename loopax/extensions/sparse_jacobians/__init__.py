"""Sparse Jacobians and Hessians by colouring, for ``sparse=True`` of `jacobian` and `hessian`."""

from loopax.base.extensions import Extension

_HERE = "loopax.extensions.sparse_jacobians"

EXTENSION = Extension(
    "sparse_jacobians",
    {
        "sparse_blocks": f"{_HERE}.function_jacobians:sparse_blocks_at",
        "diagonal_colours": f"{_HERE}.diagonal:diagonal_colours",
    },
)
