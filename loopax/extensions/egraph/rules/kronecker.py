"""Rules that reduce operations on a Kronecker product to operations on its factors.

``kron(a, b)`` has shape (n p, m q) for ``a`` (n, m) and ``b`` (p, q). A vector multiplied by it is a
matrix (m, q), row by row: ``kron(a, b) @ vec(x) = vec(a @ x @ b.T)``.
"""

from __future__ import annotations

from loopax.extensions.egraph.rules.notation import equations

RELATIONS = """
(relation Matrix (i64 i64 Shape i64))
(relation Vector (i64 i64 Shape i64))
"""
_LOG = "lit(to_f64(p)) * logdet(a) + lit(to_f64(n)) * logdet(b)"
_SIGN = "signdet(a) ** lit(to_f64(p)) * signdet(b) ** lit(to_f64(n))"

KRONECKER = equations(
    f"""
    Kronecker product times vector: kron(a, b) @ x -> (a @ x[k] @ b.T)[l]
        if OF_BOTH, Sh2(z, 1) == shape(x), Matrix(m, q, shape(x), k), Vector(n, p, Sh2(w, 1), l)
    Kronecker product times vector, of one axis: kron(a, b) @ x -> (a @ x[k] @ b.T)[l]
        if OF_BOTH, Sh1(z) == shape(x), Matrix(m, q, shape(x), k), Vector(n, p, Sh1(w), l)
    row times Kronecker product: x @ kron(a, b) -> (kron(a.T, b.T) @ x.T).T if Sh2(1, z) == shape(x)
    vector times Kronecker product: x @ kron(a, b) -> kron(a.T, b.T) @ x if Sh1(z) == shape(x)
    transpose of a Kronecker product: kron(a, b).T -> kron(a.T, b.T)
    product of Kronecker products: kron(a, b) @ kron(c, d) -> kron(a @ c, b @ d)
        if OF_BOTH, Sh2(m, i) == shape(c), Sh2(q, j) == shape(d)
    inverse of a Kronecker product: inv(kron(a, b)) -> kron(inv(a), inv(b)) if SQUARE
    solution with a Kronecker product: solve1(kron(a, b), x) -> solve2(b, solve2(a, x[k]).T).T[l]
        if SQUARE, s == shape(x), Matrix(n, p, s, k), Vector(n, p, s, l)
    solution with a Kronecker product, of a column: solve2(kron(a, b), x)
        -> solve2(b, solve2(a, x[k]).T).T[l]
        if SQUARE, s == shape(x), Matrix(n, p, s, k), Vector(n, p, s, l)
    trace of a Kronecker product: sum(diag(kron(a, b))) -> sum(diag(a)) * sum(diag(b)) if SQUARE
    # Not as powers of determinants, one of which may overflow where the other underflows.
    determinant of a Kronecker product: det(kron(a, b)) -> {_SIGN} * Exp({_LOG}) if SQUARE
    logarithm of a Kronecker product's determinant: logdet(kron(a, b)) -> {_LOG} if SQUARE
    sign of a Kronecker product's determinant: signdet(kron(a, b)) -> {_SIGN} if SQUARE
    """,
    OF_BOTH="Sh2(n, m) == shape(a), Sh2(p, q) == shape(b)",
    SQUARE="Sh2(n, n) == shape(a), Sh2(p, p) == shape(b)",
)
