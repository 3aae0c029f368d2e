"""Sparse Jacobians and Hessians by colouring: ``sparse=True`` of `loopax.jacobian` and `loopax.hessian`."""

from loopax.base.extensions import Extension

_HERE = "loopax.extensions.sparse_jacobians"

EXTENSION = Extension(
    "sparse_jacobians",
    {
        "sparse_blocks": f"{_HERE}.of_functions:sparse_blocks_at",
        "diagonal_colours": f"{_HERE}.diagonal:diagonal_colours",
    },
)
