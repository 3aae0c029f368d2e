"""The rewrites registered with PyTensor, and a key that is equal in processes with the same rewrites."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from types import FunctionType, MethodType, UnionType
from typing import Any

from pytensor.compile.mode import optdb
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.graph.rewriting.db import RewriteDatabase
from pytensor.graph.type import Type

from loopax.cache.graph_key import content_key

# Attributes that a rewrite derives from its other attributes, or changes when it runs.
_DERIVED = (
    "_tracked_ops",
    "_tracked_types",
    "_tracked_op_pattern_types",
    "_tracked_op_patterns",
    "tracker",
    "node_tracker",
)

_databases: list[Any] = []  # PyTensor's databases, nested ones too: finding them takes 2 ms
_seen: list[Any] = []
_changes = 0


def registrations() -> int:
    """The number of times that a change of the registered rewrites has been seen."""
    global _databases, _seen, _changes
    if not _databases or _entries(_databases) != _seen:
        _databases = _with_inner(optdb)
        _seen = _entries(_databases)
        _changes += 1
    return _changes


def registered_rewrites() -> str | None:
    """The key of all rewrites; None where one of them runs user code."""
    return _key(registrations())


def _entries(databases: Iterable[Any]) -> list[Any]:
    """The sets of rewrites and their sizes: a rewrite that replaces another of its name is in a new set."""
    sets = [x for database in databases for x in database.__db__.values() if x]
    return [*sets, *map(len, sets)]


def _with_inner(database: RewriteDatabase) -> list[Any]:
    entries = dict.fromkeys(entry for named in database.__db__.values() for entry in named)
    inner = [x for x in (*entries, getattr(database, "db", None)) if isinstance(x, RewriteDatabase)]
    return [database, *(one for each in inner for one in _with_inner(each))]


@lru_cache(maxsize=1)
def _key(changes: int) -> str | None:
    """The key of all names, orders, positions and contents of the rewrites."""
    numbers: dict[Any, int] = {}
    lines = []
    for database in _databases:
        positions = getattr(database, "__position__", {})
        for name, rewrites in database.__db__.items():
            places = [numbers.setdefault(one, len(numbers)) for one in rewrites]
            lines += [(str(database.name), name, places, str(positions.get(name)))] * bool(places)
    return content_key(lines, [_parts(one) for one in numbers])


def _parts(x: Any, around: tuple[Any, ...] = ()) -> Any:
    """The attributes of a rewrite, for `content_key`; ``around`` are the objects that contain ``x``."""
    # `isinstance` asks each of the hundreds of subclasses of `Op`: ten times the cost of all of this.
    kinds = type(x).__mro__
    if any(kind in kinds for kind in (str, int, float, type(None), type, FunctionType, Op)):
        return x
    if any(x is one for one in around):
        return len(around)
    is_pattern = type(x).__name__ == "ExpressionTuple"  # on PyTensor 3.0; 3.3 has tuples
    if isinstance(x, tuple | list) or is_pattern:
        return tuple(_parts(one, around) for one in x)
    if isinstance(x, set | frozenset):
        return sorted(str(content_key(_parts(one, around))) for one in x)
    if isinstance(x, dict):
        return _parts(list(x.items()), around)
    if isinstance(x, UnionType):
        return x.__args__
    if isinstance(x, MethodType):
        return x.__func__, _parts(x.__self__, around)
    if isinstance(x, partial):
        return _parts((x.func, x.args, x.keywords), around)
    if Variable in kinds or Type in kinds or type(x).__module__.startswith("unification."):
        return str(x)
    if isinstance(x, RewriteDatabase):
        return type(x), str(x.name)  # one of `_databases`
    if not type(x).__module__.startswith("pytensor."):
        return x
    names = vars(x) if hasattr(x, "__dict__") else type(x).__slots__
    attributes = {name: getattr(x, name, None) for name in names if name not in _DERIVED}
    return type(x), {name: _parts(v, (*around, x)) for name, v in attributes.items()}
