"""Errors of a direct call, from its flag or an exception, with the failing op and its values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.ir.evaluation.first_failure import first_failure
from loopax.jax_backend.callable.arguments import ARRAY
from loopax.jax_backend.callable.variant import NOTHING
from loopax.jax_backend.staging.checked import Failure
from loopax.jax_backend.staging.context import Context

# How XLA reports an error of native code (`loopax.kernels.ffi.failures`).
_NATIVE_ERROR = re.compile(
    r"INVALID_ARGUMENT: (?P<kind>IndexError|ValueError): (?P<text>.*)", re.DOTALL
)


def native_error(error: Exception, graph: FunctionGraph, values: Sequence[Any]) -> Exception | None:
    """The error that native code in JAX has raised, with the op that fails; None for other errors."""
    match = _NATIVE_ERROR.match(str(error))
    if match is None:
        return None
    kind = IndexError if match["kind"] == "IndexError" else ValueError
    return with_values(kind, match["text"], graph, values)


def with_values(
    kind: type[Exception],
    text: str,
    graph: FunctionGraph,
    values: Sequence[Any],
    otherwise: str | None = None,
) -> Exception:
    """Build an error that names the op of ``graph`` that fails for these values, or says ``otherwise``."""
    if not all(isinstance(v.type, DenseTensorType) for v in graph.inputs):
        return kind(otherwise or text)
    more = first_failure(graph, [np.asarray(x) for x in values])
    return kind(otherwise or text) if more is None else kind(f"{text}: {more}.")


# -- failures of checks ----------------------------------------------------------------------------

_NOTHING = np.int32(NOTHING).tobytes()


def is_down(flag: Any) -> bool:
    """Whether the flag shows that nothing has failed; False for a tracer."""
    if type(flag) is not ARRAY:
        return False
    try:
        # For an array on the CPU this takes a microsecond; `int` takes 20.
        return memoryview(flag).tobytes() == _NOTHING
    except (BufferError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return int(flag) == NOTHING


def failure_in(message: str, failures: Iterable[Failure]) -> Exception | None:
    """The error of the failure named in ``message``; None if there is none."""
    matching = [f for f in failures if str(f) in message]
    # One message may be a prefix of another.
    return max(matching, key=lambda f: len(f.message)).error() if matching else None


def flagged_error(flag: ArrayLike, context: Context) -> Exception:
    """The error for a flag that is set, in a program run with this context."""
    for structure in context.errors:
        with suppress(KeyError):  # each trace numbers its checks from the start
            text = str(jax.tree.unflatten(structure, [np.True_, flag]).get())
            if (error := failure_in(text, {*context.flagged, *context.failures})) is not None:
                return error
    raise AssertionError("every flag belongs to a failure")
