"""The pullback of `Scan`: a loop over the same steps in the other direction.

For a step ``(s', y) = f(i, x, s, c)`` and cotangents ``l`` of the next state and ``dy`` of the row,
the backward loop computes the step again from the state before it, and then

    (dx, l, dc) = pullback of f at (x, s, c), of (l, dy)

with ``l`` as its state, ``dx`` as its trace and the sum of ``dc``. From the forward loop it needs
only the states before each step, and values that are dear (`stored_values`): traces that the loop has
anyway, or else those of a twin loop.
(Rows of next states are not used, though they are shifted by one row: two traces a row apart would
keep `fuse_loops` from fusing their readers.) States that no cotangent reaches get none; constants,
rows and states that the backward step does not read are not among its inputs.

A loop that stops, one with ``checkpoint`` and one with ``truncate_gradient`` are first rewritten as
equal plain loops (`loopax.ir.derivatives.expand`), whose pullback is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors

from loopax.ir.derivatives.expand import expansion
from loopax.ir.derivatives.inner_gradients import (
    at_inputs,
    closure,
    connections,
    is_connected,
    is_float,
    is_list_of_floats,
    is_null,
    pytensor_cotangents,
    unknown_through_list,
    zeros_for,
)
from loopax.ir.derivatives.stored_values import dear_values
from loopax.ir.derivatives.traversal import pull_back
from loopax.ir.ops.calling_convention import BodyArgs, BodyOuts, ScanArgs, ScanOptions, ScanOuts
from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.replace import replaced
from loopax.ir.sequences import with_items


def connection_pattern(scan: ScanGrammar, node: Apply) -> list[list[bool]]:
    """``[input][output]``: whether the output depends on the input, through any number of steps."""
    pattern = _step_pattern(scan)
    n, states = len(scan.fgraph.inputs), range(scan.n_states)
    first_state = 1 + scan.n_seqs
    # A state is connected to states of the next step: at least one new pair a round.
    final = [list(row[: scan.n_states]) for row in pattern]
    for k in states:
        final[first_state + k][k] = hasattr(scan.args.states[k].type, "ndim")
    changed = True
    while changed:
        changed = False
        for row in final:
            for k in states:
                if row[k]:
                    for j in states:
                        if final[first_state + k][j] and not row[j]:
                            row[j] = changed = True
    rows = [
        [
            bool(pattern[i][y] or any(final[i][k] and pattern[first_state + k][y] for k in states))
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
    scan: ScanGrammar,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> list[Any]:
    """The cotangents of ``inputs``; disconnected where the connection pattern says so."""
    expand = expansion(scan, inputs)
    if expand is not None:

        def steps(operands: Sequence[Variable]) -> Any:
            return expand(scan.split_inputs(operands)).flat()

        in_cotangents = at_inputs(pull_back, steps, inputs, cotangents)
    else:
        in_cotangents = _Backward(scan, inputs, outputs, cotangents).result()
    return pytensor_cotangents(scan, inputs, outputs, cotangents, in_cotangents)


class _ThroughList(Exception):
    """Raised where a cotangent reaches a state that is a typed list."""


class _StepInput(NamedTuple):
    """An input of the backward step: the variable inside, and its value outside."""

    inner: Any
    outer: Any


class _Backward:
    """The backward loop of one Scan node."""

    def __init__(
        self,
        scan: ScanGrammar,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> None:
        self.scan = scan
        self.args = scan.split_inputs(inputs)
        self.outs: ScanOuts = scan.split_outputs(outputs)
        self.cotangents: ScanOuts = scan.split_outputs(cotangents)
        self.body = scan.unfrozen()
        self.inner: BodyArgs = scan.split_body_inputs(self.body.inputs)
        self.inner_outs: BodyOuts = scan.split_body_outputs(self.body.outputs)

    def result(self) -> list[Any]:
        """The cotangents of the inputs, in order; None for an input that no cotangent reaches."""
        try:
            states, traces = self._reached()
        except _ThroughList:
            # A cotangent through a carried list is unknown, and so is any sum with it.
            unknown = partial(unknown_through_list, self.scan, self.args.flat())
            return [unknown(x) if is_float(x) else None for x in self.args.flat()]
        lambdas = {
            k: _StepInput(self.inner.states[k].type(), self._final_cotangent(k)) for k in states
        }
        d_rows = [
            _StepInput(self.inner_outs.ys[k].type(), self.cotangents.traces[k]) for k in traces
        ]
        seeded = [self.inner_outs.states[k] for k in states] + [
            self.inner_outs.ys[k] for k in traces
        ]
        seeds = [k.inner for k in (*lambdas.values(), *d_rows)]
        step = self.scan.split_body_inputs(pull_back(self.body.inputs, seeded, seeds))
        step = _with_nulls_spread(step, lambdas)
        known_states = [k for k in states if not is_null(step.states[k])]
        return self._loop(known_states, [lambdas[k] for k in known_states], d_rows, step)

    def _loop(
        self,
        states: Sequence[int],
        lambdas: Sequence[_StepInput],
        d_rows: Sequence[_StepInput],
        step: BodyArgs,
    ) -> list[Any]:
        summed_consts = [k for k, g in enumerate(step.consts) if g is not None and not is_null(g)]
        sums = [
            _StepInput(self.inner.consts[k].type(), self.args.consts[k].zeros_like())
            for k in summed_consts
        ]
        # A step that does not read a state passes nothing back through it: its cotangent is zero.
        next_lambdas = [
            zeros_for(step_input.inner) if step.states[k] is None else step.states[k]
            for k, step_input in zip(states, lambdas, strict=True)
        ]
        next_sums = [
            step_input.inner + step.consts[k]
            for k, step_input in zip(summed_consts, sums, strict=True)
        ]
        from_rows = [k for k, g in enumerate(step.rows) if g is not None and not is_null(g)]
        ys = [step.rows[k] for k in from_rows]

        results = [*next_lambdas, *next_sums, *ys]
        seeds = [k.inner for k in (*lambdas, *d_rows)]
        dear = dear_values(results, seeds, [*self.inner.rows, *self.inner.states])
        stored = {v: v.type() for v in dear}
        results = replaced(results, stored)
        read_variables = set(ancestors(results))
        rows = [
            _StepInput(v, x)
            for v, x in _pairs(self.inner.rows, self.args.sequences)
            if v in read_variables
        ]
        states_read = [v for v in self.inner.states if v in read_variables]
        rows += self._stored({v: v for v in states_read} | stored)
        rows += [step_input for step_input in d_rows if step_input.inner in read_variables]
        consts = [
            _StepInput(v, x)
            for v, x in _pairs(self.inner.consts, self.args.consts)
            if v in read_variables
        ]
        carried = [*lambdas, *sums]
        backward = self.scan.from_body(
            BodyArgs(self.inner.i, _inner(rows), _inner(carried), _inner(consts)),
            BodyOuts(
                [
                    k.inner.type.filter_variable(v)
                    for k, v in _pairs(carried, results[: len(carried)])
                ],
                results[len(carried) :],
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
            with_items(step.consts, summed_consts, outs.finals[len(states) :]),
        ).flat()

    def _reached(self) -> tuple[list[int], list[int]]:
        """The states and the traces that a cotangent reaches, after any number of backward steps."""
        pattern = _step_pattern(self.scan)
        first_state, n = 1 + self.scan.n_seqs, self.scan.n_states
        traces = [
            k
            for k, (y, g) in enumerate(_pairs(self.inner_outs.ys, self.cotangents.traces))
            if is_float(y) and is_connected(g)
        ]
        floats = [k for k, v in enumerate(self.inner.states) if is_float(v)]
        ys = [n + k for k in traces]

        def feeds(k: int, reached: set[int]) -> bool:
            return any(pattern[first_state + k][j] for j in [*reached, *ys])

        seeded = {k for k in floats if is_connected(self.cotangents.finals[k])}
        reached = closure(seeded, floats, feeds)
        for k, v in enumerate(self.inner.states):
            if is_list_of_floats(v) and feeds(k, {*reached}):
                raise _ThroughList(v)
        return reached, traces

    def _final_cotangent(self, k: int) -> Any:
        g, final = self.cotangents.finals[k], self.outs.finals[k]
        if not is_connected(g):
            return self.args.states[k].zeros_like()
        return final.type.filter_variable(g.astype(final.type.dtype))

    def _stored(self, values: Mapping[Variable, Variable]) -> list[_StepInput]:
        """The traces of values of the forward step, and the variables of the backward step for them."""
        emitted = dict(zip(self.inner_outs.ys, self.outs.traces, strict=True))
        missing = [v for v in values if v not in emitted]
        if missing:
            twin = self.scan.from_body(
                self.inner, BodyOuts(self.inner_outs.states, missing), self.scan.options
            )
            emitted |= zip(missing, twin.split_outputs(twin.bind(self.args)).traces, strict=True)
        return [_StepInput(inner, emitted[v]) for v, inner in values.items()]


def _with_nulls_spread(step: BodyArgs, lambdas: dict[int, _StepInput]) -> BodyArgs:
    """Replace cotangents in ``step`` that depend on the cotangent of a state that becomes null by nulls.

    Such a cotangent is unknown one step further back. Cotangents that do not read it are not affected.
    """
    while True:  # terminates: each round has one null more
        unknown = {
            step_input.inner: g for k, step_input in lambdas.items() if is_null(g := step.states[k])
        }

        def with_null(g: Variable | None, unknown: Mapping[Variable, Variable] = unknown) -> Any:
            if g is None or is_null(g):
                return g
            return next((unknown[v] for v in ancestors([g]) if v in unknown), g)

        marked = BodyArgs(step.i, *([with_null(g) for g in group] for group in step[1:]))
        if list(map(is_null, marked.states)) == list(map(is_null, step.states)):
            return marked
        step = marked


def _pairs(a: Sequence[object], b: Sequence[Variable]) -> Any:
    return zip(a, b, strict=True)


def _inner(step_inputs: Sequence[_StepInput]) -> list[Variable]:
    return [k.inner for k in step_inputs]


def _outer(step_inputs: Sequence[_StepInput]) -> list[Variable]:
    return [k.outer for k in step_inputs]
