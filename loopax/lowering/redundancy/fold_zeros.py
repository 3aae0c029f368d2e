"""A value that is zero at every step is removed from the step; a zero term is removed from its sum.

    s' = s + 0 * x,  s starts at 0;  y = s * a + b      ->      y = b
    a + b * (c @ 0)                                     ->      a

A state is zero if it starts at zero and the step maps it to zero, given that the other states assumed to be
zero are: all states that start at zero are assumed to be, and assumptions are withdrawn until the rest
hold. A zero state becomes a constant of the loop; a zero term is removed from its sum.

Condition: a product with a zero factor counts as zero, as in PyTensor's ``local_mul_zero``: where the other
factor is infinite, its derivative is zero and not NaN.

Reason: PyTensor's gradient of a gradient goes back through the cotangents of all inputs of the first one,
even those nobody asked for: sums of products with zero, carried through every loop. The gradient of an op
with several outputs has a term for each, also for unread ones: for ``eigh``, products of zero with ``1 /
(w_i - w_j)``, which are nan where eigenvalues are equal. Outside of loops a term that is not a product
stays: the user has written it, and an error of its length must not get lost. It comes before `stabilize`,
which then sees constants in place of states and folds further.

In the literature: constant propagation through the carry, optimistic, for the constant 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.tensor.type import DenseTensorType

from loopax.base.upstream.pytensor import IfElse
from loopax.facts.elementwise import is_elementwise
from loopax.facts.linearity import is_product, zero_groups_of
from loopax.ir import Scan
from loopax.ir.replace import applied_to
from loopax.ir.sizes import body_dims, unconditional_dims_of
from loopax.lowering.analysis.checked_steps import checked, step_conditions
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import Input, OpenLoop, replace_outputs

IsZero = Callable[[Variable], bool]


def fold_zeros(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    outside = Zeros(lambda v: False)
    for node in graph.toposort():
        if isinstance(node.op, Scan):
            _fold(graph, node, outside)
            outside = Zeros(lambda v: False) if node not in graph.apply_nodes else outside
        elif terms := [k for k in _zero_terms(node, outside) if is_product(node.inputs[k].owner)]:
            graph.replace(node.outputs[0], _without_terms(node, node.inputs, terms), "fold_zeros")
    map_bodies(graph, fold_zeros)


def _fold(graph: FunctionGraph, node: Apply, outside: Zeros) -> None:
    op: Any = node.op
    fixed, assumed, inside = _zero_in_step(node, outside)
    if not assumed and not fixed:
        return
    if not assumed and not any(_zero_terms(n, inside) for n in op.fgraph.apply_nodes):
        return
    _rebuild(graph, node, assumed, fixed)


def _zero_in_step(node: Apply, outside: IsZero) -> tuple[set[Any], list[int], Zeros]:
    """The zeros in the step of a Scan: rows and consts; states; and a predicate for all other variables."""
    op: Any = node.op
    args, outs, operands = op.args, op.outs, op.split_inputs(node.inputs)
    fixed = {
        v
        for group, values in ((args.rows, operands.sequences), (args.consts, operands.consts))
        for v, x in zip(group, values, strict=True)
        if outside(x)
    }
    assumed = [
        k
        for k, x in enumerate(operands.states)
        if _is_float(x) and outside(x) and _keeps_shape(op, k)
    ]
    while True:  # terminates: it only shrinks
        inside = Zeros((fixed | {args.states[k] for k in assumed}).__contains__)
        left = [k for k in assumed if inside(outs.states[k])]
        if left == assumed:
            return fixed, assumed, inside
        assumed = left


def _keeps_shape(op: Scan, k: int) -> bool:
    """Whether each step preserves the shape of state ``k``."""
    return all(body_dims(op).keeps(k, axis) for axis in range(op.args.states[k].type.ndim))


def _rebuild(graph: FunctionGraph, node: Apply, assumed: list[int], fixed: set[Variable]) -> None:
    op: Any = node.op
    loop = OpenLoop.of(node)
    zero = {
        p.inner
        for v, p in zip([*op.args.rows, *op.args.consts], [*loop.rows, *loop.consts], strict=True)
        if v in fixed
    }
    finals = {}
    kept = [v for k, v in enumerate(node.outputs) if k not in assumed and graph.clients.get(v)]
    # If no other output of the loop is read, its errors must be raised without it.
    errors = (
        []
        if kept
        else step_conditions(op, op.split_inputs(node.inputs), unconditional_dims_of(graph))
    )
    for k in assumed:
        state = loop.states[k]
        finals[state.final] = checked(state.init, errors)
        loop.consts.append(Input(state.inner, state.init))
        zero.add(state.inner)
    loop.states = [s for k, s in enumerate(loop.states) if k not in assumed]
    loop.set_outputs(_without_zeros(loop.outputs(), Zeros(zero.__contains__)))
    replace_outputs(graph, {**finals, **loop.close()}, "fold_zeros")


def _without_zeros(outputs: list[Variable], zeros: Zeros) -> list[Any]:
    """Replace scalars in ``outputs`` that are zero by 0, and drop terms that are zero."""
    new: dict[Any, Any] = {}

    def now(v: Variable) -> Any:
        if v.owner is None and isinstance(v, Constant):
            return v
        scalar = isinstance(v.type, DenseTensorType) and not v.type.ndim
        return pt.zeros((), v.type.dtype) if scalar and zeros(v) else new.get(v, v)

    for node in toposort(outputs):
        left = [now(v) for v in node.inputs]
        if terms := _zero_terms(node, zeros):
            new[node.outputs[0]] = _without_terms(node, left, terms)
        elif any(a is not b for a, b in zip(left, node.inputs, strict=True)):
            applied = applied_to(node, left)
            new.update(zip(node.outputs, applied.outputs, strict=True))
    return [now(v) for v in outputs]


def _without_terms(node: Apply, inputs: list[Any], terms: list[int]) -> Any:
    """The sum ``node`` applied to ``inputs``, without the ``terms`` at these positions."""
    (out,) = node.outputs
    # Cast first: a sum in float32, or of integers, would differ.
    left = [v.astype(out.type.dtype) for k, v in enumerate(inputs) if k not in terms]
    op: Any = node.op
    return out.type.filter_variable(op(*left) if len(left) > 1 else left[0])


def _zero_terms(node: Apply, zeros: IsZero) -> list[int]:
    """Positions of the terms of a sum that are zero and do not affect its shape."""
    if not is_elementwise(node, ps.Add):
        return []
    terms = [k for k, v in enumerate(node.inputs) if zeros(v)]
    left = [v for k, v in enumerate(node.inputs) if k not in terms]
    if not terms or not left:
        return []
    axes = range(node.outputs[0].type.ndim)

    def spans(v: Variable, axis: int) -> bool:
        return v.type.shape[axis] != 1

    same = all(
        any(spans(v, a) for v in left) or not any(spans(v, a) for v in node.inputs) for a in axes
    )
    return terms if same else []


class Zeros:
    """Predicate: a variable is zero everywhere, given which inputs are. Answers are cached."""

    def __init__(self, known: IsZero) -> None:
        self._known = known
        self._found: dict[Variable, bool] = {}

    def __call__(self, v: Variable) -> bool:
        stack = [v]
        while stack:  # iterative, since a chain of nodes may be long
            w = stack[-1]
            if w in self._found:
                stack.pop()
                continue
            asked = [] if w.owner is None or not _is_float(w) else _asked(w)
            missing = [x for group in asked for x in group if x not in self._found]
            if missing and not self._known(w):
                stack += missing
                continue
            self._found[w] = self._known(w) or _is_zero(w, self._found)
            stack.pop()
        return self._found[v]


def _is_float(v: Variable) -> bool:
    return isinstance(v.type, DenseTensorType) and v.type.dtype.startswith("float")


def _asked(v: Variable) -> Sequence[Sequence[Any]]:
    """Groups of inputs: ``v`` is zero where all inputs of one group are; empty if it never is."""
    node = v.owner
    op: Any = node.op
    if isinstance(op, Scan):
        return [[x for x in node.inputs if _is_float(x)]]
    if isinstance(op, IfElse):
        k = node.outputs.index(v)
        return [[node.inputs[1 + k], node.inputs[1 + op.n_outs + k]]]
    return [[node.inputs[k] for k in group] for group in zero_groups_of(node)]


def _is_zero(v: Variable, known: dict[Variable, bool]) -> bool:
    if isinstance(v, Constant):
        data = np.asarray(v.data)
        return _is_float(v) and bool(data.size) and not data.any() and not np.signbit(data).any()
    if v.owner is None or not _is_float(v):
        return False
    if isinstance(v.owner.op, Scan):
        return _is_zero_output(v, lambda x: known.get(x, False))
    return any(group and all(known.get(x, False) for x in group) for group in _asked(v))


def _is_zero_output(v: Variable, outside: IsZero) -> bool:
    """Whether a final state or a trace of a Scan is zero."""
    node: Any = v.owner
    _, states, inside = _zero_in_step(node, outside)
    k = node.outputs.index(v)
    if k < node.op.n_states:
        return k in states
    ys = node.op.outs.ys
    return k - node.op.n_states < len(ys) and inside(ys[k - node.op.n_states])
