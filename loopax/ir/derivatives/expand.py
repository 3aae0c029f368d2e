"""Loops rewritten as equal, plainer loops, for derivatives and backends.

    a loop that stops        -> one over all steps that keeps its states once it has stopped
    truncate_gradient        -> the first steps, cut off from every derivative, then the last ones
    checkpoint               -> a loop over blocks of steps, each a loop of its own, and a remainder

Each rewrite is a function ``ScanArgs -> ScanOuts`` for one Scan. Reverse mode stores the states
before every step of a loop and computes the step again (`loopax.ir.derivatives.scan_pullback`). So
the loop over blocks stores one state for each block, and the inner loop one for each step of one
block: with blocks of ``sqrt(n)`` steps that is ``2 sqrt(n)`` states instead of ``n``, for one more
pass over the steps (Griewank and Walther, Evaluating Derivatives, 2nd ed., chapter 12).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt
from typing import Any, Literal

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type_other import make_slice
from pytensor.tensor.variable import TensorVariable
from pytensor.typed_list import extend

from loopax.base.errors import UnsupportedOpError
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.ops.bounds import is_unbounded, known_number, no_bound, split_bound
from loopax.ir.ops.calling_convention import BodyArgs, BodyOuts, ScanArgs, ScanOuts
from loopax.ir.ops.cond import Cond
from loopax.ir.ops.rows import KeepRows
from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.ops.trace import TraceType, stacked
from loopax.ir.replace import replaced
from loopax.ir.sequences import with_items
from loopax.ir.shapes import lengths, symbolic_shape

Expansion = Callable[[ScanArgs], ScanOuts]


def expanded(scan: ScanGrammar, args: ScanArgs) -> ScanOuts:
    """The outputs of ``scan`` by equal, plainer loops.

    Blocks of steps are slices of tensors: where rows are lists, each step is a block.
    """
    expand = expansion(scan, args.flat())
    if expand is None:
        scan = scan.with_options(checkpoint=1)
        return scan.split_outputs(scan.bind(args))
    return expand(args)


def expansion(scan: ScanGrammar, inputs: Sequence[Variable]) -> Expansion | None:
    """The rewrite of ``scan`` for reverse mode; None where it is a plain loop already.

    Raises `UnsupportedOpError` if the loop stops at a flag of its body and has no bound.
    """
    if scan.stops:
        if is_unbounded(scan.split_inputs(inputs).n_steps):
            raise UnsupportedOpError(no_bound(scan))
        return lambda args: masked(scan, args)
    if scan.options.truncate_gradient >= 0:
        return lambda args: truncated(scan, args)
    rows = [*scan.args.rows, *scan.outs.ys]
    if scan.options.checkpoint not in (None, 1) and all(map(_is_tensor, rows)):
        return lambda args: blocked(scan, args)
    return None


# -- loops that stop ---------------------------------------------------------------------------------


def masked(scan: ScanGrammar, args: ScanArgs) -> ScanOuts:
    """A stopping loop as a loop over all steps, which do nothing once it has stopped.

    The step is in a `Cond`, so that it does not run on states after the end, for which it may fail.
    """
    body = scan.unfrozen()
    inner = scan.split_body_inputs(body.inputs)
    outs = scan.split_body_outputs(body.outputs)
    tensor_ys = [
        k for k, y in enumerate(outs.ys) if not isinstance(y.type, TraceType) and _is_tensor(y)
    ]
    ys = [outs.ys[k] for k in tensor_ys]
    is_done, count, first_live = (
        pt.scalar("done", dtype="bool"),
        pt.lscalar("count"),
        pt.lscalar("first"),
    )
    guarded_step = Cond.from_branches(
        body.inputs,
        [
            *inner.states,
            *(y.type.filter_variable(z) for y, z in zip(ys, _zero_rows(body, ys), strict=True)),
            pt.constant(np.asarray(True)),
        ],
        [*outs.states, *ys, outs.stop],
        name="stopped",
    )
    operands, consts = body.inputs, list(inner.consts)
    n_last = scan.options.truncate_gradient
    if n_last >= 0:  # the first steps pass no cotangents back
        n_taken = _without_derivative(scan, args).n_done
        consts, args = [*consts, first_live], args._replace(consts=[*args.consts, n_taken - n_last])
        cut = Cond.from_branches(body.inputs, [_cut_off(v) for v in body.inputs], body.inputs)
        operands = cut.bind(count < first_live, body.inputs)
    stepped: Any = guarded_step.bind(is_done, operands)
    n = scan.n_states
    loop = scan.from_body(
        BodyArgs(inner.i, inner.rows, [is_done, count, *inner.states], consts),
        BodyOuts([stepped[-1], count + pt.invert(is_done), *stepped[:n]], stepped[n:-1]),
        scan.options._replace(truncate_gradient=-1),
    )
    bound, go = (args.n_steps, None) if args.sequences else split_bound(args.n_steps)
    over = pt.constant(np.asarray(False)) if go is None else pt.invert(go)
    states = [over, pt.constant(0, dtype="int64"), *args.states]
    results = loop.split_outputs(loop.bind(args._replace(n_steps=bound, states=states)))
    stopped, n_done, *finals = results.finals
    if n_last >= 0:  # an equal number, whose bound a backend knows
        n_done = n_taken
    own_args = args._replace(consts=args.consts[: scan.n_consts])
    # With ``reverse`` the computed rows are the last ones.
    rows = [KeepRows(last=scan.options.reverse)(trace, n_done, n_done) for trace in results.traces]
    traces = with_items(_without_derivative(scan, own_args).traces, tensor_ys, rows)
    return ScanOuts(finals, traces, n_done, stopped)


def _without_derivative(scan: ScanGrammar, args: ScanArgs) -> ScanOuts:
    """The loop without derivatives, for numbers of steps and traces that are not tensors."""
    plain = scan.with_options(truncate_gradient=-1, checkpoint=None)
    quiet = ScanArgs(args.n_steps, *([_cut_off(x) for x in group] for group in args[1:]))
    return plain.split_outputs(plain.bind(quiet))


def _zero_rows(body: FunctionGraph, ys: Sequence[Variable]) -> list[Any]:
    if not ys:
        return []
    shapes = infer_shape(ys, body.inputs, [symbolic_shape(v) for v in body.inputs])
    return [pt.zeros(shape, dtype=y.type.dtype) for y, shape in zip(ys, shapes, strict=True)]


# -- truncated gradients -----------------------------------------------------------------------------


def truncated(scan: ScanGrammar, args: ScanArgs) -> ScanOuts:
    """The loop in two parts, of which only the last ``truncate_gradient`` steps have a derivative."""
    n = known_number(args.n_steps)
    if n is not None and n <= scan.options.truncate_gradient:
        return expanded(scan.with_options(truncate_gradient=-1), args)
    return _joined(scan, *halves(scan, args))


def halves(scan: ScanGrammar, args: ScanArgs) -> tuple[ScanOuts, ScanOuts]:
    """The steps without derivatives, and the last ``truncate_gradient`` steps, which have them."""
    n_last = scan.options.truncate_gradient
    plain = scan.with_options(truncate_gradient=-1)
    n, static_n = args.n_steps, known_number(args.n_steps)
    m = pt.minimum(n, n_last)
    backwards = scan.options.reverse
    split = m if backwards else n - m  # the row at which the second part begins
    early, late = (slice(split, None), slice(None, split))[:: 1 if backwards else -1]
    head = _part(plain, args, n - m, early, split if backwards else 0, cut_off=True)
    states = head.finals
    if static_n is None or static_n <= n_last:
        # Where no step is cut off, the first state is the loop's and has a derivative.
        states = [
            pt.switch(n <= n_last, s, final) if is_float(s) else final
            for s, final in zip(args.states, head.finals, strict=True)
        ]
    return head, _part(plain, args._replace(states=states), m, late, 0 if backwards else split)


# -- blocks ------------------------------------------------------------------------------------------


def blocked(scan: ScanGrammar, args: ScanArgs) -> ScanOuts:
    """The loop as a loop over blocks of steps, which contain the next level, and a remainder."""
    levels = scan.options.checkpoint
    block_steps, *deeper = levels if isinstance(levels, tuple) else (levels,)
    inside_of_block = tuple(deeper) if len(deeper) > 1 else next(iter(deeper), None)
    plain = scan.with_options(checkpoint=inside_of_block)
    n, static_n = args.n_steps, known_number(args.n_steps)
    size = _block_length(block_steps, n)
    if static_n is not None and static_n < int(size.data):
        return plain.split_outputs(plain.bind(args))
    n_blocks = n // size
    covered = n_blocks * size

    block, length = pt.lscalar("block"), pt.lscalar("length")
    rows = [stacked(r.type)() for r in scan.args.rows]
    states = [s.type() for s in scan.args.states]
    consts = [c.type() for c in scan.args.consts]
    inside = _part(
        plain, ScanArgs(length, rows, states, consts), length, slice(None), block * length
    )
    outer = scan.from_body(
        BodyArgs(block, rows, states, [*consts, length]),
        BodyOuts(inside.finals, inside.traces),
        scan.options._replace(checkpoint=1, unroll=1),
    )
    stacks = [pt.reshape(x[:covered], (n_blocks, size, *lengths(x)[1:])) for x in args.sequences]

    def blocks(states: Sequence[Variable]) -> ScanOuts:
        block_args = ScanArgs(n_blocks, stacks, states, [*args.consts, size])
        results = outer.split_outputs(outer.bind(block_args))
        return results._replace(
            traces=[pt.reshape(t, (covered, *lengths(t)[2:])) for t in results.traces]
        )

    def remainder(states: Sequence[Variable]) -> ScanOuts:
        remaining_args = args._replace(states=states)
        return _part(plain, remaining_args, n - covered, slice(covered, None), covered)

    if static_n is not None and static_n % int(size.data) == 0:
        return blocks(args.states)
    first_part, second_part = (remainder, blocks) if scan.options.reverse else (blocks, remainder)
    head = first_part(args.states)
    return _joined(scan, head, second_part(head.finals))


def _block_length(block_steps: int | Literal["sqrt"] | None, n: TensorVariable) -> Any:
    """The number of steps between two checkpoints."""
    static_n = known_number(n)
    if block_steps != "sqrt":
        return pt.constant(block_steps, dtype="int64")
    if static_n is None:
        return pt.maximum(pt.ceil(pt.sqrt(n.astype("float64"))).astype("int64"), 1)
    # A divisor is better than the root: a remainder takes a copy of every sequence, and a second
    # compilation of the step. In this range n / k + k is at most 1/4 larger than at the root.
    root = max(1, isqrt(static_n))
    divisors = (k for k in range(root, root // 2, -1) if static_n % k == 0)
    return pt.constant(next(divisors, root), dtype="int64")


# -- parts of loops ----------------------------------------------------------------------------------


def _part(
    scan: ScanGrammar,
    args: ScanArgs,
    n: Variable,
    rows: slice,
    offset: Variable | int,
    cut_off: bool = False,
) -> ScanOuts:
    """``n`` steps of a loop over ``rows`` of its sequences, from row ``offset`` on.

    With ``cut_off`` its inputs are cut off from every derivative.
    """
    body = scan.unfrozen()
    inner = scan.split_body_inputs(body.inputs)
    i, base = pt.lscalar("i"), pt.lscalar("base")
    loop = scan.from_body(
        BodyArgs(i, inner.rows, inner.states, [*inner.consts, base]),
        scan.split_body_outputs(replaced(body.outputs, {inner.i: i + base})),
        scan.options,
    )
    part_args = ScanArgs(n, [_cut(x, rows) for x in args.sequences], args.states, list(args.consts))
    if cut_off:
        part_args = ScanArgs(n, *([_cut_off(x) for x in group] for group in part_args[1:]))
    return loop.split_outputs(loop.bind(part_args._replace(consts=[*part_args.consts, offset])))


def _joined(scan: ScanGrammar, head: ScanOuts, tail: ScanOuts) -> ScanOuts:
    """The outputs of two parts as one loop's; with ``reverse`` the rows of ``head`` come last."""
    order = (tail, head) if scan.options.reverse else (head, tail)
    traces = [
        extend(a, b) if isinstance(a.type, TraceType) else pt.concatenate([a, b])
        for a, b in zip(order[0].traces, order[1].traces, strict=True)
    ]
    return ScanOuts(tail.finals, traces)


def _cut(x: TensorVariable, rows: slice) -> Any:
    if rows == slice(None):
        return x
    return x[make_slice(rows.start, rows.stop)] if isinstance(x.type, TraceType) else x[rows]


def _cut_off(x: Variable) -> Any:
    return disconnected_grad(x) if is_float(x) else x


def _is_tensor(v: Variable) -> bool:
    return hasattr(v.type, "ndim") and hasattr(v.type, "dtype")
