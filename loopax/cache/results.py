"""Rewritten graphs on disk: a result of a second of passes is read back in milliseconds.

    make(x -> exp(x) + exp(x))           as    inputs: 1    nodes: [exp 0], [mul 1 c]    outputs: [2]

A result is kept as lists of numbers, ops and types. Parts that it shares with its source graph
(inputs, constants, ops, the user's lines) are kept as positions there, and taken from the current
graph when the result is read.
"""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort

from loopax.cache import folder
from loopax.cache.graph_key import KeyedGraph, keyed, semantic_tags

_LEAST = 0.02  # seconds: a result computed in less is computed again as fast
_LARGEST = 64 * 2**20  # bytes of one result

Positions = Sequence[int]


class _Node(NamedTuple):
    op: Any
    inputs: Positions
    outputs: Sequence[tuple[Any, _Label]]  # with the type of each


class _Label(NamedTuple):
    """The name and the tags of a variable."""

    name: str | None
    tags: dict[str, Any]
    lines: Sequence[tuple[int, int]]  # the user's lines, as positions on variables of the source


def cached(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    make: Callable[[], Sequence[Any]],
    *key_parts: Hashable,
) -> list[Any]:
    """The variables that ``make`` computes from the graph between ``inputs`` and ``outputs``.

    Parameters
    ----------
    make
        A function that may change the graph in place.
    key_parts
        Further inputs of the result, besides the graph; see `keyed`.

    Returns
    -------
    Variables of a graph whose roots are ``inputs`` or are among the returned variables.
    """
    # Copies, since ``make`` may change the graph in place.
    inputs, outputs = list(inputs), list(outputs)
    source = keyed(inputs, outputs, *key_parts)
    if source is None:
        return list(make())
    data = folder.read(source.key)
    if data is not None:
        try:
            with config.change_flags(traceback__limit=0):  # the user's lines count, not these
                return _loaded(data, source)
        except Exception:  # a damaged result is computed again
            folder.remove(source.key)
    lines = {id(line): position for line, position in _lines(source)}
    start = time.perf_counter()
    results = list(make())
    if time.perf_counter() - start > _LEAST:
        _keep(results, source, lines)
    return results


def _keep(
    results: Sequence[Variable], source: KeyedGraph, lines: dict[int, tuple[int, int]]
) -> None:
    try:
        data = _dumped(results, source, lines)
    except Exception:  # an op that does not pickle
        return
    if len(data) <= _LARGEST:
        folder.write(source.key, data)


# -- from variables to bytes, and back -------------------------------------------------------------------


def _dumped(
    results: Sequence[Variable], source: KeyedGraph, lines: dict[int, tuple[int, int]]
) -> bytes:
    of_source = {v: k for k, v in enumerate(source.variables)}
    positions: dict[Any, int] = {}
    roots: list[Any] = []
    nodes: list[_Node] = []

    def label_of(v: Variable) -> _Label:
        line_positions = [
            lines[id(line)] for line in getattr(v.tag, "trace", ()) if id(line) in lines
        ]
        return _Label(v.name, semantic_tags(v), line_positions)

    def add_root(v: Variable) -> None:
        if v in positions:
            return
        positions[v] = len(positions)
        if v in of_source:
            roots.append(of_source[v])
        elif isinstance(v, Constant):
            roots.append((type(v), v.type, v.data, label_of(v)))
        else:
            roots.append((v.type.make_variable, label_of(v)))

    order = list(toposort(results))
    # Roots first, so that the outputs of nodes have the later numbers.
    for v in [*(v for node in order for v in node.inputs), *results]:
        if v.owner is None:
            add_root(v)
    for node in order:
        outs = [(v.type, label_of(v)) for v in node.outputs]
        nodes.append(_Node(node.op, [positions[v] for v in node.inputs], outs))
        positions.update({v: len(positions) + k for k, v in enumerate(node.outputs)})
    buffer = io.BytesIO()
    _Pickler(buffer, source.ops).dump((roots, nodes, [positions[v] for v in results]))
    return buffer.getvalue()


def _loaded(data: bytes, source: KeyedGraph) -> list[Any]:
    roots, nodes, results = _Unpickler(io.BytesIO(data), source.ops).load()
    source_lines = {position: line for line, position in _lines(source)}
    variables: list[Any] = []

    def write_on(v: Variable, label: _Label) -> Any:
        vars(v.tag).update(label.tags)
        if stack := [source_lines[line] for line in label.lines if line in source_lines]:
            v.tag.trace = stack
        return v

    for root in roots:
        if isinstance(root, int):
            variables.append(source.variables[root])
        else:
            make, *args, label = root
            variables.append(write_on(make(*args, name=label.name), label))
    for op, inputs, outputs in nodes:
        # `make_variable`: calling the type walks the stack for the user's line.
        outs = [write_on(t.make_variable(name=label.name), label) for t, label in outputs]
        variables += Apply(op, [variables[k] for k in inputs], outs).outputs
    return [variables[k] for k in results]


def _lines(source: KeyedGraph) -> Iterator[tuple[Any, tuple[int, int]]]:
    """The user's lines, each with its position in the source."""
    for k, v in enumerate(source.variables):
        for j, line in enumerate(getattr(v.tag, "trace", None) or ()):
            yield line, (k, j)


class _Pickler(pickle.Pickler):
    """A pickler that writes an op of the source as its position there."""

    def __init__(self, file: IO[bytes], ops: Sequence[Op]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._positions = {id(op): k for k, op in enumerate(ops)}

    def persistent_id(self, obj: object) -> int | None:
        return self._positions.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], ops: Sequence[Op]) -> None:
        super().__init__(file)
        self._ops = ops

    def persistent_load(self, pid: int) -> Any:
        return self._ops[pid]
