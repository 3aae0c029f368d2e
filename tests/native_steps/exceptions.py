"""What steps of native code call all the same, with the reason. Whatever else is called is a fault."""

import pytensor

A_FUNCTION = "it is a function of Python's"
OPTIMIZER = "SciPy's optimizers are Python"
FFT = "Numba has no Fourier transform"
NUMPY = "PyTensor has no native function of it, and it is NumPy's"
C_ALONE = "an op of PyTensor's C mode, which compiled functions of that mode bring along"
SPARSE = "PyTensor has no native function of it, and it is SciPy's"

# Calls of Python, which leave native code, by the class of the op.
PYTHON = {
    **dict.fromkeys(["PdbBreakpoint", "FromFunctionOp", "JAXOp", "Print"], A_FUNCTION),
    **dict.fromkeys(["MinimizeOp", "MinimizeScalarOp", "RootOp", "RootScalarOp"], OPTIMIZER),
    **dict.fromkeys(["RFFTOp", "IRFFTOp"], FFT),
    "ChoiceWithoutReplacement": "PyTensor's sampler chooses among the first elements alone",
    **dict.fromkeys(["Choose", "Convolve2d", "Lstsq", "TensorInv", "TensorSolve"], NUMPY),
    **dict.fromkeys(
        [
            "AddSparseDenseC",
            "CSMGradC",
            "MulSDCSC",
            "MulSDCSR",
            "MulSVCSR",
            "SamplingDotCSR",
            "StructuredAddSparseDenseVectorCSR",
            "StructuredDotCSC",
            "StructuredDotCSR",
            "UsmmCscDense",
        ],
        C_ALONE,
    ),
    **dict.fromkeys(
        [
            "CSMGrad",
            "ConstructSparseFromList",
            "Remove0",
            "SamplingDot",
            "SparseBlockDiagonal",
            "TrueDot",
            "Usmm",
        ],
        SPARSE,
    ),
}
if pytensor.__version__.startswith("3.0."):
    PYTHON |= dict.fromkeys(
        [
            "AddSD",
            "AddSD_ccode",
            "AddSS",
            "AddSSData",
            "EnsureSortedIndices",
            "SparseSparseMultiply",
            "StructuredAddSV",
            "StructuredAddSVCSR",
        ],
        "PyTensor 3.0 has no native function of it",
    )
# What PyTensor cannot differentiate, without that it says so when it is asked for the derivative.
NOT_DIFFERENTIABLE = {
    "ConstructSparseFromList": "rows of a sparse cotangent are read as those of a dense one"
}
# Calls of PyTensor's native functions, on arrays, by the modules of the ops.
ON_ARRAYS = {
    "pytensor.tensor.linalg": "LAPACK, of matrices that are large, or of kinds that no rule writes",
    "pytensor.sparse": "sparse matrices are held as PyTensor holds them",
}
