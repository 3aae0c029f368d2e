"""The passes, in order. `lower` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph, Output

from loopax.base.extensions import required
from loopax.base.gc_pause import gc_paused
from loopax.base.status_line import waiting
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
from loopax.lowering.derivatives.take_derivatives import take_derivatives
from loopax.lowering.fission.functions_out import functions_out
from loopax.lowering.fission.push_out import push_out
from loopax.lowering.fission.split_loops import split_loops
from loopax.lowering.fission.sums_out import sums_out
from loopax.lowering.fusion.fuse_loops import fuse_loops
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

# Each name stands where what is said of it and its neighbour holds. A pass may stand more than once.
_ALL: tuple[Callable[[FunctionGraph], None], ...] = (
    take_derivatives,  # before all others, which look for loops and their derivatives
    merge_loops,  # first of these: the graph as it was built shows equal loops best
    unmask,  # after merge_loops: one loop with a mask, for all loops back
    merge_loops,  # what has no mask any more is the loop of the value
    remove_unused,  # after equal loops are one: what only one of them needed
    simplify_gradients,  # before what reads sequences: they are slices of sums of slices
    fold_zeros,  # after the fills of zeros show
    drop_truncation,  # before all that leave a truncated loop alone, after lengths have their plain form
    recognise_reverse,  # after the slices have their plain form
    inline_invariants,  # after zero terms are gone: what is left of a state may be the state
    merge_inputs,  # after inlining: a uniform sequence is a constant by now
    state_traces,  # after simplify_gradients: the slices and joins have their plain form
    align_sums,  # after recognise_reverse: a buffer is read in the order of its rows
    stabilize,  # PyTensor's rewrites, on less than there was; whatever takes a step apart comes later
    simplify_moves,  # after stabilize, whose rewrites lift moves through what is elementwise
    recognise_counters,  # after recognise_reverse, which looks at sequences
    fold_tests,  # after recognise_counters: the index lies in a known range
    share_traces,  # after fold_tests, which leaves rows equal; before loops that read traces are fused
    share_frames,  # before add_entries, which would add up the arrays that are windows of one
    add_entries,  # after simplify_moves, which may stand between a sum and its terms
    inline_invariants,  # after stabilize: what it has made of fills is the same at every step by now
    sink_readers,  # after stabilize: as few readers as there are
    conditional_gradients,  # after stabilize: cotangents have their plain form
    if_else_to_cond,  # after the rewrites of stabilize, which do not look from a branch outwards
    promote_sequences,  # after stabilize, which writes an index in one way
    read_early,  # before read_last, which looks at the trace alone
    read_last,
    read_rows,
    sum_in_loops,  # after read_last: the last row of a trace is none that is added up
    fuse_loops,  # before push_out: rows that connect two loops stay in the one that they become
    merge_loops,  # what two of them had in their bodies both: the loop of a step, and its twin
    remove_unused,  # what the parts of fused loops emitted for one another
    merge_inputs,  # states that two of them carried both
    merge_equal,  # what two of them computed both, from one state by now
    hoist_invariants,
    sums_out,  # after fuse_loops, which may find that a sum is read in the loop; its terms leave next
    split_loops,  # after fuse_loops, which would have to take back what has left
    push_out,  # last of those that take something out: the rows that it looks at are fewer by now
    functions_out,  # the same for loops that are written: functions alone
    merge_equal,  # what has left two loops may be the same
    remove_unused,
    fold_constants,  # after all that looks at how a constant is made: a fill, zeros but for some rows
    divide_early,  # after stabilize, which makes one quotient of several
    nest_terms,  # last: sums and products are in their flat form until here, in which others recognise them
)

# A backend that writes its own loops has an operation on a row cheaper inside than on all rows outside.
_FOR_ARRAYS = (sums_out, split_loops, push_out)
_FOR_LOOPS = (
    unmask,
    share_traces,
    share_frames,
    sum_in_loops,
    functions_out,
    divide_early,
    nest_terms,
)

PASSES = tuple(run for run in _ALL if run not in _FOR_LOOPS)

NATIVE_PASSES = (
    *(stabilize_for_loops if run is stabilize else run for run in _ALL if run not in _FOR_ARRAYS),
    scan_to_loop,  # last: a buffer says less than a trace
)

# Those that look for a form of the whole, such as ``log(1 + exp(x))``. What divides a graph comes after
# them.
CANONICAL_PASSES = NATIVE_PASSES[: NATIVE_PASSES.index(stabilize_for_loops) + 1]

# What ``jaxify(..., optimize=)`` may be, the default first.
OPTIMIZERS = "none", "egraph"


def passes_with(
    optimize: str, passes: tuple[Callable[[FunctionGraph], None], ...]
) -> tuple[Callable[[FunctionGraph], None], ...]:
    """``passes`` with the optimizer that is asked for, in its place.

    Raises `ImportError` if it needs an extension or a package that is missing.
    """
    if optimize == "none":
        return passes
    extension = required("egraph", "optimize='egraph'", "optimize='none', the default")
    k = passes.index(fold_constants)  # what looks for loops comes before, what it leaves is folded
    return (*passes[:k], extension.part("optimizer")(), *passes[k:])


def after_canonical(
    passes: tuple[Callable[[FunctionGraph], None], ...],
) -> tuple[Callable[[FunctionGraph], None], ...]:
    """The remaining ``passes`` for a part of a graph that has been through `CANONICAL_PASSES`."""
    return passes[
        1 + max(k for k, p in enumerate(passes) if p in (stabilize, stabilize_for_loops)) :
    ]


def lower(graph: FunctionGraph) -> None:
    """Run every pass on ``graph``, in place, as a backend with structured loops wants it."""
    run_passes(graph, PASSES)


def lower_to_loops(graph: FunctionGraph) -> None:
    """Run every pass on ``graph``, in place, as a backend that writes its own loops wants it."""
    run_passes(graph, NATIVE_PASSES)


def run_passes(graph: FunctionGraph, passes: Iterable[Callable[[FunctionGraph], None]]) -> None:
    """Run ``passes`` on ``graph``, in place; what they have left of an equal one may be on disk."""
    passes = tuple(passes)

    def run_all() -> list[Variable]:
        _run(graph, passes)
        return list(graph.outputs)

    lowered = rewritten(graph.inputs, graph.outputs, run_all, "passes", passes)
    for k, (old, new) in enumerate(zip(list(graph.outputs), lowered, strict=True)):
        if new is not old:  # it was on disk
            graph.change_node_input(_end(graph, k), 0, new, reason="passes", import_missing=True)


def _end(graph: FunctionGraph, k: int) -> Apply:
    """The node that stands for output ``k``, among those that read it."""
    ends = (node for node, _ in graph.clients[graph.outputs[k]] if isinstance(node.op, Output))
    return next(node for node in ends if node.op.idx == k)


def _run(graph: FunctionGraph, passes: tuple[Callable[[FunctionGraph], None], ...]) -> None:
    # The user's lines are on the user's nodes. To look for lines at every node of loopax takes a tenth.
    with config.change_flags(traceback__limit=0), gc_paused(), waiting("passes") as say:
        for run in passes:
            say(run.__name__)
            run(graph)
    without_dims(graph)
