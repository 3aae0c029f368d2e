"""Why a keyword of an op class has no case: by keyword, or by class and keyword."""

from __future__ import annotations

_STORAGE = "where the result is stored, not what it is"
_PARTS = "what the op is made of, which has cases of its own"
_TEXT = "a text"
_AXES = "names of axes: PyTensor lowers them to plain ops, tests/test_named_axes.py"
_LAYOUT = "the layout of a sparse matrix: tests/jax_backend/values/test_sparse.py has both"
_DRAWS = "a draw: tests/jax_backend/ops/test_random.py has each distribution"

# Of every class.
KEYWORDS = {
    **dict.fromkeys(
        (
            "overwrite_a",
            "overwrite_b",
            "overwrite_c",
            "overwrite_d",
            "overwrite_dl",
            "overwrite_du",
            "inplace",
            "inplace_pattern",
            "destructive",
            "destroyhandler_tolerate_aliased",
            "view",
            "as_view",
        ),
        _STORAGE,
    ),
    **dict.fromkeys(("fgraph", "core_op", "scalar_op", "core_dims", "extra_dims"), _PARTS),
    **dict.fromkeys(("msg", "exc_type", "message", "attrs", "global_fn"), _TEXT),
    **dict.fromkeys(("dims", "dim", "new_dims", "new_dim_name", "stacked_dims"), _AXES),
    **dict.fromkeys(("old_dim_name", "unstacked_dims", "exclude"), _AXES),
    "format": _LAYOUT,
    "idx_list": "which positions are constants, slices or arrays: tests/test_slices.py and its neighbours",
    "signature": "follows from the core op",
    "driver": "which routine of LAPACK computes it, not what it is",
}

CLASSES = {
    ("SpecifyAssumptions", "assumptions"): "a promise: the value is that of the argument",
    ("Output", "idx"): "a node of PyTensor's own graphs, in no program",
    ("IfElse", "n_outs"): "how many values a branch has: tests/frontend/loops/test_branches.py",
    **{
        ("LazyIfElse", keyword): "branches: tests/frontend/loops/test_branches.py"
        for keyword in ("true_branch", "false_branch", "output_types")
    },
    **{
        ("JAXOp", keyword): "a function of JAX: tests/jax_backend/jax_op/test_functions.py"
        for keyword in ("input_types", "output_types", "jax_func")
    },
    ("PdbBreakpoint", "name"): _TEXT,
    ("Cast", "out_type"): "a dtype, which every cell of docs/ops.md compares",
    ("HStack", "dtype"): "a dtype, which every cell of docs/ops.md compares",
    ("VStack", "dtype"): "a dtype, which every cell of docs/ops.md compares",
    ("AllocEmpty", "dtype"): "nobody has written its values",
    ("SparseBlockDiagonal", "n_inputs"): "how many arguments there are",
    ("SpSum", "axis"): "tests/jax_backend/values/test_sparse.py has all",
    ("DimShuffle", "input_ndim"): "follows from the argument",
    ("Reshape", "ndim"): "follows from the shape that is asked for",
    ("Shape_i", "i"): "every loop over an axis reads one",
    ("Split", "axis"): "3.3 alone; the case of `len_splits` has several",
    ("Join", "axis"): "3.3 alone; the case of `Join` has all",
    ("XCumReduce", "binary_op"): "PyTensor lowers it to CumOp",
    ("IndexUpdate", "mode"): "PyTensor lowers it to writes",
    ("CAReduce", "dtype"): "PyTensor's constructors set it for Sum and Prod, which have a case",
    ("CAReduce", "acc_dtype"): "PyTensor's constructors set it for Sum and Prod, which have a case",
    (
        "CAReduce",
        "upcast_discrete_output",
    ): "gone in the node that it makes, whose dtype it decides",
    **{
        (name, keyword): "bools have one dtype"
        for name in ("Any", "All")
        for keyword in ("dtype", "acc_dtype", "upcast_discrete_output")
    },
    **{
        (name, keyword): "the dtype of the argument"
        for name in ("Max", "Min")
        for keyword in ("dtype", "acc_dtype", "upcast_discrete_output")
    },
    ("Sum", "upcast_discrete_output"): "always true; its dtypes have a case",
    **{
        ("ProdWithoutZeros", keyword): "made by gradients alone: the case of `no_zeros_in_input`"
        for keyword in ("axis", "dtype", "acc_dtype", "upcast_discrete_output")
    },
    (
        "MvNormalRV",
        "method",
    ): "which factor of the covariance is taken: a draw has no value of its own",
    **{
        ("RootOp", keyword): "tests/every_op/families/optimizers.py"
        for keyword in ("method", "jac")
    },
    **{
        ("Pad", keyword): "the case of `Pad` has all modes"
        for keyword in ("pad_mode", "reflect_type", "has_stat_length", "static_pad_width")
    },
    ("AdvancedIncSubtensor1", "set_instead_of_inc"): "3.0 alone; the case of AdvancedIncSubtensor",
    ("LogSumExp", "axis"): "3.3 alone; the case of `LogSumExp` has all",
    ("SortOp", "axis"): "3.3 alone; the case of `ArgSortOp` has all",
    ("ArgSortOp", "axis"): "3.3 alone; the case of `ArgSortOp` has all",
}


def reason(cls: type, keyword: str) -> str | None:
    """Why there is no case, if one is given."""
    if cls.__module__.startswith("pytensor.tensor.random") and cls.__name__ != "MvNormalRV":
        return _DRAWS
    if cls.__name__ == "MvNormalRV" and keyword != "method":
        return _DRAWS
    return KEYWORDS.get(keyword) or CLASSES.get((cls.__name__, keyword))
