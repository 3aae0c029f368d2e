"""Scalar functions without branches or calls, which LLVM vectorizes in loops."""

from loopax.numerics.vector_functions import (
    error_functions,
    exponentials,
    gamma_functions,
    inverse_error_function,
    powers,
    trigonometric,
)
from loopax.numerics.vector_functions.arithmetic import HAS_FUSED as HAS_FUSED

FUNCTIONS = (
    exponentials.FUNCTIONS
    | trigonometric.FUNCTIONS
    | powers.FUNCTIONS
    | error_functions.FUNCTIONS
    | inverse_error_function.FUNCTIONS
    | gamma_functions.FUNCTIONS
)
