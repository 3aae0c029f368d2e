"""Sufficient statistics: fewer rows of constants with the same sums.

    sum((y - X @ b)**2), X of 2000 rows and 25 columns   ->  the same with 27 rows

Each row of a vector may be a polynomial in the constants of that row, with coefficients that are
uniform in a group of rows: numbers, or reads at a constant index (``a[group]``). Sums over groups of
such polynomials of degree 2 are inner products of the constants, which coordinates in an orthonormal
basis ``Q`` of their span preserve: the constants ``C`` of a group become ``Q.T @ C``, and the program
stays the same, with as many rows as the constants of the groups have dimensions. Terms of lower degree
are first multiplied by a vector of ones, which is one of the constants.

No normal equations are formed: with ``A = Q R``, ``|A p|`` becomes ``|R p|``, as in least squares by
QR, with an error of the order of a rounding of the constants.

The rules are in `../rules/sufficient.py`. This package finds the constants of a program and computes
their coordinates, which rules cannot do.
"""
