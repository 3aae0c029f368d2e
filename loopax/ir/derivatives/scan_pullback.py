"""The pullback of `Scan`: a loop over the same steps in the other direction.

For a step ``(s', y) = f(i, x, s, c)`` and cotangents ``l`` of the state behind it and ``dy`` of its
row, the backward loop computes the step again from the state before it, and from it

    (dx, l, dc) = pullback of f at (x, s, c), of (l, dy)

with ``l`` as its state, ``dx`` as its trace and ``dc`` added up. What it needs of the forward loop
are the states before each step, nothing else: a trace that the loop has anyway, and that of a twin loop
otherwise. (Rows of next states are not taken for it, though they are the same but for one: two traces a
row apart would keep `fuse_loops` from making one loop of those that read them.) States that no
cotangent can reach have none; constants, rows and states that the backward step does not read are not
given to it.

A loop that stops, one with ``checkpoint`` and one with ``truncate_gradient`` are first written as the
plain loops that mean the same (`loopax.ir.derivatives.expand`), and the pullback goes through those.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors

from loopax.ir.derivatives.expand import expansion
from loopax.ir.derivatives.inner_gradients import (
    connections,
    finished,
    is_connected,
    is_float,
    is_list_of_floats,
    is_null,
    spread,
    through,
    unknown_through_list,
    zeros_for,
)
from loopax.ir.derivatives.traversal import pull_back
from loopax.ir.ops.calling_convention import BodyArgs, BodyOuts, ScanArgs, ScanOptions, ScanOuts
from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.sequences import with_items


def connection_pattern(scan: ScanGrammar, node: Apply) -> list[list[bool]]:
    """Which output follows from which input, through any number of steps, none included."""
    pattern = _step_pattern(scan)
    n, states = len(scan.fgraph.inputs), range(scan.n_states)
    first = 1 + scan.n_seqs
    # A state is connected to what the next step makes of it: at most one new pair a round.
    final = [list(row[: scan.n_states]) for row in pattern]
    for k in states:
        final[first + k][k] = hasattr(scan.args.states[k].type, "ndim")
    changed = True
    while changed:
        changed = False
        for row in final:
            for k in states:
                if row[k]:
                    for j in states:
                        if final[first + k][j] and not row[j]:
                            row[j] = changed = True
    rows = [
        [
            bool(pattern[i][y] or any(final[i][k] and pattern[first + k][y] for k in states))
            for y in range(scan.n_states, scan.n_states + scan.n_ys)
        ]
        for i in range(n)
    ]
    ended = [False] * (2 if scan.stops else 0)
    return [[False] * len(node.outputs)] + [[*final[i], *rows[i], *ended] for i in range(1, n)]


def _step_pattern(scan: ScanGrammar) -> list[list[bool]]:
    body = scan.unfrozen()
    return connections(body.inputs, body.outputs)


def pullback(
    scan: ScanGrammar, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """The cotangents of ``inputs``; disconnected where the connection pattern says so."""
    expand = expansion(scan, inputs)
    if expand is not None:

        def steps(given: Any) -> Any:
            return expand(scan.split_inputs(given)).flat()

        found = through(pull_back, steps, inputs, cotangents)
    else:
        found = _Backward(scan, inputs, outputs, cotangents).result()
    return finished(scan, inputs, outputs, cotangents, found)


class _ThroughList(Exception):
    """A cotangent reaches a state that is a typed list."""


class _Kept(NamedTuple):
    """One input of the backward step: the variable inside, and what is behind it outside."""

    inner: Any
    outer: Any


class _Backward:
    """The backward loop of one Scan node."""

    def __init__(self, scan: ScanGrammar, inputs: Any, outputs: Any, cotangents: Any) -> None:
        self.scan = scan
        self.args = scan.split_inputs(inputs)
        self.outs: ScanOuts = scan.split_outputs(outputs)
        self.given: ScanOuts = scan.split_outputs(cotangents)
        self.body = scan.unfrozen()
        self.inner: BodyArgs = scan.split_body_inputs(self.body.inputs)
        self.inner_outs: BodyOuts = scan.split_body_outputs(self.body.outputs)

    def result(self) -> list[Any]:
        """The cotangents of the inputs, in order; None where none arrives."""
        try:
            states, traces = self._reached()
        except _ThroughList:
            # What comes back through a list that is carried is not known, and so is what it adds to.
            unknown = partial(unknown_through_list, self.scan, self.args.flat())
            return [unknown(x) if is_float(x) else None for x in self.args.flat()]
        lambdas = {k: _Kept(self.inner.states[k].type(), self._final_cotangent(k)) for k in states}
        d_rows = [_Kept(self.inner_outs.ys[k].type(), self.given.traces[k]) for k in traces]
        of = [self.inner_outs.states[k] for k in states] + [self.inner_outs.ys[k] for k in traces]
        given = [k.inner for k in (*lambdas.values(), *d_rows)]
        step = self.scan.split_body_inputs(pull_back(self.body.inputs, of, given))
        step = _with_nulls_spread(step, lambdas)
        known = [k for k in states if not is_null(step.states[k])]
        return self._loop(known, [lambdas[k] for k in known], d_rows, step)

    def _loop(self, states: Any, lambdas: Any, d_rows: Any, step: BodyArgs) -> list[Any]:
        arrived = [k for k, g in enumerate(step.consts) if g is not None and not is_null(g)]
        sums = [
            _Kept(self.inner.consts[k].type(), self.args.consts[k].zeros_like()) for k in arrived
        ]
        # A step that does not read a state passes nothing back through it: its cotangent is zero.
        next_lambdas = [
            zeros_for(kept.inner) if step.states[k] is None else step.states[k]
            for k, kept in zip(states, lambdas, strict=True)
        ]
        next_sums = [kept.inner + step.consts[k] for k, kept in zip(arrived, sums, strict=True)]
        from_rows = [k for k, g in enumerate(step.rows) if g is not None and not is_null(g)]
        ys = [step.rows[k] for k in from_rows]

        read = set(ancestors([*next_lambdas, *next_sums, *ys]))
        rows = [_Kept(v, x) for v, x in _pairs(self.inner.rows, self.args.sequences) if v in read]
        rows += self._saved([k for k, v in enumerate(self.inner.states) if v in read])
        rows += [kept for kept in d_rows if kept.inner in read]
        consts = [_Kept(v, x) for v, x in _pairs(self.inner.consts, self.args.consts) if v in read]
        carried = [*lambdas, *sums]
        backward = self.scan.from_body(
            BodyArgs(self.inner.i, _inner(rows), _inner(carried), _inner(consts)),
            BodyOuts(
                [
                    k.inner.type.filter_variable(v)
                    for k, v in _pairs(carried, next_lambdas + next_sums)
                ],
                ys,
            ),
            ScanOptions(
                name=f"pullback of {self.scan.options.name or 'loop'}",
                reverse=not self.scan.options.reverse,
                unroll=self.scan.options.unroll,
                parallel=self.scan.options.parallel,
                origin=self.scan.options.origin,
            ),
        )
        outs = backward.split_outputs(
            backward.bind(
                ScanArgs(self.args.n_steps, _outer(rows), _outer(carried), _outer(consts))
            )
        )
        sequences = [self.args.sequences[k].type for k in from_rows]
        traces = [t.filter_variable(trace) for t, trace in zip(sequences, outs.traces, strict=True)]
        nulls = [g if is_null(g) else None for g in step.states]
        return ScanArgs(
            None,
            with_items(step.rows, from_rows, traces),
            with_items(nulls, states, outs.finals[: len(states)]),
            with_items(step.consts, arrived, outs.finals[len(states) :]),
        ).flat()

    def _reached(self) -> tuple[list[int], list[int]]:
        """The states and the traces that a cotangent reaches, in any number of steps back."""
        pattern = _step_pattern(self.scan)
        first, n = 1 + self.scan.n_seqs, self.scan.n_states
        traces = [
            k
            for k, (y, g) in enumerate(_pairs(self.inner_outs.ys, self.given.traces))
            if is_float(y) and is_connected(g)
        ]
        floats = [k for k, v in enumerate(self.inner.states) if is_float(v)]
        ys = [n + k for k in traces]

        def feeds(k: int, reached: set[int]) -> bool:
            return any(pattern[first + k][j] for j in [*reached, *ys])

        given = {k for k in floats if is_connected(self.given.finals[k])}
        reached = spread(given, floats, feeds)
        for k, v in enumerate(self.inner.states):
            if is_list_of_floats(v) and feeds(k, {*reached}):
                raise _ThroughList(v)
        return reached, traces

    def _final_cotangent(self, k: int) -> Any:
        g, final = self.given.finals[k], self.outs.finals[k]
        if not is_connected(g):
            return self.args.states[k].zeros_like()
        return final.type.filter_variable(g.astype(final.type.dtype))

    def _saved(self, states: list[int]) -> list[_Kept]:
        """A sequence of the states before each step, for each of ``states``."""
        emitted = dict(zip(self.scan.outs.ys, self.outs.traces, strict=True))
        before = self.scan.args.states
        own = {k: emitted[before[k]] for k in states if before[k] in emitted}
        rest = [k for k in states if k not in own]
        if rest:
            twin = self.scan.from_body(
                self.inner,
                BodyOuts(self.inner_outs.states, [self.inner.states[k] for k in rest]),
                self.scan.options,
            )
            own |= zip(rest, twin.split_outputs(twin.bind(self.args)).traces, strict=True)
        return [_Kept(self.inner.states[k], own[k]) for k in states]


def _with_nulls_spread(step: BodyArgs, lambdas: dict[int, _Kept]) -> BodyArgs:
    """``step`` with a null for all that follows from the cotangent of a state that becomes null.

    Nobody knows such a cotangent any more one step further back. What does not read it is not concerned.
    """
    while True:  # ends: each round has a null more
        unknown = {kept.inner: g for k, kept in lambdas.items() if is_null(g := step.states[k])}

        def spread(g: Any, unknown: Any = unknown) -> Any:
            if g is None or is_null(g):
                return g
            return next((unknown[v] for v in ancestors([g]) if v in unknown), g)

        found = BodyArgs(step.i, *([spread(g) for g in group] for group in step[1:]))
        if list(map(is_null, found.states)) == list(map(is_null, step.states)):
            return found
        step = found


def _pairs(a: Any, b: Any) -> Any:
    return zip(a, b, strict=True)


def _inner(kept: Sequence[_Kept]) -> list[Variable]:
    return [k.inner for k in kept]


def _outer(kept: Sequence[_Kept]) -> list[Variable]:
    return [k.outer for k in kept]
