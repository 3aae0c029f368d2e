"""Programs as text: one line a node, loop bodies indented under their loop.

program(xs: float64[?])
  a: float64[] = Scan{loop} n_steps=b xs=(xs) init=(0.0) consts=()
    step(i: int64[], x0: float64[], s0: float64[])
      a: float64[] = add(s0, x0)
      return a | a
  return a
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph

from loopax.ir.call import Call
from loopax.ir.scan import Scan


def pformat(graph: AbstractFunctionGraph, name: str = "program") -> str:
    """``graph`` as text, its loops and calls included. Equal graphs give equal text."""
    return "\n".join(_graph(graph, name, [v.name for v in graph.inputs]))


def _graph(graph: AbstractFunctionGraph, title: str, input_names: Any) -> Iterator[str]:
    names: dict[Variable, str] = {}
    fresh = _letters()
    for v, given in zip(graph.inputs, input_names, strict=True):
        names[v] = given or next(fresh)
    taken = set(names.values())

    def name(v: Variable) -> str:
        if isinstance(v, Constant):
            return _constant(v)
        if v not in names:
            names[v] = next(n for n in fresh if n not in taken)
        return names[v]

    def typed(v: Variable) -> str:
        return f"{name(v)}: {_type(v.type)}"

    yield f"{title}({', '.join(typed(v) for v in graph.inputs)})"
    for node in graph.toposort():
        made = ", ".join(typed(v) for v in node.outputs)
        if isinstance(node.op, Scan):
            a = node.op.split_inputs(node.inputs)
            groups = [
                f"{k}=({', '.join(map(name, vs))})"
                for k, vs in [("xs", a.sequences), ("init", a.states), ("consts", a.consts)]
            ]
            yield f"  {made} = {node.op} n_steps={name(a.n_steps)} {' '.join(groups)}"
            yield from ("    " + line for line in _body(node.op))
        else:
            yield f"  {made} = {_op(node.op)}({', '.join(map(name, node.inputs))})"
            if isinstance(node.op, Call):
                inner = node.op.fgraph
                yield from (
                    "    " + line for line in _graph(inner, "body", [None] * len(inner.inputs))
                )
    if title == "step":
        return
    yield f"  return {', '.join(map(name, graph.outputs))}"


def _body(scan: Scan) -> Iterator[str]:
    args = scan.args
    names = ["i"]
    for letter, group in zip("xsc", [args.rows, args.states, args.consts], strict=True):
        names += [f"{letter}{k}" for k in range(len(group))]
    lines = list(_graph(scan.fgraph, "step", names))
    # The return line shows the three kinds apart: states | ys | stop.
    text = list(_graph(scan.fgraph, "body", names))[-1].removeprefix("  return ").split(", ")
    outs = scan.split_body_outputs(text)
    groups = [", ".join(outs.states), ", ".join(outs.ys)] + ([outs.stop] if scan.stops else [])
    yield from lines
    yield f"  return {' | '.join(groups)}"


def _op(op: Any) -> str:
    inner = getattr(op, "scalar_op", None)
    return str(inner) if inner is not None and type(op).__name__ == "Elemwise" else str(op)


def _type(t: Any) -> str:
    if not hasattr(t, "shape") or not hasattr(t, "dtype"):
        return str(t)
    return f"{t.dtype}[{','.join('?' if d is None else str(d) for d in t.shape)}]"


def _constant(v: Any) -> str:
    data = v.data
    if getattr(data, "size", 1) > 6:
        return f"<{_type(v.type)}>"
    return str(data.tolist()) if hasattr(data, "tolist") else str(data)


def _letters() -> Iterator[str]:
    """a, b, ..., z, a1, b1, ..."""
    for round_ in count():
        for letter in "abcdefghijklmnopqrstuvwxyz":
            yield letter + (str(round_) if round_ else "")
