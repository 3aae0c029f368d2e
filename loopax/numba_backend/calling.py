"""The Python side of a native program: what is done to arguments and results at each call.

A call costs a fraction of a microsecond when nothing has to be converted, so that the checks are
written out for the types of one program, as the program itself is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopax.numba_backend.source import Source


def caller(function: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """``function`` of Python's values: one for each type in ``inputs``, to a list of arrays.

    Numba is given an array of the declared dtype, rank and static shape, or for a 0-d input a number.
    Everything else is converted as PyTensor converts it, or refused.
    """
    args = [f"x{k}" for k in range(len(inputs))]
    source = Source("call", args)
    namespace: dict[str, Any] = {"function": function, "ndarray": np.ndarray, "array": np.array}
    for k, (x, declared) in enumerate(zip(args, inputs, strict=True)):
        namespace[f"convert{k}"] = _converter(k, declared)
        namespace[f"dtype{k}"] = np.dtype(declared.dtype)
        if not declared.ndim:
            number = {"f": "float", "i": "int", "u": "int", "b": "bool"}[
                np.dtype(declared.dtype).kind
            ]
            wrong = f"type({x}) is not {number}"
            # A Python number need not fit into the smaller dtypes.
            wrong = wrong if declared.dtype in ("float64", "int64", "bool") else "True"
        else:
            wrong = f"type({x}) is not ndarray or {x}.dtype is not dtype{k} or {x}.ndim != {declared.ndim}"
            for axis, n in enumerate(declared.shape):
                wrong += "" if n is None else f" or {x}.shape[{axis}] != {n}"
        with source.block(f"if {wrong}:"):
            source.line(f"{x} = convert{k}({x})")
    results = []
    for k, declared in enumerate(outputs):
        namespace[f"out{k}"] = np.dtype(declared.dtype)
        results.append(f"y[{k}]" if declared.ndim else f"array(y[{k}], out{k})")
    source.line(f"y = function({', '.join(args)})")
    source.line(f"return [{', '.join(results)}]")
    exec(compile(str(source), "<call of a native program>", "exec"), namespace)
    return namespace["call"]


def _converter(position: int, declared: Any) -> Any:
    def convert(x: Any) -> Any:
        if type(x) is np.float64 and declared.dtype == "float64" and not declared.ndim:
            return float(x)
        x = declared.filter(x, allow_downcast=True)
        if any(n is not None and n != m for n, m in zip(declared.shape, x.shape, strict=True)):
            raise TypeError(
                f"Input {position} is declared as {declared}, but an array of shape {x.shape} was given."
            )
        return x if declared.ndim else x.item()

    return convert
