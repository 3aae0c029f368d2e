"""Typed lists: of rows of one shape."""

from typing import Any

import pytensor.tensor as pt
from pytensor import typed_list
from pytensor.typed_list import make_list

from tests.every_op.record import A, N, U, V

TITLE = "Typed lists"
SLOW: set[tuple[str, str]] = set()
REASONS: list[str] = []
BASES: dict[str, str] = {}


def rows() -> Any:
    """Three rows, the last one twice."""
    return make_list([V, U * A, U * A])


def items(made: Any, *positions: int) -> Any:
    return [typed_list.length(made), *(made[k] for k in positions)]


EXAMPLES: dict[str, Any] = {
    "MakeList": lambda: items(rows(), 0, 1),
    "GetItem": lambda: [rows()[1], rows()[N]],
    "Length": lambda: typed_list.length(rows()),
    "Append": lambda: items(typed_list.append(rows(), U), 3),
    "Extend": lambda: items(typed_list.extend(rows(), rows()), 4),
    "Insert": lambda: items(typed_list.insert(rows(), pt.constant(1, dtype="int64"), U), 1, 2),
    "Remove": lambda: items(typed_list.remove(rows(), U * A), 1),
    "Reverse": lambda: items(typed_list.reverse(rows()), 2),
    "Index": lambda: rows().ind(U * A),
    "Count": lambda: rows().count(U * A),
}
