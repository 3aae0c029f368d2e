"""Rules of products, inverses, traces and determinants of matrices.

The ranks of operands follow from their shapes: ``x @ y`` sums over other axes for a vector than for a
matrix.
"""

from __future__ import annotations

from loopax.extensions.egraph.rules.notation import equations

_PRODUCTS = """
    products from the right: (x @ y) @ z -> x @ (y @ z) if MATRIX_Y
    products from the left: x @ (y @ z) -> (x @ y) @ z if MATRIX_Y
    two transposes: x.T.T -> x
    transpose of a product: (x @ y).T <-> y.T @ x.T if MATRIX_X, MATRIX_Y
    constant factor of a product, left: (lit(v) * x) @ y -> lit(v) * (x @ y)
    constant factor of a product, right: x @ (lit(v) * y) -> lit(v) * (x @ y)
    factor of one entry of a product: (c * x) @ y -> c * (x @ y)
        if Sh2(1, 1) == shape(c), MATRIX_X, MATRIX_Y
"""

_INVERSES = """
    inverse of an inverse: inv(inv(x)) -> x
    transpose of an inverse: inv(x).T <-> inv(x.T)
    inverse times vector: inv(x) @ y -> solve1(x, y) if VECTOR_Y
    inverse times matrix: inv(x) @ y -> solve2(x, y) if MATRIX_Y
    vector times inverse: y @ inv(x) -> solve1(x.T, y) if VECTOR_Y
    matrix times inverse: y @ inv(x) -> solve2(x.T, y.T).T if MATRIX_Y
    inverse of a product: inv(x @ y) -> inv(y) @ inv(x) if SQUARE
    inverse of a multiple: inv(lit(v) * x) -> lit(1.0 / v) * inv(x) if v != 0.0
"""

_TRACES = """
    trace of a product: sum(diag(x @ y)) -> sum(x * y.T) if Sh2(n, m) == shape(x), Sh2(m, n) == shape(y)
    diagonal of a transpose: diag(x.T) -> diag(x)
    diagonal of a function: diag(f(x)) -> f(diag(x))
    diagonal of an operator: diag(f(x, y)) -> f(diag(x), diag(y)) if Sh2(n, m) == shape(x) == shape(y)
"""

_DETERMINANTS = """
    determinant of a product: det(x @ y) -> det(x) * det(y) if SQUARE
    determinant of a transpose: det(x.T) -> det(x)
    determinant of an inverse: det(inv(x)) -> Reciprocal(det(x))
"""

LINALG = equations(
    _PRODUCTS + _INVERSES + _TRACES + _DETERMINANTS,
    MATRIX_X="Sh2(a1, a2) == shape(x)",
    MATRIX_Y="Sh2(b1, b2) == shape(y)",
    VECTOR_Y="Sh1(b1) == shape(y)",
    SQUARE="Sh2(n, n) == shape(x) == shape(y)",
)
