"""The types of a JAX function's results, by abstract evaluation.

PyTensor's types may leave lengths open, but JAX's shapes may not. So the function is evaluated with various
numbers for open lengths, until it accepts two choices: first with all lengths different, then with equal
ones. That gives the rank and the dtype of its results. A length is known if it is 1 both times; others stay
open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from pytensor.tensor.type import TensorType

from loopax.base.errors import LoopTypeError, describe

# Trial lengths: the first one, and the increment of each further one.
_TRIED = ((5, 2), (7, 3), (4, 0), (6, 0), (12, 0), (24, 0), (3, 0), (2, 0), (1, 0))


def output_types(
    function: Callable[..., Sequence[Any]], inputs: Sequence[Any], name: str
) -> list[TensorType]:
    """The types of the results of ``function`` for variables of the types of ``inputs``.

    Raises `LoopTypeError` if it accepts none of the lengths that were tried.
    """
    seen: list[Any] = []
    first: Exception | None = None
    for arguments in _arguments(inputs):
        try:
            # A new function each time: JAX would reuse the trace of an equal one.
            seen.append(jax.eval_shape(lambda *arrays: function(*arrays), *arguments))
        except Exception as error:
            if not _has_open_lengths(inputs):
                raise
            first = first or error
        if len(seen) == 2 or not _has_open_lengths(inputs):
            break
    if not seen:
        listed = ", ".join(describe(v) for v in inputs)
        raise LoopTypeError(
            f"The result of {name} depends on the lengths of its arguments, {listed}, and it accepted "
            "none of the lengths that loopax tried. Declare the lengths: pt.specify_shape(x, (5, "
            f"None)), or pt.vector('x', shape=(5,)). With the lengths tried it raised: {first}"
        )
    if len({tuple((x.ndim, x.dtype) for x in outs) for outs in seen}) > 1:
        raise LoopTypeError(
            f"The ranks or dtypes of the results of {name} depend on the lengths of its arguments. "
            "Declare the lengths: pt.specify_shape(x, (5, None))."
        )
    if not _has_open_lengths(inputs):
        return [TensorType(str(x.dtype), x.shape) for x in seen[0]]
    types = []
    for outs in zip(*seen, strict=True):
        lengths = [*zip(*(x.shape for x in outs), strict=True)]
        shape = [1 if len(ns) == 2 and set(ns) == {1} else None for ns in lengths]
        types.append(TensorType(str(outs[0].dtype), shape))
    return types


def _has_open_lengths(inputs: Sequence[Any]) -> bool:
    return any(None in v.type.shape for v in inputs)


def _arguments(inputs: Sequence[Any]) -> Iterator[list[Any]]:
    """Abstract arguments, with different numbers for the open lengths each time."""
    for start, more in _TRIED:
        n, arguments = start, []
        for v in inputs:
            shape = []
            for length in v.type.shape:
                shape.append(n if length is None else length)
                n += more if length is None else 0
            arguments.append(jax.ShapeDtypeStruct(tuple(shape), v.type.dtype))
        yield arguments
