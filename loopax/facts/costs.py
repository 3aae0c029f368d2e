"""Costs of operations on whole arrays in native code, in nanoseconds for each entry of the result.

`python -m benchmarks.op_costs` measures these figures, and those of functions of numbers in `scalars.py`,
on arrays of 2,000 entries. Each is the geometric mean of two machines: one with vectors of 4 numbers, and
one with vectors of 8 (AVX-512), where functions and arithmetic take 0.3 of the time, but a gather or a
write 0.7. What is cheaper by them is cheaper on both, or nearly. `COPY` and `KEEP` were measured on the
first machine alone, and scaled as similar operations were.
"""

GATHER = 0.33  # 0.2 in the first cache, 1.0 in none
WRITE = 0.5
COPY = 0.06
PRODUCT = 0.2  # a multiplication of a product of matrices
KEEP = 0.2  # an entry that is written in one loop and read in others
ARRAY = 10.0  # of each array, whatever its size
UNKNOWN_LENGTH = 100  # what a length is taken for of which nothing is known
