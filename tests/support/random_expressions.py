"""Random expressions: a leaf is a number, an operation a tuple of its name and what it takes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st


def expressions(unary: Iterable[str], binary: Iterable[str], max_leaves: int) -> Any:
    """Expressions of these operations."""
    return st.recursive(
        st.integers(0, 11),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(sorted(unary)), inner),
            st.tuples(st.sampled_from(sorted(binary)), inner, inner),
        ),
        max_leaves=max_leaves,
    )


def build(
    expression: Any, leaves: Sequence[Any], operations: Mapping[str, Callable[..., Any]]
) -> Any:
    """The value of an expression; its leaves are found modulo how many there are."""
    match expression:
        case int(k):
            return leaves[k % len(leaves)]
        case (name, *args):
            return operations[name](*(build(e, leaves, operations) for e in args))
