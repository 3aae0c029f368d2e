"""Numbers, dtypes and indices as source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from loopax.numba_backend.emit.values import Dim, Index


def dtype_name(dtype: str) -> str:
    return "np.bool_" if dtype == "bool" else f"np.{dtype}"


def literal(x: Any) -> str:
    """A number as source, of its own dtype: ``0.5``, ``np.float32(0.5)``, ``np.nan``."""
    kind, name = x.dtype.kind, str(x.dtype)
    if kind == "b":
        return str(bool(x))
    if kind == "c":  # repr has no nan, and loses the sign of a zero
        return f"np.{name}(complex({literal(x.real)}, {literal(x.imag)}))"
    if kind == "f":
        text = repr(float(x)) if np.isfinite(x) else "np.nan" if np.isnan(x) else "np.inf"
        text = "-np.inf" if x == -np.inf else text
    else:
        text = str(int(x))
    if name in ("int64", "float64"):
        return f"({text})" if text.startswith("-") else text  # -1.0 ** x is not (-1.0) ** x
    return f"np.{name}({text})"


_INTEGER = re.compile(r"(?:np\.u?int\d+)?\(?(-?\d+)\)?")


def as_dim(text: str) -> Dim:
    """An element that is used as a length or index: an integer where it is a literal."""
    found = _INTEGER.fullmatch(text)
    return int(found[1]) if found else text


def joined(at: Sequence[Index]) -> str:
    """An index as source; that of a 0-d array is the empty tuple."""
    return ", ".join(map(str, at)) or "()"
