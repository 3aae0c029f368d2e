"""What is made of a graph, on disk: what takes passes a second takes a second process a few milliseconds.

    make(x -> exp(x) + exp(x))           as    inputs: 1    nodes: [exp 0], [mul 1 c]    outputs: [2]

A result is kept as lists of numbers, ops and types. What it shares with the graph that it was made of (its
inputs, its constants, ops, the user's lines) is the place of that in it, so that all of this is that of
the graph at hand when it is read again.
"""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.traversal import toposort

from loopax.cache import folder
from loopax.cache.graph_key import KeyedGraph, keyed, meant_tags

_LEAST = 0.02  # seconds: what is made in less is as soon made again
_LARGEST = 64 * 2**20  # bytes of one result

Places = Sequence[int]


class _Node(NamedTuple):
    op: Any
    inputs: Places
    outputs: Sequence[tuple[Any, _Label]]  # the type of each


class _Label(NamedTuple):
    """What is written on a variable."""

    name: str | None
    tags: dict[str, Any]
    lines: Sequence[tuple[int, int]]  # the user's: where they stand on a variable of the source


def cached(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    make: Callable[[], Sequence[Any]],
    *parts: Hashable,
) -> list[Any]:
    """The variables that ``make`` makes of the graph between ``inputs`` and ``outputs``.

    Parameters
    ----------
    make
        It may change the graph in place.
    parts
        What the result depends on besides the graph; see `keyed`.

    Returns
    -------
    What follows from ``inputs``, or from variables that are among them or among those that are returned.
    """
    # The lists are of now: a graph that is changed in place is another one afterwards.
    inputs, outputs = list(inputs), list(outputs)
    source = keyed(inputs, outputs, *parts)
    if source is None:
        return list(make())
    data = folder.read(source.key)
    if data is not None:
        try:
            with config.change_flags(traceback__limit=0):  # the lines are the user's, not these
                return _loaded(data, source)
        except Exception:  # whatever is wrong with it, it is made anew
            folder.remove(source.key)
    lines = {id(line): place for line, place in _lines(source)}
    start = time.perf_counter()
    made = list(make())
    if time.perf_counter() - start > _LEAST:
        _keep(made, source, lines)
    return made


def _keep(made: Sequence[Any], source: KeyedGraph, lines: dict[int, tuple[int, int]]) -> None:
    try:
        data = _dumped(made, source, lines)
    except Exception:  # an op that does not pickle
        return
    if len(data) <= _LARGEST:
        folder.write(source.key, data)


# -- from variables to bytes, and back -------------------------------------------------------------------


def _dumped(made: Sequence[Any], source: KeyedGraph, lines: dict[int, tuple[int, int]]) -> bytes:
    of_source = {v: k for k, v in enumerate(source.variables)}
    places: dict[Any, int] = {}
    roots: list[Any] = []
    nodes: list[_Node] = []

    def label_of(v: Any) -> _Label:
        own = [lines[id(line)] for line in getattr(v.tag, "trace", ()) if id(line) in lines]
        return _Label(v.name, meant_tags(v), own)

    def add_root(v: Any) -> None:
        if v in places:
            return
        places[v] = len(places)
        if v in of_source:
            roots.append(of_source[v])
        elif isinstance(v, Constant):
            roots.append((type(v), v.type, v.data, label_of(v)))
        else:
            roots.append((v.type.make_variable, label_of(v)))

    order = list(toposort(made))
    # Roots first, so that the nodes' own variables have the numbers behind them.
    for v in [*(v for node in order for v in node.inputs), *made]:
        if v.owner is None:
            add_root(v)
    for node in order:
        outs = [(v.type, label_of(v)) for v in node.outputs]
        nodes.append(_Node(node.op, [places[v] for v in node.inputs], outs))
        places.update({v: len(places) + k for k, v in enumerate(node.outputs)})
    buffer = io.BytesIO()
    _Pickler(buffer, source.ops).dump((roots, nodes, [places[v] for v in made]))
    return buffer.getvalue()


def _loaded(data: bytes, source: KeyedGraph) -> list[Any]:
    roots, nodes, made = _Unpickler(io.BytesIO(data), source.ops).load()
    here = {place: line for line, place in _lines(source)}
    variables: list[Any] = []

    def write_on(v: Any, label: _Label) -> Any:
        vars(v.tag).update(label.tags)
        if found := [here[line] for line in label.lines if line in here]:
            v.tag.trace = found
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
    return [variables[k] for k in made]


def _lines(source: KeyedGraph) -> Iterator[tuple[Any, tuple[int, int]]]:
    """Each of the user's lines, and where it stands in the source."""
    for k, v in enumerate(source.variables):
        for j, line in enumerate(getattr(v.tag, "trace", None) or ()):
            yield line, (k, j)


class _Pickler(pickle.Pickler):
    """A pickler that writes an op of the source as its place there."""

    def __init__(self, file: Any, ops: Sequence[Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._places = {id(op): k for k, op in enumerate(ops)}

    def persistent_id(self, obj: Any) -> int | None:
        return self._places.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, ops: Sequence[Any]) -> None:
        super().__init__(file)
        self._ops = ops

    def persistent_load(self, pid: int) -> Any:
        return self._ops[pid]
