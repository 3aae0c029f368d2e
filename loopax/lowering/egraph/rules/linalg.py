"""Products, inverses, traces and determinants of matrices: which are computed, and in which order.

``(S 0 x)`` is the transpose of a matrix. The ranks of operands are asked of their shapes: ``dot`` of a
vector is another sum than that of a matrix.
"""

from __future__ import annotations

from loopax.lowering.egraph.rules.rule import Rule, both

_MATRIX_X, _MATRIX_Y = "(= (Sh2 a1 a2) (shape x))", "(= (Sh2 b1 b2) (shape y))"
_VECTOR_Y = "(= (Sh1 b1) (shape y))"

_PRODUCTS = (
    Rule(
        "products from the right",
        '(N2 "dot" (N2 "dot" x y) z)',
        '(N2 "dot" x (N2 "dot" y z))',
        (_MATRIX_Y,),
    ),
    Rule(
        "products from the left",
        '(N2 "dot" x (N2 "dot" y z))',
        '(N2 "dot" (N2 "dot" x y) z)',
        (_MATRIX_Y,),
    ),
    Rule("two transposes", "(S 0 (S 0 x))", "x"),
    *both(
        "transpose of a product",
        '(S 0 (N2 "dot" x y))',
        '(N2 "dot" (S 0 y) (S 0 x))',
        (_MATRIX_X, _MATRIX_Y),
    ),
    Rule(
        "constant factor of a product, left",
        '(N2 "dot" (E2 "Mul" (Lit v) x) y)',
        '(E2 "Mul" (Lit v) (N2 "dot" x y))',
    ),
    Rule(
        "constant factor of a product, right",
        '(N2 "dot" x (E2 "Mul" (Lit v) y))',
        '(E2 "Mul" (Lit v) (N2 "dot" x y))',
    ),
    Rule(
        "factor of one entry of a product",
        '(N2 "dot" (E2 "Mul" c x) y)',
        '(E2 "Mul" c (N2 "dot" x y))',
        ("(= (Sh2 1 1) (shape c))", _MATRIX_X, _MATRIX_Y),
    ),
)

_INVERSES = (
    Rule("inverse of an inverse", '(N1 "inv" (N1 "inv" x))', "x"),
    *both("transpose of an inverse", '(S 0 (N1 "inv" x))', '(N1 "inv" (S 0 x))'),
    Rule(
        "inverse times vector",
        '(N2 "dot" (N1 "inv" x) y)',
        '(N2 "solve1" x y)',
        (_VECTOR_Y,),
    ),
    Rule(
        "inverse times matrix",
        '(N2 "dot" (N1 "inv" x) y)',
        '(N2 "solve2" x y)',
        (_MATRIX_Y,),
    ),
    Rule(
        "vector times inverse",
        '(N2 "dot" y (N1 "inv" x))',
        '(N2 "solve1" (S 0 x) y)',
        (_VECTOR_Y,),
    ),
    Rule(
        "matrix times inverse",
        '(N2 "dot" y (N1 "inv" x))',
        '(S 0 (N2 "solve2" (S 0 x) (S 0 y)))',
        (_MATRIX_Y,),
    ),
    Rule(
        "inverse of a product",
        '(N1 "inv" (N2 "dot" x y))',
        '(N2 "dot" (N1 "inv" y) (N1 "inv" x))',
        ("(= (Sh2 n n) (shape x))", "(= (Sh2 n n) (shape y))"),
    ),
    Rule(
        "inverse of a multiple",
        '(N1 "inv" (E2 "Mul" (Lit v) x))',
        '(E2 "Mul" (Lit (/ 1.0 v)) (N1 "inv" x))',
        ("(!= v 0.0)",),
    ),
)

_TRACES = (
    Rule(
        "trace of a product",
        '(N1 "sum" (N1 "diag" (N2 "dot" x y)))',
        '(N1 "sum" (E2 "Mul" x (S 0 y)))',
        ("(= (Sh2 n m) (shape x))", "(= (Sh2 m n) (shape y))"),
    ),
    Rule("diagonal of a transpose", '(N1 "diag" (S 0 x))', '(N1 "diag" x)'),
    Rule("diagonal of a function", '(N1 "diag" (E1 f x))', '(E1 f (N1 "diag" x))'),
    Rule(
        "diagonal of an operator",
        '(N1 "diag" (E2 f x y))',
        '(E2 f (N1 "diag" x) (N1 "diag" y))',
        ("(= (Sh2 n m) (shape x))", "(= (Sh2 n m) (shape y))"),
    ),
)

_DETERMINANTS = (
    Rule(
        "determinant of a product",
        '(N1 "det" (N2 "dot" x y))',
        '(E2 "Mul" (N1 "det" x) (N1 "det" y))',
        ("(= (Sh2 n n) (shape x))", "(= (Sh2 n n) (shape y))"),
    ),
    Rule("determinant of a transpose", '(N1 "det" (S 0 x))', '(N1 "det" x)'),
    Rule("determinant of an inverse", '(N1 "det" (N1 "inv" x))', '(E1 "Reciprocal" (N1 "det" x))'),
)

LINALG = (*_PRODUCTS, *_INVERSES, *_TRACES, *_DETERMINANTS)
