"""The body of a loop, a branch or a call as a drawing: what comes in on top, what goes out below.

A box is an input, an op or an output. Constants are written into the ops that read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph

from loopax.explanation.layout import Point, layout
from loopax.facts.elementwise import scalar_op_of
from loopax.ir import Cond, Scan
from loopax.lowering.record import with_body

MOST_BOXES = 400  # more are drawn by nobody who wants to read them, and take seconds

_HEIGHT = 24.0
_LETTER = 6.7  # the width of one, of the size that the page sets
_LONGEST = 30


class Body(NamedTuple):
    """A body in a program. ``number`` is its place: 2.1 is the first one in the second one."""

    number: str
    op: Any
    inside: tuple[Body, ...]

    def flat(self) -> Iterator[Body]:
        """This one and all in it."""
        yield self
        for body in self.inside:
            yield from body.flat()


def bodies(graph: AbstractFunctionGraph, prefix: str = "") -> tuple[Body, ...]:
    """The bodies of a graph's ops, each with those in it."""
    ops = [op for node in _nodes(graph) if (op := with_body(node.op)) is not None]
    return tuple(
        Body(f"{prefix}{k}", op, bodies(op.fgraph, f"{prefix}{k}.")) for k, op in enumerate(ops, 1)
    )


def _nodes(graph: AbstractFunctionGraph) -> list[Apply]:
    """In order, each once: a frozen graph that was made of two equal nodes lists the one twice."""
    return list(dict.fromkeys(graph.toposort()))


def caption(op: Any) -> str:
    """What an op with a body is, in a line."""
    outs = len(op.fgraph.outputs)
    if isinstance(op, Scan):
        parts = [(op.n_seqs, "sequence"), (op.n_states, "state"), (op.n_consts, "constant")]
        parts += [(op.n_ys, "trace")]
    else:
        parts = [
            (len(op.fgraph.inputs), "input"),
            (op.n_outs if isinstance(op, Cond) else outs, "output"),
        ]
    parts += [(len(op.fgraph.apply_nodes), "op")]
    listed = ", ".join(f"{n} {what}{'s' * (n != 1)}" for n, what in parts)
    return f"{op}: {listed}"


def drawing(op: Any) -> str | None:
    """The body of ``op`` as an SVG element; None where it has too many boxes."""
    boxes, edges = _boxes(op)
    if len(boxes) > MOST_BOXES:
        return None
    widths = [_LETTER * len(_short(box.label)) + 16 for box in boxes]
    first = {k for k, box in enumerate(boxes) if box.kind == "in"}
    last = {k for k, box in enumerate(boxes) if box.kind == "out"}
    placed = layout(widths, _HEIGHT, [(e.start, e.end) for e in edges], first, last)
    w, h = f"{placed.width:.0f}", f"{placed.height:.0f}"
    parts = [f'<svg class="body" role="img" width="{w}" height="{h}" viewBox="0 0 {w} {h}">']
    parts.append(f"<title>{escape(caption(op))}</title>")
    for edge, route in zip(edges, placed.routes, strict=True):
        a, b = placed.places[edge.start], placed.places[edge.end]
        # An op's operands arrive from left to right.
        n, width = boxes[edge.end].n_inputs, widths[edge.end]
        port = b[0] + width * ((edge.port + 1) / (n + 1) - 0.5)
        points = [(a[0], a[1] + _HEIGHT / 2), *route, (port, b[1] - _HEIGHT / 2)]
        parts.append(f'<path d="{_curve(points)}"><title>{escape(edge.title)}</title></path>')
    for box, width, (x, y) in zip(boxes, widths, placed.places, strict=True):
        parts.append(
            f'<g class="{box.kind}"><title>{escape(box.title)}</title>'
            f'<rect x="{x - width / 2:.1f}" y="{y - _HEIGHT / 2:.1f}" width="{width:.1f}" '
            f'height="{_HEIGHT:.0f}" rx="{4 if box.kind in ("op", "loop") else 12}"/>'
            f'<text x="{x:.1f}" y="{y + 4:.1f}">{escape(_short(box.label))}</text></g>'
        )
    return "".join([*parts, "</svg>"])


class _Box(NamedTuple):
    kind: str  # in, op, loop, out
    label: str
    title: str
    n_inputs: int


class _Edge(NamedTuple):
    start: int
    end: int
    port: int
    title: str


def _boxes(op: Any) -> tuple[list[_Box], list[_Edge]]:
    body = op.fgraph
    inputs, outputs = _names(op)
    read = {v for node in _nodes(body) for v in node.inputs} | set(body.outputs)
    boxes: list[_Box] = []
    edges: list[_Edge] = []
    made: dict[Variable, int] = {}

    def add(kind: str, label: str, title: str, given: Any) -> int:
        for port, v in enumerate(given):
            edges.append(_Edge(made[v], len(boxes), port, str(v.type)))
        boxes.append(_Box(kind, label, title, len(given)))
        return len(boxes) - 1

    for v, name in zip(body.inputs, inputs, strict=True):
        if v in read or name != "i":  # every step has an index, and few read it
            made[v] = add("in", name, f"{name}: {v.type}", [])
    n_bodies = 0
    for node in _nodes(body):
        label, kind = _label(node), "op"
        if with_body(node.op) is not None:
            n_bodies += 1
            label, kind = f"#{n_bodies} {label}", "loop"
        types = ", ".join(str(v.type) for v in node.outputs)
        here = add(kind, label, f"{node.op}: {types}", _variables(node.inputs))
        made.update(dict.fromkeys(node.outputs, here))
    for v, name in zip(body.outputs, outputs, strict=True):
        label = f"{name} = {_constant(v)}" if isinstance(v, Constant) else name
        add("out", label, f"{name}: {v.type}", _variables([v]))
    return boxes, edges


def _names(op: Any) -> tuple[list[str], list[str]]:
    """What the inputs and the outputs of an op's body are called, as `pformat` calls inputs."""
    n, m = len(op.fgraph.inputs), len(op.fgraph.outputs)
    if isinstance(op, Scan):
        inputs = ["i", *_numbered("x", op.n_seqs), *_numbered("s", op.n_states)]
        outputs = [f"next {s}" for s in _numbered("s", op.n_states)]
        outputs += [*_numbered("trace ", op.n_ys), *["stop"] * op.stops]
        return [*inputs, *_numbered("c", op.n_consts)], outputs
    if isinstance(op, Cond):
        outputs = [*_numbered("then ", op.n_outs), *_numbered("else ", op.n_outs)]
        return _numbered("in ", n), outputs
    return _numbered("in ", n), _numbered("out ", m)


def _numbered(letter: str, n: int) -> list[str]:
    return [f"{letter}{k}" for k in range(n)]


def _variables(given: Any) -> list[Variable]:
    return [v for v in given if not isinstance(v, Constant)]


def _label(node: Apply) -> str:
    """The op, with its operands where some are constants: ``mul(2.0, ·)``."""
    op: Any = node.op
    name = str(scalar_op_of(op) or op)
    if not any(isinstance(v, Constant) for v in node.inputs):
        return name
    operands = [_constant(v) if isinstance(v, Constant) else "·" for v in node.inputs]
    return f"{name}({', '.join(operands)})"


def _constant(v: Any) -> str:
    if np.size(v.data) > 3:
        return f"<{v.type}>"
    return str(v.data.tolist() if hasattr(v.data, "tolist") else v.data)


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


def _curve(points: list[Point]) -> str:
    (x, y), *rest = points
    found = [f"M{x:.1f} {y:.1f}"]
    for u, v in rest:
        middle = (y + v) / 2
        found.append(f"C{x:.1f} {middle:.1f} {u:.1f} {middle:.1f} {u:.1f} {v:.1f}")
        x, y = u, v
    return "".join(found)
