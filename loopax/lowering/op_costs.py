"""What operations on arrays cost in native code, in nanoseconds for each entry of what they make.

`python -m benchmarks.op_costs` measures the figures: those below are of 2,000 entries. Functions are of
native code's own vector functions; what is not measured is taken for a function of middling cost.
"""

PER_ENTRY = {
    "Neg": 0.1, "Abs": 0.1, "Add": 0.1, "Sub": 0.1, "Mul": 0.1, "Sqr": 0.1, "Switch": 0.1, "Second": 0.1,
    "GE": 0.1, "GT": 0.1, "LE": 0.1, "LT": 0.1, "EQ": 0.1, "NEQ": 0.1, "AND": 0.1, "OR": 0.1,
    "Maximum": 0.3, "Minimum": 0.3, "TrueDiv": 0.2, "Reciprocal": 0.2, "Sqrt": 0.5,
    "Exp": 1.7, "Expm1": 3.3, "Log": 1.9, "Log1p": 1.8, "Sigmoid": 2.0, "Softplus": 4.0, "Log1mexp": 11.0,
    "Tanh": 4.0, "Pow": 7.5, "Erf": 5.5, "Erfc": 5.3, "Erfcx": 5.4, "GammaLn": 9.9, "Psi": 5.6,
}  # fmt: skip
OTHER = 5.0
GATHER = 0.4  # 0.2 in the first cache, 1.0 in none
WRITE = 0.6
COPY = 0.1
KEEP = 0.3  # an entry that is written in one loop and read in others
ARRAY = 10.0  # of each array, whatever its size
UNKNOWN_LENGTH = 100  # what a length is taken for of which nothing is known
