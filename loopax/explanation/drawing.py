"""Arc diagrams of the bodies of loops, branches and calls, which need no layout.

A box is an input, an op or an output; boxes stand in one column in the order of computation. An arc
leads down from a box to each reader. Constants are written into the ops that read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph

from loopax.ir import Cond, Scan
from loopax.ir.pformat import constant_as_text, op_as_text
from loopax.lowering.bodies import with_body

if TYPE_CHECKING:
    from loopax.ir.ops.inner_graph_op import InnerGraphOp

MOST_BOXES = 400  # a larger drawing is unreadable

_ROW, _HEIGHT = 30.0, 22.0  # distance of boxes, height of a box
_LETTER, _LONGEST = (6.7, 60)  # the width of a letter at the page's font size; letters in a box
_WIDEST_ARC = 120.0


class Body(NamedTuple):
    """A body in a program. ``number`` is its path: 2.1 is the first body inside of the second."""

    number: str
    op: Any
    inside: tuple[Body, ...]

    def flat(self) -> Iterator[Body]:
        """Yield this body and all bodies inside of it."""
        yield self
        for body in self.inside:
            yield from body.flat()


def bodies(graph: AbstractFunctionGraph, prefix: str = "") -> tuple[Body, ...]:
    """The bodies of a graph's ops, each with its nested bodies."""
    ops = [op for node in _nodes(graph) if (op := with_body(node.op)) is not None]
    return tuple(
        Body(f"{prefix}{k}", op, bodies(op.fgraph, f"{prefix}{k}.")) for k, op in enumerate(ops, 1)
    )


def _nodes(graph: AbstractFunctionGraph) -> list[Apply]:
    """Nodes in order, without duplicates: a frozen graph of two equal nodes lists one of them twice."""
    return list(dict.fromkeys(graph.toposort()))


def caption(op: InnerGraphOp) -> str:
    """Describe an op with a body in one line."""
    if isinstance(op, Scan):
        parts = {"sequence": op.n_seqs, "state": op.n_states, "constant": op.n_consts}
        parts["trace"] = op.n_ys
    else:
        n_outs = op.n_outs if isinstance(op, Cond) else len(op.fgraph.outputs)
        parts = {"input": len(op.fgraph.inputs), "output": n_outs}
    parts["op"] = len(op.fgraph.apply_nodes)
    listed = ", ".join(f"{n} {kind}{'s' * (n != 1)}" for kind, n in parts.items())
    return f"{op}: {listed}"


def drawing(op: InnerGraphOp) -> str | None:
    """The body of ``op`` as an SVG element; None where it has too many boxes."""
    boxes = _boxes(op)
    if len(boxes) > MOST_BOXES:
        return None
    ys = [_ROW * (k + 0.5) for k in range(len(boxes))]
    arcs = [(ys[a], ys[b], title) for b, box in enumerate(boxes) for a, title in box.operands]
    edge = max([0.0, *(min((b - a) / 2, _WIDEST_ARC) for a, b, _ in arcs)]) + 2
    widths = [_LETTER * len(_short(box.label)) + 16 for box in boxes]
    width, height = edge + max(widths, default=0.0) + 2, _ROW * len(boxes)
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [f'<svg class="body" role="img" {size}><title>{escape(caption(op))}</title>']
    for a, b, title in arcs:
        arc = f"A{min((b - a) / 2, _WIDEST_ARC):.0f} {(b - a) / 2:.0f} 0 0 0"
        parts.append(
            f'<path d="M{edge:.0f} {a:.0f}{arc} {edge:.0f} {b:.0f}"><title>{escape(title)}</title></path>'
        )
    for box, y, wide in zip(boxes, ys, widths, strict=True):
        parts.append(
            f'<g class="{box.kind}"><title>{escape(box.title)}</title><rect x="{edge:.0f}" '
            f'y="{y - _HEIGHT / 2:.0f}" width="{wide:.0f}" height="{_HEIGHT:.0f}" rx="4"/>'
            f'<text x="{edge + 8:.0f}" y="{y + 4:.0f}">{escape(_short(box.label))}</text></g>'
        )
    return "".join([*parts, "</svg>"])


class _Box(NamedTuple):
    """A box; ``operands`` are the positions of the boxes that it reads, with the types of values."""

    kind: str  # in, op, loop, out
    label: str
    title: str
    operands: list[tuple[int, str]]


def _boxes(op: InnerGraphOp) -> list[_Box]:
    body = op.fgraph
    inputs, outputs = _names(op)
    read_variables = {v for node in _nodes(body) for v in node.inputs} | set(body.outputs)
    boxes: list[_Box] = []
    place: dict[Variable, int] = {}

    def add(kind: str, label: str, title: str, operands: Sequence[Variable] = ()) -> int:
        arcs = [(place[v], str(v.type)) for v in operands if not isinstance(v, Constant)]
        boxes.append(_Box(kind, label, title, arcs))
        return len(boxes) - 1

    for v, name in zip(body.inputs, inputs, strict=True):
        if v in read_variables or name != "i":  # every step has an index, and few read it
            place[v] = add("in", name, f"{name}: {v.type}")
    n_bodies = 0
    for node in _nodes(body):
        label, kind = _label(node), "op"
        if with_body(node.op) is not None:
            n_bodies += 1
            label, kind = f"#{n_bodies} {label}", "loop"
        types = ", ".join(str(v.type) for v in node.outputs)
        position = add(kind, label, f"{node.op}: {types}", node.inputs)
        place.update(dict.fromkeys(node.outputs, position))
    for v, name in zip(body.outputs, outputs, strict=True):
        label = f"{name} = {constant_as_text(v)}" if isinstance(v, Constant) else name
        add("out", label, f"{name}: {v.type}", [v])
    return boxes


def _names(op: InnerGraphOp) -> tuple[list[str], list[str]]:
    """Names for the inputs and outputs of an op's body, in the style of `pformat`."""
    n, m = len(op.fgraph.inputs), len(op.fgraph.outputs)
    if isinstance(op, Scan):
        inputs = ["i", *_numbered("x", op.n_seqs), *_numbered("s", op.n_states)]
        outputs = [*_numbered("next s", op.n_states), *_numbered("trace ", op.n_ys)]
        return [*inputs, *_numbered("c", op.n_consts)], [*outputs, *["stop"] * op.stops]
    if isinstance(op, Cond):
        outputs = [*_numbered("then ", op.n_outs), *_numbered("else ", op.n_outs)]
        return _numbered("in ", n), outputs
    return _numbered("in ", n), _numbered("out ", m)


def _numbered(letter: str, n: int) -> list[str]:
    return [f"{letter}{k}" for k in range(n)]


def _label(node: Apply) -> str:
    """Name an op, with its operands where some are constants: ``mul(2.0, ·)``."""
    name = op_as_text(node.op)
    if not any(isinstance(v, Constant) for v in node.inputs):
        return name
    operands = [constant_as_text(v) if isinstance(v, Constant) else "·" for v in node.inputs]
    return f"{name}({', '.join(operands)})"


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"
