"""Errors of a direct call, with the op that failed, its line, and what it was given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.ir.evaluation.first_failure import first_failure

# What native code raises, as XLA has it (`loopax.kernels.ffi.failures`).
_NATIVE_ERROR = re.compile(
    r"INVALID_ARGUMENT: (?P<kind>IndexError|ValueError): (?P<said>.*)", re.DOTALL
)


def native_error(error: Exception, graph: FunctionGraph, given: Sequence[Any]) -> Exception | None:
    """The error that native code in JAX has raised, with the op that fails; None of another error."""
    match = _NATIVE_ERROR.match(str(error))
    if match is None:
        return None
    kind = IndexError if match["kind"] == "IndexError" else ValueError
    return with_values(kind, match["said"], graph, given)


def with_values(
    kind: type[Exception],
    said: str,
    graph: FunctionGraph,
    given: Sequence[Any],
    otherwise: str | None = None,
) -> Exception:
    """An error with the op of ``graph`` that fails for these values; without one it says ``otherwise``."""
    if not all(isinstance(v.type, DenseTensorType) for v in graph.inputs):
        return kind(otherwise or said)
    more = first_failure(graph, [np.asarray(x) for x in given])
    return kind(otherwise or said) if more is None else kind(f"{said}: {more}.")
