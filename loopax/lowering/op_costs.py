"""What operations on arrays cost in native code, in nanoseconds for each entry of what they make.

`python -m benchmarks.op_costs` measures the figures, of 2,000 entries. Those below are the geometric
means of two machines: one with vectors of 4 numbers, and one with vectors of 8 (AVX-512), where functions
take 0.3 of the time and arithmetic as little, but a gather 0.7 and a write 0.7: what is cheaper by them is
so on both, or nearly. `COPY`, `KEEP` and `OTHER` were measured on the first alone, and made less by as much
as what is like them. Functions are of native code's own vector functions; what is not measured is taken
for a function of middling cost.
"""

PER_ENTRY = {
    "Neg": 0.06, "Abs": 0.06, "Add": 0.06, "Sub": 0.06, "Mul": 0.06, "Sqr": 0.06, "Switch": 0.06,
    "Second": 0.06, "GE": 0.06, "GT": 0.06, "LE": 0.06, "LT": 0.06, "EQ": 0.06, "NEQ": 0.06,
    "AND": 0.06, "OR": 0.06,
    "Maximum": 0.13, "Minimum": 0.13, "TrueDiv": 0.11, "Reciprocal": 0.11, "Sqrt": 0.3,
    "Exp": 0.95, "Expm1": 1.8, "Log": 1.05, "Log1p": 1.0, "Sigmoid": 1.1, "Softplus": 2.45, "Log1mexp": 5.2,
    "Tanh": 2.1, "Pow": 4.3, "Erf": 3.3, "Erfc": 3.1, "Erfcx": 2.9, "GammaLn": 5.3, "Psi": 3.4,
}  # fmt: skip
OTHER = 3.0
GATHER = 0.33  # 0.2 in the first cache, 1.0 in none
WRITE = 0.5
COPY = 0.06
KEEP = 0.2  # an entry that is written in one loop and read in others
ARRAY = 10.0  # of each array, whatever its size
UNKNOWN_LENGTH = 100  # what a length is taken for of which nothing is known
