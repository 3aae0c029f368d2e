"""A large program in one screen: its loops, its ops, estimated times, and choices of the backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.tensor.blockwise import Blockwise

from loopax.base.errors import source_line
from loopax.explanation.drawing import caption
from loopax.explanation.expected_time import expected_times
from loopax.facts.elementwise import scalar_op_of
from loopax.ir import Scan
from loopax.ir.ops.inner_graph_op import core_of
from loopax.ir.sizes import Clipped, DimExpr, Dims, Length, counts_steps
from loopax.lowering.bodies import with_body
from loopax.lowering.record import Counts

if TYPE_CHECKING:
    from loopax.ir.sizes.dim_expr import DimVariable

MOST_OPS = 150  # ops of the largest stage: the text of more fills several screens, at each stage

_MOST_LOOPS = 12
_MOST_OPS_NAMED = 8
_MOST_SHARES, _LEAST_SHARE = 6, 0.02


def is_large(stages: Sequence[Counts]) -> bool:
    """Whether the report on a program opens with a summary, by its counts at each stage."""
    return max(c.loops + c.outside + c.inside for c in stages) > MOST_OPS


def summary(lowered: FunctionGraph, chosen: Sequence[str]) -> str:
    """Summarise the program after the last pass; ``chosen`` are the backend's remarks so far."""
    times = expected_times(lowered)
    loops = [node for node in times if with_body(node.op) is not None]
    lines = ["loops, branches and calls:"]
    lines += [f"  {line}" for line in _loop_lines(loops)]
    lines += ["other ops:", f"  {_op_counts(lowered)}"]
    lines += ["where time is expected (lengths that are not known count as 100):"]
    lines += [f"  {line}" for line in _time_shares(times, loops)]
    lines += ["what was chosen:"]
    lines += [f"  {line}" for line in chosen or ["nothing so far: no call, or no choice"]]
    return "\n".join(lines)


def _loop_lines(loops: Sequence[Apply]) -> Iterator[str]:
    """Yield a line for each body of the program, nested bodies behind their loop."""
    dims = Dims()
    for k, node in enumerate(loops[:_MOST_LOOPS], 1):
        at = PurePath(source_line(node.outputs[0]).partition(", in ")[0]).name
        yield f"{k} {_loop_in_words(node, dims)}{f' ({at})' if at else ''}"
        for number, inner in _inner(with_body(node.op).fgraph, f"{k}."):  # type: ignore[union-attr]
            yield f"  {number} {_loop_in_words(inner, Dims())}"
    if len(loops) > _MOST_LOOPS:
        yield f"and {len(loops) - _MOST_LOOPS} more"
    if not loops:
        yield "none"


def _inner(graph: AbstractFunctionGraph, prefix: str) -> Iterator[tuple[str, Apply]]:
    nodes = [node for node in graph.toposort() if with_body(node.op) is not None]
    for k, node in enumerate(dict.fromkeys(nodes), 1):
        yield f"{prefix}{k}", node
        yield from _inner(with_body(node.op).fgraph, f"{prefix}{k}.")  # type: ignore[union-attr]


def _loop_in_words(node: Apply, dims: Dims) -> str:
    """Describe a loop with its steps: ``Scan{step}: 2000 steps, 1 sequence, ...``."""
    op: Any = with_body(node.op)
    title, _, details = caption(op).partition(": ")
    if isinstance(node.op, Blockwise):
        title = f"a batch of {title}"
    if not isinstance(op, Scan):
        return f"{title}: {details}"
    n_steps: Any = node.inputs[0]
    number = None if n_steps.type.ndim else _number(dims.value(n_steps))
    steps = "steps known when it runs" if number is None else f"{number} steps"
    return f"{title}: {'at most ' if op.stops and number else ''}{steps}, {details}"


def _number(expr: DimExpr) -> str | None:
    """Format a number: ``2000``, ``n - 1``, ``length of y``. None where a variable has no name."""
    terms = [(k, _variable(v)) for v, k in expr.terms]
    if any(name is None for _, name in terms):
        return None
    parts = [name if k == 1 else f"{k} x {name}" for k, name in sorted(terms, key=str)]
    text = " + ".join(map(str, parts))
    if not text:
        return str(expr.offset)
    return f"{text} {'+' if expr.offset > 0 else '-'} {abs(expr.offset)}" if expr.offset else text


def _variable(v: DimVariable) -> str | None:
    if isinstance(v, Length):
        name = v.of.name
        return name and (f"length of {name}" if v.axis == 0 else f"axis {v.axis} of {name}")
    if isinstance(v, Clipped):
        a, b = _number(v.a), _number(v.b)
        return None if None in (a, b) else f"{'max' if v.largest else 'min'}({a}, {b})"
    return None if counts_steps(v) else getattr(v, "name", None)


def _op_counts(graph: FunctionGraph) -> str:
    counts = Counter(_name(node) for node in graph.apply_nodes if with_body(node.op) is None)
    if not counts:
        return "none"
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    n_more = sum(n for _, n in listed[_MOST_OPS_NAMED:])
    listed_ops = ", ".join(f"{n} {name}" for name, n in listed[:_MOST_OPS_NAMED])
    return f"{listed_ops}, {n_more} more" if n_more else listed_ops


def _name(node: Apply) -> str:
    """The name of an op, without its options."""
    op = core_of(node.op)
    if (scalar := scalar_op_of(op)) is not None:
        return str(getattr(scalar, "name", None) or type(scalar).__name__.lower()).partition("{")[0]
    return type(op).__name__


def _time_shares(times: dict[Apply, float], loops: Sequence[Apply]) -> Iterator[str]:
    """Yield the shares of loops, and of other ops by name, the largest first."""
    total = sum(times.values()) or 1.0
    shares: dict[str, float] = {}
    for node, time in times.items():
        number = loops.index(node) + 1 if node in loops else None
        title = _name(node) if number is None else f"{number} {with_body(node.op)}"
        shares[title] = shares.get(title, 0.0) + time / total
    largest = sorted(shares.items(), key=lambda item: (-item[1], item[0]))[:_MOST_SHARES]
    yield from (f"{share:4.0%} {title}" for title, share in largest if share >= _LEAST_SHARE)
