"""Arguments at which a form raises where the other has a derivative, by class, with the reason.

A class of which several families have an example is named with its family.
"""

import pytensor

SINGULAR = "zeros", "ties", "ones", "rows repeated"
SHAPE = "PyTensor's Python linker returns a nan of the shape of `a`, not of `b`"
NOTHING = "an operation of nothing that one of the libraries refuses"
EQUAL = "equal eigenvalues, or singular values, where rounding decides what is NaN"
NO_SOLUTION = "no solution, and LAPACK solves an equation nearby"
STRUCTURED = "the structured derivative of a result that has no entry where it is 0"
KEPT = "PyTensor's native function keeps entries that are 0, SciPy and JAX's operations drop them"
ZEROS = "a zero", "zeros", "rounded"
NOT_OF_FULL_RANK = "not differentiable, and rounding decides where it is infinite and where NaN"

# In a loop, `jax.grad` of native code against that of JAX's operations.
IN_A_LOOP: dict[tuple[str, str], str] = {
    **{
        ("Det", arguments): "native code has the inverse, JAX the cofactors"
        for arguments in SINGULAR
    },
    ("SolveSylvester", "zeros"): NO_SOLUTION,
    **{("Solve", arguments): SHAPE for arguments in SINGULAR},
    ("CSMGradC", "empty"): NOTHING,
    ("Pad", "empty"): NOTHING,
    ("PermutationRV", "empty"): "a position among none, which is an error in Python",
    ("CSMGradC", "length 1"): "three arrays of one sparse matrix, which no longer fit each other",
    ("JAXOp", "length 1"): "a function of three numbers",
    ("Grad2F1Loop", "a zero"): "the logarithm of 0, whose derivative JAX multiplies by 0: NaN",
    **dict.fromkeys(
        [("Scan", "float32"), ("Scan", "integers in argument 1")],
        "PyTensor's Scan declares the dtypes of its step",
    ),
}
# Numbers that differ or not, as rounding has it on one machine or another: both forms have to run.
DECIDED_BY_ROUNDING = {
    **{(name, "ones"): EQUAL for name in ("Eigh", "Eigvalsh")},
    **{("SVD", arguments): EQUAL for arguments in ("ties", "ones")},
    **{("QR", arguments): NOT_OF_FULL_RANK for arguments in ("ties", "ones")},
    **{("SolveSylvester", arguments): NO_SOLUTION for arguments in ("ties", "ones")},
}
# Arguments that are not tried, with the reason.
NOT_TRIED = {("Grad2F1Loop", "ones"): "near z = 1, PyTensor's Python linker sums a million terms"}
if pytensor.__version__.startswith("3.0."):
    NOT_TRIED["Composite", "integers in argument 0"] = (
        "PyTensor's graph for it does not run: NameError"
    )
    NOT_TRIED["Grad2F1Loop", "integers in argument 0"] = (
        "PyTensor's gradient of it starts from an infinite integer: OverflowError, or KeyError"
    )
# Why a class is not compared at all.
LEFT_OUT = {
    "Remove": "a value decides a length, and JAX cannot trace it",
    "GradClip": "it is about reverse mode, and JAX has no forward mode of it",
}
# Outside, native derivatives against differences and those of JAX's operations.
OUTSIDE: dict[tuple[str, str], str] = {
    **{("Solve", arguments): SHAPE for arguments in SINGULAR},
    **{
        (name, arguments): "PyTensor's inverse of a singular matrix raises"
        for name in ("Det", "SLogDet")
        for arguments in SINGULAR
    },
    **{
        (name, arguments): STRUCTURED
        for name in (
            "AddSS",
            "AddSparseSparse",
            "Remove0",
            "StructuredAddSV",
            "StructuredAddSparseDenseVector",
        )
        for arguments in ZEROS
    },
    **{
        (name, arguments): KEPT
        for name in ("SparseDenseVectorMultiply", "MultiplySparseDenseVector")
        for arguments in ZEROS
    },
    (
        "Sparse matrices: Dot",
        "zeros",
    ): "native code has no second derivative where the first one is 0",
    ("CSMGrad", "zeros"): "a product of sparse matrices has no entry where a factor is 0",
    ("Pad", "empty"): NOTHING,
    ("QR", "rows repeated"): "not differentiable: the rank may rise in any direction",
    ("JAXOp", "length 1"): IN_A_LOOP["JAXOp", "length 1"],
    ("Scan", "float32"): IN_A_LOOP["Scan", "float32"],
    ("Scan", "integers in argument 1"): IN_A_LOOP["Scan", "float32"],
    **dict.fromkeys(
        [("MinimizeOp", "a zero"), ("MinimizeOp", "ones")],
        "the minimiser stops further from the minimum than the differences step",
    ),
    **dict.fromkeys(
        [(name, zeros) for name in ("Hyp2F1", "Grad2F1Loop") for zeros in ("a zero", "zeros")],
        "a pole: the third parameter is 0",
    ),
    (
        "Grad2F1Loop",
        "rounded",
    ): "PyTensor's derivative in a parameter is the constant 0 where z is 0",
    **{
        ("ConstructSparseFromList", arguments): "native code has no second derivative of it"
        for arguments in ("as recorded", "a zero", "rounded", "identities", *SINGULAR)
    },
}
# Ops whose derivative is said to be another one than the value has: differences say nothing of it.
OTHER_SLOPES = {"DisconnectedGrad", "GradScale", "ZeroGrad"}
