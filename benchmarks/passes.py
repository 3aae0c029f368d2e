"""The passes: their share of the time to the first result, and how they grow with the program.

The first result is reading the graph, the passes, tracing, compiling and one run. What is beside it is the
time in `loopax.lowering`, all of it and pass by pass.

Growth is seconds a node, bodies included, beside those of the smallest program of the kind.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytensor.tensor as pt

from benchmarks.comparisons import COMPARISONS, Comparison
from benchmarks.measure import Pairs, no_collection
from benchmarks.programs import PROGRAMS, Program
from benchmarks.report import GROWTH, PASSES, Figure
from benchmarks.stopping import arguments, ours_graph
from loopax import scan
from loopax.frontend import read_variables
from loopax.importer.import_graph import import_graph
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.jax_backend.callable.function import JaxFunction
from loopax.lowering import order

SHARE, LINEAR = 0.2, 2.0

STOPPING = Program("stopping", ours_graph, None, lambda: [np.asarray(x) for x in arguments()])


def passes(pairs: int) -> Iterator[Figure]:
    """Shares, then growth."""
    for program in (*PROGRAMS.values(), STOPPING):
        for comparison in COMPARISONS:
            yield from shares(program, comparison, pairs)
    for kind, (build, sizes) in KINDS.items():
        yield from growth(kind, build, sizes, pairs)


# -- the share of the time to the first result ---------------------------------------------------------


def shares(program: Program, comparison: Comparison, pairs: int) -> Iterator[Figure]:
    args = [jax.device_put(x) for x in program.values()]
    runs = [stages(program, comparison, args) for _ in range(pairs + 1)][1:]
    whole = np.array([sum(run.values()) for run in runs])
    names = list(dict.fromkeys(run.__name__ for run in order.PASSES))
    of = {name: np.array([run[name] for run in runs]) for name in names}
    yield Figure(program.title, comparison.name, PASSES, SHARE, Pairs(sum(of.values()), whole))
    for name in names:
        yield Figure(program.title, f"  {name}", PASSES, None, Pairs(of[name], whole))


def stages(program: Program, comparison: Comparison, args: Any) -> dict[str, float]:
    """Seconds of each stage from the PyTensor graph to the first result, by name."""
    inputs, outputs = comparison.graph(program)
    jax.clear_caches()
    gc.collect()
    seconds: dict[str, float] = defaultdict(float)
    with no_collection():
        clock = time.perf_counter()

        def done(name: str) -> None:
            nonlocal clock
            now = time.perf_counter()
            seconds[name] += now - clock
            clock = now

        read = read_variables(inputs, outputs)
        import_graph(read.graph)
        done("read")
        for run in order.PASSES:
            run(read.graph)
            done(run.__name__)
        jax.block_until_ready(under(comparison, JaxFunction(read))(*args))
        done("first call")
    return seconds


def under(comparison: Comparison, f: Callable) -> Callable:
    """The jitted function of a comparison, from what `jaxify` gives."""
    if comparison.name == "jax.grad":
        argnums = tuple(range(len(f.program.inputs)))
        return jax.jit(jax.value_and_grad(f, argnums))
    return jax.jit(f)


# -- growth ------------------------------------------------------------------------------------------


def step(c: Any, x: Any, count: int) -> Any:
    """About ``count`` nodes of arithmetic."""
    for k in range(count // 5):
        c = pt.tanh(c * (0.5 + k) + pt.sin(x - c))
    return c


def straight(nodes: int) -> Any:
    x, c = pt.dvector("x"), pt.dscalar("c")
    return [x, c], [step(c, x, nodes)]


def chained(nodes: int, loops: int) -> Any:
    """Each reads the trace of the one before."""
    x, c = pt.dvector("x"), pt.dscalar("c")
    trace, finals = x, []
    for _ in range(loops):
        final, trace = scan(lambda c, r: 2 * (step(c, r, nodes // loops),), c, trace)
        finals.append(final)
    return [x, c], [trace, *finals]


def independent(nodes: int, loops: int) -> Any:
    """All over one sequence; no two are equal."""
    x, c = pt.dvector("x"), pt.dscalar("c")
    outs = []
    for k in range(loops):
        outs += scan(lambda c, r: 2 * (step(c, r * k, nodes // loops),), c, x)  # noqa: B023
    return [x, c], outs


def nested(nodes: int, loops: int) -> Any:
    """Chained, and half of the loops in the others."""
    x, c = pt.dvector("x"), pt.dscalar("c")
    half = nodes // loops

    def outer(c: Any, r: Any) -> Any:
        final, _ = scan(lambda d, q: (step(d, q, half), None), c, x)
        c = step(final, r, half)
        return c, c

    trace = x
    for _ in range(loops // 2):
        _, trace = scan(outer, c, trace)
    return [x, c], [trace]


def gradients(nodes: int, loops: int) -> Any:
    """Of chained loops: twice the loops, with what a pullback leaves in them."""
    inputs, (trace, *_) = chained(nodes // 4, loops // 2)
    return inputs, pt.grad((trace**2).sum(), inputs)


SIZES = [(500, 5), (1000, 10), (2000, 20), (5000, 50)]
KINDS: dict[str, tuple[Callable, list[tuple[int, ...]]]] = {
    "no loops": (straight, [(500,), (1000,), (2000,), (5000,)]),
    "chained": (chained, SIZES),
    "independent": (independent, SIZES),
    "nested": (nested, [(500, 6), (1000, 10), (2000, 20), (5000, 50)]),
    "gradients": (gradients, [(500, 6), (1000, 10), (2000, 20), (5000, 50)]),
}


def growth(kind: str, build: Callable, sizes: Any, pairs: int) -> Iterator[Figure]:
    """Process time, which others on the machine disturb less: nothing here waits or has threads."""
    rows: list[list[tuple[int, float]]] = []
    for _ in range(max(1, pairs // 5)):
        rows.append([a_node(build, size) for size in sizes])
    seconds = np.array([[s for _, s in row] for row in rows])
    for k, size in enumerate(sizes):
        name = f"{rows[0][k][0]} nodes" + (f", {size[1]} loops" if len(size) > 1 else "")
        limit = LINEAR if k else None
        yield Figure(kind, name, GROWTH, limit, Pairs(seconds[:, k], seconds[:, 0]))


def a_node(build: Callable, size: tuple[int, ...]) -> tuple[int, float]:
    """The number of nodes of a program, and seconds that lowering takes for each."""
    read = read_variables(*build(*size))
    import_graph(read.graph)
    count = nodes_of(read.graph)
    gc.collect()
    start = time.process_time()
    order.lower(read.graph)
    return count, (time.process_time() - start) / count


def nodes_of(graph: Any) -> int:
    """With those in bodies."""
    inner = [node.op.fgraph for node in graph.toposort() if isinstance(node.op, InnerGraphOp)]
    return len(graph.toposort()) + sum(map(nodes_of, inner))
