"""Kronecker products: what is asked of one is asked of its factors.

``(N2 "kron" a b)`` is (n p, m q) of ``a`` (n, m) and ``b`` (p, q). What it is multiplied with is a matrix
(m, q), row by row: ``kron(a, b) @ vec(x) = vec(a @ x @ b.T)``.
"""

from __future__ import annotations

from loopax.lowering.egraph.rules.rule import Rule

RELATIONS = """
(relation Matrix (i64 i64 Shape i64))
(relation Vector (i64 i64 Shape i64))
"""
_KRON = '(N2 "kron" a b)'
_OF_A, _OF_B = "(= (Sh2 n m) (shape a))", "(= (Sh2 p q) (shape b))"
_SQUARE = "(= (Sh2 n n) (shape a))", "(= (Sh2 p p) (shape b))"
_AS_MATRIX = "(Matrix m q (shape x) k)"
_SQUARE_SOLVED = (*_SQUARE, "(= s (shape x))", "(Matrix n p s k)", "(Vector n p s l)")
_SOLVED = '(S l (S 0 (N2 "solve2" b (S 0 (N2 "solve2" a (S k x))))))'
_LOG = '(E2 "Add" (E2 "Mul" (Lit (to-f64 p)) (N1 "logdet" a)) (E2 "Mul" (Lit (to-f64 n)) (N1 "logdet" b)))'
_SIGN = (
    '(E2 "Mul" (E2 "Pow" (N1 "signdet" a) (Lit (to-f64 p))) '
    '(E2 "Pow" (N1 "signdet" b) (Lit (to-f64 n))))'
)

KRONECKER = (
    Rule(
        "Kronecker product times vector",
        f'(N2 "dot" {_KRON} x)',
        '(S l (N2 "dot" (N2 "dot" a (S k x)) (S 0 b)))',
        (_OF_A, _OF_B, "(= (Sh2 z 1) (shape x))", _AS_MATRIX, "(Vector n p (Sh2 w 1) l)"),
    ),
    Rule(
        "Kronecker product times vector, of one axis",
        f'(N2 "dot" {_KRON} x)',
        '(S l (N2 "dot" (N2 "dot" a (S k x)) (S 0 b)))',
        (_OF_A, _OF_B, "(= (Sh1 z) (shape x))", _AS_MATRIX, "(Vector n p (Sh1 w) l)"),
    ),
    Rule(
        "row times Kronecker product",
        f'(N2 "dot" x {_KRON})',
        '(S 0 (N2 "dot" (N2 "kron" (S 0 a) (S 0 b)) (S 0 x)))',
        ("(= (Sh2 1 z) (shape x))",),
    ),
    Rule(
        "vector times Kronecker product",
        f'(N2 "dot" x {_KRON})',
        '(N2 "dot" (N2 "kron" (S 0 a) (S 0 b)) x)',
        ("(= (Sh1 z) (shape x))",),
    ),
    Rule("transpose of a Kronecker product", f"(S 0 {_KRON})", '(N2 "kron" (S 0 a) (S 0 b))'),
    Rule(
        "product of Kronecker products",
        f'(N2 "dot" {_KRON} (N2 "kron" c d))',
        '(N2 "kron" (N2 "dot" a c) (N2 "dot" b d))',
        (_OF_A, _OF_B, "(= (Sh2 m i) (shape c))", "(= (Sh2 q j) (shape d))"),
    ),
    Rule(
        "inverse of a Kronecker product",
        f'(N1 "inv" {_KRON})',
        '(N2 "kron" (N1 "inv" a) (N1 "inv" b))',
        _SQUARE,
    ),
    Rule("solution with a Kronecker product", f'(N2 "solve1" {_KRON} x)', _SOLVED, _SQUARE_SOLVED),
    Rule(
        "solution with a Kronecker product, of a column",
        f'(N2 "solve2" {_KRON} x)',
        _SOLVED,
        _SQUARE_SOLVED,
    ),
    Rule(
        "trace of a Kronecker product",
        f'(N1 "sum" (N1 "diag" {_KRON}))',
        '(E2 "Mul" (N1 "sum" (N1 "diag" a)) (N1 "sum" (N1 "diag" b)))',
        _SQUARE,
    ),
    # Not as powers of determinants, one of which may overflow where the other one underflows.
    Rule(
        "determinant of a Kronecker product",
        f'(N1 "det" {_KRON})',
        f'(E2 "Mul" {_SIGN} (E1 "Exp" {_LOG}))',
        _SQUARE,
    ),
    Rule("logarithm of a Kronecker product's determinant", f'(N1 "logdet" {_KRON})', _LOG, _SQUARE),
    Rule("sign of a Kronecker product's determinant", f'(N1 "signdet" {_KRON})', _SIGN, _SQUARE),
)
