"""Names of Numba's compiler and of llvmlite that loopax uses beyond their public interfaces.

Numba's public API compiles a function. loopax also changes how a function is lowered (`compiling`), keeps
its code on disk (`cache`), writes LLVM by hand (`runtime`) and enters it from XLA (`ffi`). Tried on the
releases of docs/install.md; pyproject.toml stops before the next minor release of Numba, and
`loopax.versions` reports a later one.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import count
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from llvmlite.binding import ffi as llvm_ffi
from llvmlite.binding import get_host_cpu_features, llvm_version_info
from numba import types
from numba.core import cgutils, compiler, serialize
from numba.core import config as numba_config
from numba.core import ir as numba_ir
from numba.core.analysis import (
    compute_cfg_from_blocks,
    compute_dead_maps,
    compute_live_map,
    must_use_alloca,
)
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import NullCache
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary, _parse_refprune_flags
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.cpu import CPUContext
from numba.core.dispatcher import Dispatcher
from numba.core.errors import LoweringError, NumbaError, new_error_context
from numba.core.lowering import Lower
from numba.core.registry import cpu_target
from numba.core.rewrites.registry import rewrite_registry
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import IRLegalization, NativeLowering, NopythonTypeInference
from numba.core.typing.templates import CallableTemplate, Signature, infer, infer_global
from numba.core.untyped_passes import GenericRewrites
from numba.np.linalg import call_xxgemm, call_xxgemv, ensure_blas, ensure_lapack, get_blas_kind
from numba.np.random.random_methods import random_interval

__all__ = [
    "COMPILER_LOCKS",
    "CFunc",
    "CPUContext",
    "CompilerBase",
    "DefaultPassBuilder",
    "Dispatcher",
    "FunctionIdentity",
    "GenericRewrites",
    "IRLegalization",
    "JITCodeLibrary",
    "Lower",
    "LoweringError",
    "NativeLowering",
    "NopythonTypeInference",
    "NullCache",
    "NumbaError",
    "PassManager",
    "Signature",
    "call_instead_of_compiling",
    "call_xxgemm",
    "call_xxgemv",
    "canonicalize_cfg",
    "cgutils",
    "compiled_of",
    "compiler",
    "compute_cfg_from_blocks",
    "compute_dead_maps",
    "compute_live_map",
    "cpu_target",
    "ensure_blas",
    "ensure_lapack",
    "get_blas_kind",
    "get_host_cpu_features",
    "global_compiler_lock",
    "ir",
    "literal_type_callable",
    "llvm",
    "llvm_ffi",
    "llvm_version_info",
    "must_use_alloca",
    "new_error_context",
    "numba_config",
    "numba_ir",
    "numbers_functions_in_order",
    "operands_of",
    "optimize_without_unrolling",
    "random_interval",
    "register_pass",
    "rewrite_registry",
    "stored",
    "struct_value",
    "use_cache",
]

# The locks of Numba and LLVM, in the order in which a compilation takes them.
COMPILER_LOCKS = global_compiler_lock._lock, llvm_ffi.lib._lock._lock


def use_cache(function: Dispatcher | CFunc, cache: NullCache) -> None:
    """Let Numba load the code of ``function`` from ``cache``, and store it there."""
    function._cache = cache


def stored(compiled: Any) -> bytes:
    """Compiled code as bytes."""
    data: bytes = serialize.dumps(compiled._reduce())
    return data


def compiled_of(context: CPUContext, data: bytes) -> Any:
    """The compiled code that was `stored` as ``data``."""
    return compiler.CompileResult._rebuild(context, *pickle.loads(data))


def numbers_functions_in_order() -> bool:
    """Whether Numba numbers the functions of a process 0, 1, 2 and so on; PyTensor prevents that."""
    return isinstance(FunctionIdentity._unique_ids, count)


def call_instead_of_compiling(dispatcher: Dispatcher, function: Callable[..., Any]) -> None:
    """Make ``dispatcher`` call ``function`` where it has no code for the types of its arguments."""
    dispatcher._compile_for_args = function


def literal_type_callable(function: Callable[..., Any]) -> Callable[[Any], None]:
    """Register a rule like `numba.extending.type_callable`, which also reads values of literals."""

    def register(rule: Callable[[Any], Any]) -> None:
        parts = {
            "key": function,
            "generic": lambda self: rule(self.context),
            "prefer_literal": True,
        }
        template = type(f"{function.__name__}_template", (CallableTemplate,), parts)
        infer(template)
        infer_global(function, types.Function(template))

    return register


def optimize_without_unrolling(library: JITCodeLibrary, module: llvm.ModuleRef) -> None:
    """Run Numba's passes on the single functions of ``module``, but unroll no loops.

    The legacy passes of LLVM, in older releases of llvmlite, unroll none at this stage.
    """
    if not hasattr(llvm, "create_pass_builder"):
        JITCodeLibrary._optimize_functions(library, module)
        return
    codegen = library._codegen
    module.data_layout = codegen._data_layout
    for function in module.functions:
        options = llvm.create_pipeline_tuning_options(int(numba_config.OPT))
        options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
        builder = llvm.create_pass_builder(codegen._tm, options)
        passes = builder.getFunctionPassManager()
        if numba_config.LLVM_REFPRUNE_PASS:
            passes.add_refprune_pass(_parse_refprune_flags())
        passes.run(function, builder)


def operands_of(expression: numba_ir.Expr) -> Any:
    """The operands of an expression in Numba's IR: locals, constants, and tuples of them."""
    return expression._kws.values()


def struct_value(struct: Any) -> Any:
    """The LLVM value of a struct that code is writing."""
    return struct._getvalue()
