"""Loops written as plainer loops that mean the same: what derivatives and backends go through.

    a loop that stops        -> one over all steps that keeps its states once it has stopped
    truncate_gradient        -> the first steps, cut off from every derivative, then the last ones
    checkpoint               -> a loop over blocks of steps, each a loop of its own, and a remainder

Each is ``ScanArgs -> ScanOuts`` for one Scan. Reverse mode stores the states before every step of a
loop and computes the step again (`loopax.ir.derivatives.scan_pullback`). So the loop over blocks stores one
state a block and the loop inside one a step of one block: with blocks of ``sqrt(n)`` steps that is
``2 sqrt(n)`` states in the place of ``n``, for one more pass over the steps (Griewank and Walther,
Evaluating Derivatives, 2nd ed., chapter 12).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type_other import make_slice
from pytensor.typed_list import extend

from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.ops.bounds import is_unbounded, split_bound
from loopax.ir.ops.calling_convention import BodyArgs, BodyOuts, ScanArgs, ScanOuts
from loopax.ir.ops.cond import Cond
from loopax.ir.ops.rows import KeepRows
from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.ops.trace import TraceType, stacked
from loopax.ir.sequences import with_items
from loopax.ir.shapes import lengths, symbolic_shape

Expansion = Callable[[ScanArgs], ScanOuts]


def expanded(scan: ScanGrammar, args: ScanArgs) -> ScanOuts:
    """The outputs of ``scan`` by the plainer loops that mean the same.

    Blocks of steps are cut out of tensors: with rows that are lists each step is a block.
    """
    expand = expansion(scan, args.flat())
    if expand is None:
        scan = scan.with_options(checkpoint=1)
        return scan.split_outputs(scan.bind(args))
    return expand(args)


def expansion(scan: ScanGrammar, inputs: Sequence[Any]) -> Expansion | None:
    """How reverse mode sees ``scan`` of ``inputs``; None where it is a plain loop already.

    Raises
    ------
    NotImplementedError
        The loop stops when its body says so and has no bound.
    """
    if scan.stops:
        if is_unbounded(scan.split_inputs(inputs).n_steps):
            raise NotImplementedError(
                f"{scan} has no bound on its number of steps, so the states that reverse mode needs "
                "cannot be stored. Give it one, while_loop(cond, body, init, max_steps=1000), or use "
                "forward mode (pushforward, jax.jvp)."
            )
        return lambda args: masked(scan, args)
    if scan.options.truncate_gradient >= 0:
        return lambda args: truncated(scan, args)
    rows = [*scan.args.rows, *scan.outs.ys]
    if scan.options.checkpoint not in (None, 1) and all(map(_is_tensor, rows)):
        return lambda args: blocked(scan, args)
    return None


# -- loops that stop ---------------------------------------------------------------------------------


def masked(scan: ScanGrammar, args: ScanArgs) -> ScanOuts:
    """A stopping loop as one over all steps: once it has stopped, a step does nothing.

    The step is in a `Cond`, so that it does not run on states that it was never meant for.
    """
    body = scan.unfrozen()
    inner = scan.split_body_inputs(body.inputs)
    outs = scan.split_body_outputs(body.outputs)
    kept = [k for k, y in enumerate(outs.ys) if not isinstance(y.type, TraceType) and _is_tensor(y)]
    ys = [outs.ys[k] for k in kept]
    done, count, first = pt.scalar("done", dtype="bool"), pt.lscalar("count"), pt.lscalar("first")
    through = Cond.from_branches(
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
    last = scan.options.truncate_gradient
    if last >= 0:  # the first steps pass nothing back: what they read is cut off from derivatives
        taken = _without_derivative(scan, args).n_done
        consts, args = [*consts, first], args._replace(consts=[*args.consts, taken - last])
        cut = Cond.from_branches(body.inputs, [_cut_off(v) for v in body.inputs], body.inputs)
        operands = cut.bind(count < first, body.inputs)
    stepped: Any = through.bind(done, operands)
    n = scan.n_states
    loop = scan.from_body(
        BodyArgs(inner.i, inner.rows, [done, count, *inner.states], consts),
        BodyOuts([stepped[-1], count + pt.invert(done), *stepped[:n]], stepped[n:-1]),
        scan.options._replace(truncate_gradient=-1),
    )
    bound, go = (args.n_steps, None) if args.sequences else split_bound(args.n_steps)
    over = pt.constant(np.asarray(False)) if go is None else pt.invert(go)
    states = [over, pt.constant(0, dtype="int64"), *args.states]
    found = loop.split_outputs(loop.bind(args._replace(n_steps=bound, states=states)))
    stopped, n_done, *finals = found.finals
    if last >= 0:  # the same number, of which a backend knows how large it can be
        n_done = taken
    own = args._replace(consts=args.consts[: scan.n_consts])
    # With ``reverse`` the rows that were made are the last ones.
    made = [KeepRows(last=scan.options.reverse)(trace, n_done, n_done) for trace in found.traces]
    traces = with_items(_without_derivative(scan, own).traces, kept, made)
    return ScanOuts(finals, traces, n_done, stopped)


def _without_derivative(scan: ScanGrammar, args: ScanArgs) -> ScanOuts:
    """The loop, where only numbers of steps and what is no tensor are read of it."""
    plain = scan.with_options(truncate_gradient=-1, checkpoint=None)
    quiet = ScanArgs(args.n_steps, *([_cut_off(x) for x in group] for group in args[1:]))
    return plain.split_outputs(plain.bind(quiet))


def _zero_rows(body: Any, ys: Sequence[Any]) -> list[Any]:
    if not ys:
        return []
    shapes = infer_shape(ys, body.inputs, [symbolic_shape(v) for v in body.inputs])
    return [pt.zeros(shape, dtype=y.type.dtype) for y, shape in zip(ys, shapes, strict=True)]


# -- truncated gradients -----------------------------------------------------------------------------


def truncated(scan: ScanGrammar, args: ScanArgs) -> ScanOuts:
    """The loop in two, of which only the last ``truncate_gradient`` steps have a derivative."""
    return _joined(scan, *halves(scan, args))


def halves(scan: ScanGrammar, args: ScanArgs) -> tuple[ScanOuts, ScanOuts]:
    """The steps before the last ``truncate_gradient`` ones, cut off from every derivative, and these."""
    last = scan.options.truncate_gradient
    plain = scan.with_options(truncate_gradient=-1)
    n, known = args.n_steps, _known(args.n_steps)
    m = pt.minimum(n, last)
    backwards = scan.options.reverse
    split = m if backwards else n - m  # the row that parts the two
    early, late = (slice(split, None), slice(None, split))[:: 1 if backwards else -1]
    head = _part(plain, args, n - m, early, split if backwards else 0, cut_off=True)
    states = head.finals
    if known is None or known <= last:
        # Where no step is cut off, the first state is that of the loop and has a derivative.
        states = [
            pt.switch(n <= last, s, final) if is_float(s) else final
            for s, final in zip(args.states, head.finals, strict=True)
        ]
    return head, _part(plain, args._replace(states=states), m, late, 0 if backwards else split)


# -- blocks ------------------------------------------------------------------------------------------


def blocked(scan: ScanGrammar, args: ScanArgs) -> ScanOuts:
    """The loop as one over blocks of steps, in each of which the next level is; and what is left."""
    levels = scan.options.checkpoint
    every, *deeper = levels if isinstance(levels, tuple) else (levels,)
    inside_of_block = tuple(deeper) if len(deeper) > 1 else next(iter(deeper), None)
    plain = scan.with_options(checkpoint=inside_of_block)
    n, known = args.n_steps, _known(args.n_steps)
    size = _block_length(every, n)
    if known is not None and known < int(size.data):
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

    def blocks(states: Sequence[Any]) -> ScanOuts:
        given = ScanArgs(n_blocks, stacks, states, [*args.consts, size])
        found = outer.split_outputs(outer.bind(given))
        return found._replace(
            traces=[pt.reshape(t, (covered, *lengths(t)[2:])) for t in found.traces]
        )

    def rest(states: Sequence[Any]) -> ScanOuts:
        left = args._replace(states=states)
        return _part(plain, left, n - covered, slice(covered, None), covered)

    if known is not None and known % int(size.data) == 0:
        return blocks(args.states)
    first, second = (rest, blocks) if scan.options.reverse else (blocks, rest)
    head = first(args.states)
    return _joined(scan, head, second(head.finals))


def _block_length(every: Any, n: Any) -> Any:
    """How many steps lie between two states that are kept."""
    known = _known(n)
    if every != "sqrt":
        return pt.constant(every, dtype="int64")
    if known is None:
        return pt.maximum(pt.ceil(pt.sqrt(n.astype("float64"))).astype("int64"), 1)
    # A divisor is worth more than the root: what is left over takes a copy of every sequence, and a
    # second compilation of the step. This far from the root n / k + k is at most 1/4 larger.
    root = max(1, isqrt(known))
    divisors = (k for k in range(root, root // 2, -1) if known % k == 0)
    return pt.constant(next(divisors, root), dtype="int64")


def _known(n: Any) -> int | None:
    return int(n.data) if isinstance(n, Constant) else None


# -- parts of loops ----------------------------------------------------------------------------------


def _part(
    scan: ScanGrammar, args: ScanArgs, n: Any, rows: slice, offset: Any, cut_off: bool = False
) -> ScanOuts:
    """``n`` steps of a loop over some ``rows`` of its sequences, of which the first is row ``offset``.

    ``cut_off`` from every derivative with respect to what it reads.
    """
    body = scan.unfrozen()
    inner = scan.split_body_inputs(body.inputs)
    i, base = pt.lscalar("i"), pt.lscalar("base")
    outs = body.outputs
    if inner.i in set(ancestors(outs)):
        outs = clone_replace(outs, {inner.i: i + base}, rebuild_strict=False)
    loop = scan.from_body(
        BodyArgs(i, inner.rows, inner.states, [*inner.consts, base]),
        scan.split_body_outputs(outs),
        scan.options,
    )
    given = ScanArgs(n, [_cut(x, rows) for x in args.sequences], args.states, list(args.consts))
    if cut_off:
        given = ScanArgs(n, *([_cut_off(x) for x in group] for group in given[1:]))
    return loop.split_outputs(loop.bind(given._replace(consts=[*given.consts, offset])))


def _joined(scan: ScanGrammar, head: ScanOuts, tail: ScanOuts) -> ScanOuts:
    """Two parts as one loop: ``head`` ran first, so that with ``reverse`` its rows come last."""
    order = (tail, head) if scan.options.reverse else (head, tail)
    traces = [
        extend(a, b) if isinstance(a.type, TraceType) else pt.concatenate([a, b])
        for a, b in zip(order[0].traces, order[1].traces, strict=True)
    ]
    return ScanOuts(tail.finals, traces)


def _cut(x: Any, rows: slice) -> Any:
    if rows == slice(None):
        return x
    return x[make_slice(rows.start, rows.stop)] if isinstance(x.type, TraceType) else x[rows]


def _cut_off(x: Any) -> Any:
    return disconnected_grad(x) if is_float(x) else x


def _is_tensor(v: Any) -> bool:
    return hasattr(v.type, "ndim") and hasattr(v.type, "dtype")
