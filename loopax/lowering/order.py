"""The passes, in order. `lower` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Variable, clone
from pytensor.graph.fg import FunctionGraph, Output

from loopax.base.extensions import required
from loopax.base.gc_pause import gc_paused
from loopax.base.status_line import waiting
from loopax.ir.program import GraphParts, Program
from loopax.ir.sizes import without_dims
from loopax.lowering.canonical.align_sums import align_sums
from loopax.lowering.canonical.conditional_gradients import conditional_gradients
from loopax.lowering.canonical.drop_truncation import drop_truncation
from loopax.lowering.canonical.if_else_to_cond import if_else_to_cond
from loopax.lowering.canonical.promote_sequences import promote_sequences
from loopax.lowering.canonical.recognise_counters import recognise_counters
from loopax.lowering.canonical.recognise_reverse import recognise_reverse
from loopax.lowering.canonical.simplify_gradients import simplify_gradients
from loopax.lowering.canonical.sink_readers import sink_readers
from loopax.lowering.canonical.stabilize import stabilize, stabilize_for_loops
from loopax.lowering.canonical_form import copied_into, is_common
from loopax.lowering.derivatives.take_derivatives import take_derivatives
from loopax.lowering.fission.factor_exponentials import factor_exponentials
from loopax.lowering.fission.functions_out import functions_out
from loopax.lowering.fission.push_out import push_maps_out, push_out
from loopax.lowering.fission.split_loops import split_loops
from loopax.lowering.fission.sums_out import sums_out
from loopax.lowering.fusion.fuse_loops import fuse_loops
from loopax.lowering.log_domain.leave_log_domain import leave_log_domain
from loopax.lowering.redundancy.add_entries import add_entries
from loopax.lowering.redundancy.divide_early import divide_early
from loopax.lowering.redundancy.fold_constants import fold_constants
from loopax.lowering.redundancy.fold_tests import fold_tests
from loopax.lowering.redundancy.fold_zeros import fold_zeros
from loopax.lowering.redundancy.hoist_invariants import hoist_invariants
from loopax.lowering.redundancy.inline_invariants import inline_invariants
from loopax.lowering.redundancy.merge_equal import merge_equal
from loopax.lowering.redundancy.merge_inputs import merge_inputs
from loopax.lowering.redundancy.merge_loops import merge_loops
from loopax.lowering.redundancy.nest_terms import nest_terms
from loopax.lowering.redundancy.remove_unused import remove_unused
from loopax.lowering.redundancy.share_frames import share_frames
from loopax.lowering.redundancy.share_traces import share_traces
from loopax.lowering.redundancy.simplify_moves import simplify_moves
from loopax.lowering.redundancy.unmask import unmask
from loopax.lowering.rewritten import rewritten
from loopax.lowering.scan_to_loop import scan_to_loop
from loopax.lowering.storage.read_early import read_early
from loopax.lowering.storage.read_last import read_last
from loopax.lowering.storage.read_rows import read_rows
from loopax.lowering.storage.state_traces import state_traces
from loopax.lowering.storage.sum_in_loops import sum_in_loops

# A comment says why a pass has its position. A pass may occur more than once.
_ALL: tuple[Callable[[FunctionGraph], None], ...] = (
    take_derivatives,  # first: the others look for loops and for the loops of derivatives
    merge_loops,  # equal loops are easiest to see in the graph as it was built
    unmask,  # after merge_loops: one masked loop then serves all backward loops
    merge_loops,  # a loop without its mask may equal the loop of the value
    remove_unused,  # after merge_loops: operations that only one of the merged loops needed
    simplify_gradients,  # before passes that read sequences, which are slices of sums of slices here
    fold_zeros,  # after simplify_gradients, which exposes fills of zeros
    drop_truncation,  # before the passes that skip truncated loops; needs lengths in their plain form
    recognise_reverse,  # needs slices in their plain form
    inline_invariants,  # after fold_zeros: without its zero terms a state may be unchanged
    merge_inputs,  # after inline_invariants, which makes a uniform sequence a constant
    state_traces,  # after simplify_gradients: needs slices and joins in their plain form
    align_sums,  # after recognise_reverse: buffers are read in the order of their rows
    stabilize,  # PyTensor's rewrites, on a smaller graph by now, and before any pass that splits a step
    simplify_moves,  # after stabilize, which moves indexing through elementwise operations
    recognise_counters,  # after recognise_reverse, which needs the sequences
    fold_tests,  # after recognise_counters: the range of the index is known
    share_traces,  # after fold_tests, which makes rows equal; before loops that read traces are fused
    share_frames,  # before add_entries, which would add up windows of one array
    add_entries,  # after simplify_moves: no moves are left between a sum and its terms
    inline_invariants,  # again: stabilize has turned fills into values that no step changes
    sink_readers,  # after stabilize, which reduces the number of readers
    conditional_gradients,  # after stabilize: needs cotangents in their plain form
    if_else_to_cond,  # after stabilize, whose rewrites do not see past the inputs of a branch
    promote_sequences,  # after stabilize, which gives indices one form
    read_early,  # before read_last, which only sees the trace
    read_last,
    read_rows,
    sum_in_loops,  # after read_last: a trace of which only the last row is read is gone
    fuse_loops,  # before push_out: rows that connect two loops stay inside the fused loop
    merge_loops,  # inner loops that both of the fused bodies had
    remove_unused,  # outputs that the parts of a fused loop had for each other
    merge_inputs,  # states that both parts carried
    merge_equal,  # operations that both parts did, on one state by now
    leave_log_domain,  # after read_last: a trace that nothing reads would keep its logarithms
    factor_exponentials,  # before hoist_invariants: the constant factors leave the loop
    hoist_invariants,
    sums_out,  # after fuse_loops, since a sum may be read in the fused loop; split_loops moves its terms
    split_loops,  # after fuse_loops, which would undo it
    push_out,  # last of the passes that move work out of loops: fewer rows are left to examine
    functions_out,  # for native loops: moves elementary functions alone
    merge_equal,  # operations moved out of two loops may be equal
    remove_unused,
    fold_constants,  # after the passes that recognize how a constant is built, such as fills
    divide_early,  # after stabilize, which combines quotients
    nest_terms,  # last: the other passes recognize sums and products in their flat form
)

# In native loops, an operation on one row inside costs less than one on all rows outside.
_FOR_ARRAYS = (sums_out, split_loops, push_out)
_FOR_LOOPS = (
    unmask,
    share_traces,
    share_frames,
    sum_in_loops,
    leave_log_domain,
    factor_exponentials,
    functions_out,
    divide_early,
    nest_terms,
)

PASSES = tuple(run for run in _ALL if run not in _FOR_LOOPS)

# For arrays so large that a CPU would spend most of its time on storing and reading rows.
PASSES_FOR_LARGE_ROWS = tuple(push_maps_out if run is push_out else run for run in PASSES)

NATIVE_PASSES = (
    *(stabilize_for_loops if run is stabilize else run for run in _ALL if run not in _FOR_ARRAYS),
    scan_to_loop,  # last: a buffer carries less information than a trace
)

# The passes that look for patterns in a whole graph, such as ``log(1 + exp(x))``. Passes that divide a
# graph come later.
CANONICAL_PASSES = NATIVE_PASSES[: NATIVE_PASSES.index(stabilize_for_loops) + 1]

# The values of ``jaxify(..., optimize=)``, the default first.
OPTIMIZERS = "none", "egraph"


def passes_with(
    optimize: str, passes: tuple[Callable[[FunctionGraph], None], ...]
) -> tuple[Callable[[FunctionGraph], None], ...]:
    """Insert the requested optimizer into ``passes``, at its place.

    Raises `ImportError` if it needs an extension or a package that is missing.
    """
    if optimize == "none":
        return passes
    extension = required("egraph", "optimize='egraph'", "optimize='none', the default")
    k = passes.index(fold_constants)  # after the passes on loops; its results are folded
    return (*passes[:k], extension.part("optimizer")(), *passes[k:])


def after_canonical(
    passes: tuple[Callable[[FunctionGraph], None], ...],
) -> tuple[Callable[[FunctionGraph], None], ...]:
    """The remaining ``passes`` for a part of a graph to which `CANONICAL_PASSES` have been applied."""
    return passes[
        1 + max(k for k, p in enumerate(passes) if p in (stabilize, stabilize_for_loops)) :
    ]


def lower(graph: FunctionGraph) -> None:
    """Run every pass on ``graph``, in place, for a backend with structured loops."""
    run_passes(graph, PASSES)


def lower_to_loops(graph: FunctionGraph) -> None:
    """Run every pass on ``graph``, in place, for a backend that writes its own loops."""
    run_passes(graph, NATIVE_PASSES)


def lower_program(
    program: Program, passes: Iterable[Callable[[FunctionGraph], None]], keeps_form: bool
) -> None:
    """Run ``passes`` on a program, in place; ``keeps_form``: it also gets its ``canonical`` form."""

    def keep(graph: FunctionGraph) -> None:
        program.canonical = clone(graph.inputs, graph.outputs)

    run_passes(program.graph, passes, keep=keep if keeps_form else None)


def run_passes(
    graph: FunctionGraph,
    passes: Iterable[Callable[[FunctionGraph], None]],
    canonical: GraphParts | None = None,
    keep: Callable[[FunctionGraph], None] | None = None,
) -> None:
    """Run ``passes`` on ``graph``, in place, or read the result for an equal graph from disk.

    Parameters
    ----------
    canonical
        The inputs and outputs of an equal graph after `CANONICAL_PASSES`, to start from.
    keep
        It is called with the graph after these passes, if they are the first of both forms.
    """
    passes = tuple(passes)

    def run_all() -> list[Variable]:
        if canonical is not None:
            _replace_outputs(graph, copied_into(graph, canonical))
        _run(graph, passes if canonical is None else after_canonical(passes), keep)
        return list(graph.outputs)

    _replace_outputs(graph, rewritten(graph.inputs, graph.outputs, run_all, "passes", passes))


def _replace_outputs(graph: FunctionGraph, outputs: Sequence[Variable]) -> None:
    for k, (old, new) in enumerate(zip(list(graph.outputs), outputs, strict=True)):
        if new is not old:
            graph.change_node_input(_end(graph, k), 0, new, reason="passes", import_missing=True)


def _end(graph: FunctionGraph, k: int) -> Apply:
    """The client node that stands for output ``k``."""
    ends = (node for node, _ in graph.clients[graph.outputs[k]] if isinstance(node.op, Output))
    return next(node for node in ends if node.op.idx == k)


def _run(
    graph: FunctionGraph,
    passes: tuple[Callable[[FunctionGraph], None], ...],
    keep: Callable[[FunctionGraph], None] | None = None,
) -> None:
    if keep is not None and not is_common(graph):
        keep = None
    # Only the user's nodes need source lines: to look them up for every new node costs 10 %.
    with config.change_flags(traceback__limit=0), gc_paused(), waiting("passes") as say:
        for run in passes:
            say(run.__name__)
            run(graph)
            if keep is not None and run is stabilize:
                keep(graph)
    without_dims(graph)
