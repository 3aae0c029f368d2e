"""Programs as text: one line for each node, loop bodies indented under their loop.

program(xs: float64[?])
  a: float64[] = Scan{loop} n_steps=b xs=(xs) init=(0.0) consts=()
    step(i: int64[], x0: float64[], s0: float64[])
      a: float64[] = add(s0, x0)
      return a | a
  return a
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type

from loopax.facts.elementwise import scalar_op_of
from loopax.ir.derivatives.lazy import Derivative
from loopax.ir.ops.call import Call
from loopax.ir.ops.cond import Cond
from loopax.ir.ops.scan import Scan


def pformat(graph: AbstractFunctionGraph, name: str = "program") -> str:
    """Print ``graph`` as text, its loops and calls included. Equal graphs give equal text."""
    names = [v.name for v in graph.inputs]
    return "\n".join(_graph(graph, name, names, lambda outs: [outs]))


def _graph(
    graph: AbstractFunctionGraph,
    title: str,
    input_names: Sequence[str | None],
    groups: Callable[[Sequence[Variable]], list[Any]],
) -> Iterator[str]:
    """Lines for one graph; ``groups`` divides its outputs into groups separated by ``|``."""
    names: dict[Variable, str] = {}
    counts = Counter(input_names)
    # A name of two inputs would be ambiguous: both get letters, as unnamed ones do.
    unique = {n for n in counts if n and counts[n] == 1}
    fresh = (letter for letter in _letters() if letter not in unique)

    def name(v: Variable) -> str:
        if isinstance(v, Constant):
            return constant_as_text(v)
        if v not in names:
            names[v] = next(fresh)
        return names[v]

    def typed(v: Variable) -> str:
        return f"{name(v)}: {_type(v.type)}"

    def listed(vs: Sequence[Variable]) -> str:
        return ", ".join(map(name, vs))

    for v, input_name in zip(graph.inputs, input_names, strict=True):
        names[v] = input_name if input_name in unique else next(fresh)
    yield f"{title}({', '.join(typed(v) for v in graph.inputs)})"
    for node in graph.toposort():
        results = ", ".join(typed(v) for v in node.outputs)
        op: Any = node.op
        if isinstance(op, Scan):
            a = op.split_inputs(node.inputs)
            fields = (
                f"xs=({listed(a.sequences)}) init=({listed(a.states)}) consts=({listed(a.consts)})"
            )
            yield f"  {results} = {op} n_steps={name(a.n_steps)} {fields}"
            yield from ("    " + line for line in _step(op))
        else:
            yield f"  {results} = {op_as_text(op)}({listed(node.inputs)})"
            yield from ("    " + line for line in _inside(op))
    yield f"  return {' | '.join(listed(group) for group in groups(graph.outputs))}"


def _inside(op: Op) -> Iterator[str]:
    """The lines for the body of an op other than a Scan."""
    if not isinstance(op, Cond | Call | Derivative):
        return
    n = op.n_outs if isinstance(op, Cond) else 0  # its branches are separate groups
    names: list[str | None] = [None] * len(op.fgraph.inputs)
    yield from _graph(op.fgraph, "body", names, lambda outs: [outs[:n], outs[n:]] if n else [outs])


def _step(scan: Scan) -> Iterator[str]:
    names = ["i"]
    for letter, group in zip("xsc", scan.args[1:], strict=True):
        names += [f"{letter}{k}" for k in range(len(group))]

    def groups(outputs: Sequence[Variable]) -> list[Any]:
        outs = scan.split_body_outputs(outputs)
        return [outs.states, outs.ys, *([] if outs.stop is None else [[outs.stop]])]

    return _graph(scan.fgraph, "step", names, groups)


def op_as_text(op: Op) -> str:
    """The op as text; an elementwise op by its scalar function."""
    return str(scalar_op_of(op) or op)


def _type(t: Type) -> str:
    if not hasattr(t, "shape") or not hasattr(t, "dtype"):
        return str(t)
    return f"{t.dtype}[{','.join('?' if d is None else str(d) for d in t.shape)}]"


def constant_as_text(v: Constant) -> str:
    """The value of a constant, or its type where that is shorter."""
    data = v.data
    if getattr(data, "size", 1) > 6:
        return f"<{_type(v.type)}>"
    return str(data.tolist()) if hasattr(data, "tolist") else str(data)


def _letters() -> Iterator[str]:
    """a, b, ..., z, a1, b1, ..."""
    for round_ in count():
        for letter in "abcdefghijklmnopqrstuvwxyz":
            yield letter + (str(round_) if round_ else "")
