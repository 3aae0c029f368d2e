"""The function `profile`: the measured time of each loop and each kind of op of a program."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.builders import Builder
from loopax.calling import backend_named
from loopax.diagnosing import read_call
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.loops import LoopRun
from loopax.diagnosis.origin import Origin
from loopax.explanation.expected_time import expected_times
from loopax.explanation.profile import Part, Profile
from loopax.facts import Structure, facts_of
from loopax.ir.ops.inner_graph_op import InnerGraphOp, core_of
from loopax.ir.program import Program
from loopax.lowering import passes_with, run_passes

_CALLS, _SECONDS = 200, 0.3  # for each part, whichever comes first
_KINDS = {
    Structure.ELEMENTWISE: "elementwise",
    Structure.MOVES: "indexing and reshaping",
    Structure.SHAPE: "shape",
    Structure.REDUCES: "reduction",
    Structure.CONTRACTS: "matrix product",
    Structure.MAKES: "array creation",
    Structure.OTHER: "other",
}


def profile(fn: object, /, *args: object, **kwargs: object) -> Profile:
    """Measure how long each loop, and each kind of op, of a program takes in each form, for one call.

    Each part runs as a separate program, on its values in the call: as JAX's operations and as native
    code. The table lists the expected shares of `loopax.explain` with the measured times.

    Parameters
    ----------
    fn
        Any function that `loopax.diagnose` takes, except transformations.
    args, kwargs
        The arguments of the call.

    Returns
    -------
    A table; ``to_trace(path)`` writes it for Perfetto.

    Raises
    ------
    TypeError
        ``fn`` is not a function with a program.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from loopax import jaxify, profile, scan
    >>> f = jaxify(lambda x: scan(lambda c, r: (pt.tanh(c + r), None), 0.0, x)[0] + x.sum())
    >>> measured = profile(f, np.ones(100))
    >>> [part.title for part in measured.parts if "loop" in part.title]
    ['Scan{loop}: 100 steps']
    """
    call = read_call(fn, args, kwargs)
    forms = {"JAX's operations": _builder("jax", loops="xla"), "native code": _builder("numba")}
    graph = call.graph.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user's own call has warned
        run_passes(graph, passes_with("none", backend_named("jax").passes))
        frame = Frame(graph, call.values)
        with np.errstate(all="ignore"):
            call.runner.run(frame)
        whole = {name: _seconds(build, graph, call.values) for name, build in forms.items()}
        expected = expected_times(graph)
        total = sum(expected.values()) or 1.0
        parts = []
        for title, line, nodes in _parts(frame):
            program, values = _program_of(frame, nodes)
            if program is None:
                continue
            seconds = {
                n: s
                for n, build in forms.items()
                if (s := _seconds(build, program, values)) is not None
            }
            parts.append(Part(title, line, seconds, sum(expected[node] for node in nodes) / total))
    parts.sort(key=lambda part: -max(part.seconds.values(), default=0.0))
    return Profile(
        call.name, {n: s for n, s in whole.items() if s is not None}, parts, call.remarks
    )


def _builder(backend: str, **options: object) -> Builder:
    chosen = backend_named(backend)
    return Builder(chosen, chosen.options(True, "callback", **options))


def _parts(frame: Frame) -> list[tuple[str, str, list[Apply]]]:
    """Partition the nodes: each loop, branch and call alone, all other ops by structure."""
    parts: list[tuple[str, str, list[Apply]]] = []
    kinds: dict[str, list[Apply]] = {}
    for node in frame.order:
        run = frame.inside.get(node)
        if isinstance(core_of(node.op), InnerGraphOp):
            steps = f": {run.n_done} steps" if isinstance(run, LoopRun) else ""
            origin = getattr(getattr(core_of(node.op), "options", None), "origin", None)
            place = (
                Origin(node.outputs[0]).place or Origin.parsed(getattr(origin, "line", "")).place
            )
            parts.append((f"{node.op}{steps}", place, [node]))
        else:
            kinds.setdefault(_KINDS[facts_of(node.op).structure], []).append(node)
    for kind, nodes in kinds.items():
        parts.append((f"{len(nodes)} {kind} op{'s' if len(nodes) > 1 else ''}", "", nodes))
    return parts


def _program_of(frame: Frame, nodes: Sequence[Apply]) -> tuple[FunctionGraph | None, list[Any]]:
    """A program of ``nodes`` on their operands, and the values of these operands in the run."""
    inside = {v for node in nodes for v in node.outputs}
    operands = dict.fromkeys(
        v for node in nodes for v in node.inputs if v not in inside and not isinstance(v, Constant)
    )
    outputs = [v for node in nodes for v in node.outputs if isinstance(v.type, DenseTensorType)]
    if not operands or not outputs:
        return None, []
    new: dict[Any, Any] = {v: v.type() for v in operands}
    for node in nodes:
        copied = Apply(
            node.op, [new.get(v, v) for v in node.inputs], [v.type() for v in node.outputs]
        )
        new.update(zip(node.outputs, copied.outputs, strict=True))
    graph = FunctionGraph([new[v] for v in operands], [new[v] for v in outputs], clone=False)
    return graph, [frame.value(v) for v in operands]


def _seconds(
    build: Callable[[Program], Any], graph: FunctionGraph, values: Sequence[Any]
) -> float | None:
    """The median time of a call; None where the form cannot run it."""
    copy = graph.clone()
    try:
        f = build(Program.of_graph(copy))
        _block_until_ready(f(*values))
    except Exception:  # a type or an op that the form lacks
        return None
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(times) < _CALLS and (not times or time.perf_counter() < end):
        begin = time.perf_counter()
        _block_until_ready(f(*values))
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def _block_until_ready(outputs: Any) -> None:
    for x in outputs:
        if hasattr(x, "block_until_ready"):
            x.block_until_ready()
