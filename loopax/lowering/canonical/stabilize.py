"""Pass 0: PyTensor's own canonicalize, stabilize and specialize, on a graph and on its bodies.

``log(sum(exp(x)))`` -> ``max(x) + log(sum(exp(x - max(x))))``, ``log(1 - exp(x))`` -> ``log1mexp(x)``,
and some hundreds more. PyTensor's users rely on them: without this pass ``log(sigmoid(-800))`` is
minus infinity where PyTensor gives -800. It runs before any derivative of loopax is taken, so that
the stable form is differentiated.

Left out are the rewrites that belong to another target (in-place, fusion, BLAS, C), those that lose
a check of shapes (tagged `shape_unsafe`; one is kept, see below), PyTensor's scan rewrites (there is
no legacy Scan here), the two that turn shapes into tuples for PyTensor's JAX mode (the JAX backend
knows the values of shapes), and the ones that are wrong. Where integers are operands, `make_casts_explicit`
goes before: the rewrites are right for one dtype only.

In the literature: canonicalization.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

from pytensor.compile.mode import optdb
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter, OpToRewriterTracker, Rewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.summary import Det, SLogDet

from loopax.lowering.bodies import map_bodies
from loopax.lowering.canonical.corrected_matrices import LEFT_OUT as OF_MATRICES
from loopax.lowering.canonical.corrected_rewrites import CORRECTED, REPLACED
from loopax.lowering.canonical.corrected_values import LEFT_OUT as OF_VALUES
from loopax.lowering.canonical.even_powers import EVEN_POWERS
from loopax.lowering.canonical.explicit_casts import make_casts_explicit
from loopax.lowering.canonical.joined_reads import count_from_start
from loopax.lowering.canonical.masked_sums import masked_sums
from loopax.lowering.canonical.matrix_properties import infer_sound_properties
from loopax.lowering.canonical.registered import registrations
from loopax.lowering.canonical.scaling_maxima import scaling_maxima
from loopax.lowering.canonical.shifted_exponents import REPLACED as SHIFTED_ONCE
from loopax.lowering.canonical.shifted_exponents import SHIFTED

IN_PYTENSOR = "loopax"  # the name of our entry in PyTensor's database (in_pytensor.py)
DERIVATIVES = "loopax_derivatives"  # our entry that takes derivatives
TWINS = "loopax_twins"  # our entry that merges loops again
KNOWN_SHAPES = "loopax_known_shapes"  # the entry of the JAX backend, only for PyTensor's JAX mode

_INCLUDED = ("fast_run", "jax", CORRECTED, SHIFTED, EVEN_POWERS)
_EXCLUDED = (
    IN_PYTENSOR,  # it runs this pass
    KNOWN_SHAPES,
    DERIVATIVES,
    TWINS,
    "inplace",
    "fusion",
    "BlasOpt",
    "cxx_only",
    "scan",
    "jax_shape_parameter_as_tuple",
    "jax_size_parameter_as_tuple",
    # Wrong for a mask of rows, which they lay along the last axis. JAX's rule for writes and `masked_sums`
    # replace what is right in them (still in PyTensor 3.3.7).
    "jax_boolean_indexing_set_or_inc",
    "jax_boolean_indexing_sum",
    # Replaces a slice of one element by the element at its start, which NumPy would clip:
    # ``v[5:0:-3].sum()`` of two elements by ``v[5]``, and ``v[:0:-1]`` by ``v[0]`` (still in PyTensor
    # 3.3.7).
    "local_dimshuffle_subtensor",
    # Rewrites Wald, geometric and other distributions into ones of PyTensor's JAX mode: without the check
    # of their parameters, and with a wrong derivative where a root is chosen at random.
    "jax_random_vars_rewrites",
    "introduce_lazy_ifelse",
    "add_mul_fusion",
    "scan_reduce_trace_no_prealloc",
    # It removes disconnected_grad and the like, which a derivative by JAX needs as well.
    "local_view_op",
    # Wrong on 3.0 where the other term is broadcast, or where indices repeat; fixed in 3.3:
    # ``a + set_subtensor(zeros_like(x)[1:3], v)`` with a scalar ``a`` lost the shape of ``x``.
    "local_add_of_sparse_write",
    # Build symbolic shapes of all intermediate values: half of this pass's time, and the backends know the
    # shapes anyway.
    "ShapeOpt",
    "UnShapeOpt",
    # They save work that XLA does not do in the first place, or also saves, and take more than half
    # of this pass's time on the gradient of a Kalman filter: 0.3 of 0.5 s.
    "local_subtensor_of_alloc",
    "local_subtensor_merge",
    "local_subtensor_merge_slice",
    "local_useless_slice",
    "local_useless_subtensor",
    "dot_diag_to_elemwise",
    "selection_dot_to_indexing",
    # These query PyTensor's assumptions for every transpose and dot: 15 of 140 ms, without a single hit.
    "useless_symmetric_transpose",
    "orthogonal_dot_transpose_to_eye",
    # Casts the index of ``x[1]`` to 8 bits, which saves C code but hides the constant 1 from later
    # rewrites.
    "local_uint_constant_indices",
    # Turns ``abs(x / y)`` into ``abs(x) / abs(y)``: a second division where ``x / y`` is used as well.
    "local_abs_lift",
    # Replaces ``unique(repeat(x, counts))`` by ``unique(x)``, also where an element is repeated 0 times,
    # and ``unique`` of equal elements by one of them, also where there is none.
    "local_Unique_lift",
    "local_Unique_Alloc_lift",
    "local_Unique_Repeat_lift",
    "local_Unique_second",
    # Drops an unused draw together with the update of its generator, so that the next draw starts from the
    # same state.
    "random_unsafe",
    *REPLACED,  # ours stand in their place
    *OF_MATRICES,
    *OF_VALUES,
    *SHIFTED_ONCE,
)


# Kept, though tagged `shape_unsafe`, because gradients are not stable without it: it lets the gradient of
# ``log(sum(exp(x)))`` be recognized as a softmax. The canonizers of `corrected_rewrites` are kept, too:
# they cancel ``sigmoid / sigmoid`` and ``1 - (1 - sigmoid)``. Each is NaN at 1000 or -800 otherwise. The
# price is that a term of the wrong length no longer raises if it cancels.
_KEPT = {"local_second_sink"}


def _shape_unsafe() -> set[str]:
    """The names of the rewrites tagged ``shape_unsafe``, in the database and the ones inside it."""
    databases = [
        optdb,
        *(optdb[name] for name in ("useless", "canonicalize", "stabilize", "specialize")),
    ]
    return {r.name for db in databases for r in db.__db__.get("shape_unsafe", ())} - _KEPT


# The inverse of a matrix of few rows is a few lines in both backends. An LU factorization, its permutations
# and two triangular systems for each right side take three times as long to compile in native code (the
# gradient of a Kalman filter with two observations: 8.4 s instead of 3.9) and twice as long to run; in JAX
# a Kalman step takes 1.5 times as long as a hand-written one.
_SMALL_MATRICES = (
    "loopax_inv_to_solve",
    "reuse_decomposition_multiple_solves",
    "reuse_decomposition_multiple_solves_jax",
)
_FEW = 3  # rows that the backends write out
_OF_MATRICES = (MatrixInverse, Solve, Det, SLogDet)


# In 3.0 ``log(det(x))`` of a batch of matrices fails with an assertion; 3.3 handles it elsewhere.
_OF_ONE_MATRIX = () if "slogdet_specialization" in optdb else ("slogdet_specialization",)


@lru_cache(maxsize=8)
def _rewriter(changes: int, *others: str) -> tuple[GraphRewriter, list[Any]]:
    """A rewriter and its `_trackers`, cached as long as nobody registers a rewrite.

    To assemble it takes as long as to rewrite a small graph.
    """
    excluded = [*_EXCLUDED, *_shape_unsafe(), *others]
    rewriter = optdb.query(RewriteDatabaseQuery(include=_INCLUDED, exclude=excluded))
    rewriter.data = [
        _tolerant(r) if getattr(r, "failure_callback", None) else r for r in rewriter.data
    ]
    return rewriter, list(_trackers(rewriter, set()))


def _tolerant(rewriter: GraphRewriter) -> GraphRewriter:
    """A copy of ``rewriter`` that reports a failed assertion as it does any other exception in a rewrite.

    PyTensor would stop, although the graph is as it was before that rewrite.
    """
    report = rewriter.failure_callback  # type: ignore[attr-defined]  # not all of them have one

    def report_and_go_on(error: Exception, *where: object) -> None:
        try:
            report(error, *where)
        except AssertionError:
            if config.on_opt_error == "raise":
                raise

    changed = copy(rewriter)
    changed.failure_callback = report_and_go_on  # type: ignore[attr-defined]
    return changed


def _trackers(part: object, seen: set[int]) -> Iterator[Any]:
    """The parts of ``part``, a rewriter or a list of rewriters, that remember every op they have met.

    They would keep the loops of a dropped program alive, with all that is in their steps.
    """
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, OpToRewriterTracker):
        yield part
    elif isinstance(part, list | tuple | Rewriter):
        for inner in part if isinstance(part, list | tuple) else vars(part).values():
            yield from _trackers(inner, seen)


# 3.0 writes the logarithm of a determinant as an op that has no derivative.
_NO_SLOPE = ("slogdet_specialization",)


def stabilize(graph: FunctionGraph) -> None:
    """Rewrite ``graph`` and every body in it, in place.

    An exception inside one of PyTensor's rewrites leaves the graph as it was before that rewrite;
    PyTensor reports it.
    """
    _rewrite(graph, *_of_small_matrices(graph, unknown=False))
    stabilize_bodies(graph)


def stabilize_bodies(graph: FunctionGraph) -> None:
    """Stabilize the bodies alone, assuming that matrices of unknown size are small."""
    map_bodies(graph, _stabilize_body, where=_is_any)


def _stabilize_body(body: FunctionGraph) -> None:
    _rewrite(body, *_of_small_matrices(body, unknown=True))
    stabilize_bodies(body)


def _of_small_matrices(graph: FunctionGraph, unknown: bool) -> Sequence[str]:
    """Rewrites to leave out where all matrices are small; ``unknown`` decides for unknown sizes."""
    return _SMALL_MATRICES if has_matrices_of_few_rows(graph, unknown) else ()


def has_matrices_of_few_rows(graph: FunctionGraph, unknown: bool = False) -> bool:
    """Whether ``graph`` has matrix operations, all of few rows; ``unknown`` decides for unknown sizes."""
    rows = [node.inputs[0].type.shape[-1] for node in graph.apply_nodes if is_matrix_op(node)]
    return bool(rows) and all(unknown if n is None else n <= _FEW for n in rows)


def is_matrix_op(node: Apply) -> bool:
    """Whether a node is an operation that the backends write out for matrices of few rows."""
    return isinstance(getattr(node.op, "core_op", node.op), _OF_MATRICES)


def stabilize_function(body: FunctionGraph) -> None:
    """Stabilize a function, its bodies included, in place, before it is differentiated.

    It omits `specialize`, whose scalar composites have no derivative, and which aims at speed.
    """
    _rewrite(body, "specialize", *_NO_SLOPE, *_of_small_matrices(body, unknown=True))
    map_bodies(body, stabilize_function, where=_is_any)


def stabilize_for_loops(graph: FunctionGraph) -> None:
    """Stabilize for a backend that writes its own loops: small matrix operations in bodies stay."""
    _rewrite(graph)
    map_bodies(graph, _stabilize_step, where=_is_any)


def _stabilize_step(body: FunctionGraph) -> None:
    _rewrite(body, *_SMALL_MATRICES)
    map_bodies(body, _stabilize_step, where=_is_any)


def _is_any(body: AbstractFunctionGraph) -> bool:
    return bool(body.apply_nodes)


def _rewrite(graph: FunctionGraph, *without: str) -> None:
    make_casts_explicit(graph)
    count_from_start(graph)
    # Do not fold loops of constants: they may run for long, and need a compiler, which the backend has.
    graph.keeps_loops = True  # type: ignore[attr-defined]  # asked by InnerGraphOp.do_constant_folding
    if _OF_ONE_MATRIX and any(
        isinstance(getattr(node.op, "core_op", None), Det) and node.inputs[0].type.ndim > 2
        for node in graph.apply_nodes
    ):
        without = (*without, *_OF_ONE_MATRIX)
    # Rewrites copy the user's line numbers; recording their own would cost 20 %.
    with config.change_flags(traceback__limit=0):
        infer_sound_properties(graph)
        rewriter, trackers = _rewriter(registrations(), *without)
        rewriter.rewrite(graph)
        for tracker in trackers:
            tracker.get_trackers.cache_clear()
        masked_sums(graph)
        scaling_maxima(graph)
