"""Sufficient statistics: rows of constants of which sums see little, as fewer rows.

    sum((y - X @ b)**2), X of 2000 rows and 25 columns   ->  the same of 27 rows

Each row of a vector may be a polynomial in the constants of that row, whose coefficients are one for all
rows of a group: numbers, or what a constant index reads for them (``a[group]``). Sums over groups of such
polynomials of degree 2 are inner products of the constants, and of these a coordinate in an orthonormal
basis ``Q`` of their span says all: the constants ``C`` of a group become ``Q.T @ C``, and the program stays
what it is, of as many rows as the constants of the groups have dimensions. What is of lower degree is
multiplied by a vector of ones first, which is one of the constants.

No normal equations are formed: with ``A = Q R``, ``|A p|`` becomes ``|R p|``, as in least squares by QR,
and differs from it by what a rounding of the constants makes of it.

The rules are in `../rules/sufficient.py`. Here is what they cannot do: a program's constants are found,
and their coordinates computed.
"""
