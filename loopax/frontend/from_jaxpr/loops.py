"""``scan``, ``while`` and ``cond``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.integers import one_integer
from loopax.frontend.from_jaxpr.known import with_known
from loopax.frontend.from_jaxpr.reading import inner_graph, rule, tensor_type
from loopax.ir import UNBOUNDED, BodyArgs, BodyOuts, Cond, Scan, ScanArgs, ScanOptions
from loopax.ir.ops.calling_convention import INDEX_TYPE

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn


@rule("scan", keys=True)
def _scan(eqn: JaxprEqn, *inputs: TensorVariable) -> Any:
    """A scan, whose sequences and traces have one more axis than their rows."""
    body, length = eqn.params["jaxpr"], eqn.params["length"]
    args, outs = body.jaxpr.invars, body.jaxpr.outvars
    n_rows = sum(_is_row(v, w) for v, w in zip(eqn.invars, args, strict=True))
    n_traces = sum(_is_row(v, w) for v, w in zip(eqn.outvars, outs, strict=True))
    n_states = len(outs) - n_traces
    n_consts = len(args) - n_states - n_rows
    inner = [tensor_type(v.aval)() for v in args]
    consts, states, rows = _split_three(inner, n_consts, n_states)
    arguments = _split_three(inputs, n_consts, n_states)
    results = inner_graph(body, [*with_known(consts, arguments[0]), *states, *rows])
    loop = Scan.from_body(
        BodyArgs(INDEX_TYPE(), rows, states, consts),
        BodyOuts(results[:n_states], results[n_states:]),
        ScanOptions(reverse=eqn.params["reverse"]),
    )
    return loop.bind(
        ScanArgs(pt.constant(length, dtype="int64"), arguments[2], arguments[1], arguments[0])
    )


def _is_row(operand: Any, row: Any) -> bool:
    return len(operand.aval.shape) != len(row.aval.shape)


def _split_three(xs: Sequence[TensorVariable], n: int, m: int) -> tuple[Any, Any, Any]:
    return list(xs[:n]), list(xs[n : n + m]), list(xs[n + m :])


@rule("while", keys=True)
def _while(eqn: JaxprEqn, *inputs: TensorVariable) -> Any:
    """A while loop: the condition becomes the stop flag after each step, and the length before the first.

    In a batch each row has a flag: the loop continues while any is true, and a row whose flag is false
    stays as it is. The flags are a state.
    """
    params = eqn.params
    n, m = params["cond_nconsts"], params["body_nconsts"]

    def goes_on(consts: Sequence[Any], states: Sequence[Variable]) -> Any:
        (flag,) = inner_graph(params["cond_jaxpr"], [*consts, *states])
        return flag

    arguments = _split_three(inputs, n, m)
    starts = goes_on(arguments[0], arguments[2])
    is_batch = starts.type.ndim > 0
    inner = [tensor_type(v.aval)() for v in eqn.invars]
    cond_consts, body_consts, states = _split_three(inner, n, m)
    next_states = inner_graph(
        params["body_jaxpr"], [*with_known(body_consts, arguments[1]), *states]
    )
    if is_batch:
        runs = starts.type()
        next_states = [
            pt.switch(_spread(runs, v.type.ndim), v, state)
            for v, state in zip(next_states, states, strict=True)
        ]
    flag = goes_on(cond_consts, next_states)
    row_flags = [runs] if is_batch else []
    loop = Scan.from_body(
        BodyArgs(INDEX_TYPE(), [], [*states, *row_flags], [*cond_consts, *body_consts]),
        BodyOuts([*next_states, *[flag][: len(row_flags)]], [], ~_any(flag)),
    )
    n_steps = pt.switch(_any(starts), np.int64(UNBOUNDED), np.int64(0))
    initial = [*arguments[2], *[starts][: len(row_flags)]]
    outs = loop.bind(ScanArgs(n_steps, [], initial, [*arguments[0], *arguments[1]]))
    return outs[: len(states)]


def _any(flags: TensorVariable) -> Any:
    return pt.any(flags) if flags.type.ndim else flags


def _spread(flags: TensorVariable, ndim: int) -> Any:
    """Add trailing axes of length 1 to ``flags``."""
    return flags.dimshuffle([*range(flags.type.ndim), *["x"] * (ndim - flags.type.ndim)])


@rule("cond", keys=True)
def _cond(eqn: JaxprEqn, index: TensorVariable, *operands: TensorVariable) -> Any:
    branches = eqn.params["branches"]
    if (number := one_integer(index)) is not None:  # the platform's, for platform-dependent code
        return inner_graph(branches[min(max(number, 0), len(branches) - 1)], operands)
    if index.type.dtype == "bool":
        index = index.astype("int32")
    return _switch(index, operands, branches, 0)


def _switch(
    index: TensorVariable,
    operands: Sequence[TensorVariable],
    branches: Sequence[Any],
    first_index: int,
) -> list[Any]:
    """Nested conditionals for a switch: an index out of range selects the first or the last branch."""
    if len(branches) == 1:
        return inner_graph(branches[0], operands)
    inner = [v.type() for v in operands]
    number = index.type()
    arguments = with_known(inner, operands)
    then = inner_graph(branches[0], arguments)
    otherwise = _switch(number, arguments, branches[1:], first_index + 1)
    op = Cond.from_branches([number, *inner], then, otherwise)
    return op.bind(pt.le(index, first_index), [index, *operands])
