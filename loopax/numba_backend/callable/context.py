"""``NumbaContext``: the values of a program's shared variables as NumPy arrays and generators."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from pytensor.graph.basic import Variable
from pytensor.graph.type import Type
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.random.type import RandomType
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import LoopTypeError
from loopax.calling.context import SharedContext
from loopax.calling.context_file import refuse_data, refuse_names
from loopax.calling.conversion import Crossing
from loopax.ir.program import Program
from loopax.numba_backend.callable import conversion


class NumbaContext(SharedContext):
    """The values of the shared variables of one or more functions, by name. Immutable.

    ``f.init_context()`` makes one from the values of the variables, ``loopax.SharedContext.of`` one for
    several functions. Values are NumPy arrays, NumPy generators, SciPy matrices and lists. Reading a
    value copies it: a draw from ``ctx["rng"]`` leaves ``ctx`` unchanged.

    >>> import numpy as np, pytensor
    >>> from loopax import jaxify
    >>> total = pytensor.shared(np.float64(1.0), name="total")
    >>> f = jaxify([], total * 2, updates={total: total + 1}, backend="numba")
    >>> ctx, out = f.apply(f.init_context())
    >>> ctx.get(total), ctx.set(total, 9.0)["total"], total.get_value()
    (array(2.), array(9.), array(1.))
    """

    __slots__ = ()
    crossing: ClassVar[Crossing] = conversion

    def __getitem__(self, key: str | Variable) -> Any:
        return deepcopy(super().__getitem__(key))

    def replicate(self, n: int) -> list[NumbaContext]:
        """``n`` contexts, each with generators of its own: for chains, or for threads.

        Equal contexts give equal replicas.
        """
        return [
            NumbaContext(self._layout, [_replicated(x, k) for x in self._values]) for k in range(n)
        ]

    def read(self, program: Program) -> list[Any]:
        """The values of a program's shared variables, in its order; `entry` checks their types.

        Raises
        ------
        StatefulFunctionError
            A value is missing, or its name is ambiguous.
        """
        return [self._values[k] for k in self._positions(program)]

    def _kind(self, x: Any) -> str:
        return f"{x.dtype}{list(x.shape)}" if hasattr(x, "dtype") else type(x).__name__

    def _arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        for name, s, x in zip(self._layout.names, self._layout.shared, self._values, strict=True):
            yield from _encoded(x, s.variable.type, name)

    def _with_arrays(self, arrays: dict[str, np.ndarray]) -> NumbaContext:
        types = [s.variable.type for s in self._layout.shared]
        types_by_name = list(zip(self._layout.names, types, strict=True))
        refuse_names(arrays, [n for name, t in types_by_name for n in _entries(t, name, arrays)])
        return NumbaContext(self._layout, [_decoded(t, name, arrays) for name, t in types_by_name])


def _replicated(x: object, k: int) -> Any:
    """``x`` for replica ``k``: a generator of its own, any other value unchanged."""
    if isinstance(x, list):
        return [_replicated(row, k) for row in x]
    if not isinstance(x, np.random.Generator):
        return x
    # Generator.spawn would count up in the parent, which must not change.
    words = np.frombuffer(hashlib.blake2b(_state(x), digest_size=32).digest(), dtype=np.uint32)
    seed = np.random.SeedSequence(words.tolist(), spawn_key=(k,))
    return np.random.Generator(type(x.bit_generator)(seed))


def _state(x: np.random.Generator) -> bytes:
    return json.dumps(x.bit_generator.state, sort_keys=True, default=np.ndarray.tolist).encode()


# -- arrays for a file -----------------------------------------------------------------------------

_PARTS = ("data", "indices", "indptr", "shape")  # arrays of a sparse matrix


def _encoded(x: Any, declared: Type, name: str) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(declared, TypedListType):
        yield f"{name}.length", np.asarray(len(x))
        for k, row in enumerate(x):
            yield from _encoded(row, declared.ttype, f"{name}[{k}]")
    elif isinstance(declared, RandomType):
        yield name, np.frombuffer(_state(x), dtype=np.uint8)
    elif isinstance(declared, SparseTensorType):
        yield from ((f"{name}.{part}", np.asarray(getattr(x, part))) for part in _PARTS)
    else:
        yield name, x


def _entries(declared: Type, name: str, arrays: dict[str, np.ndarray]) -> Iterator[str]:
    """Names of the arrays that `_encoded` writes; lists have the lengths in the file."""
    if isinstance(declared, TypedListType):
        yield f"{name}.length"
        for k in range(int(arrays.get(f"{name}.length", 0))):
            yield from _entries(declared.ttype, f"{name}[{k}]", arrays)
    elif isinstance(declared, SparseTensorType):
        yield from (f"{name}.{part}" for part in _PARTS)
    else:
        yield name


def _decoded(declared: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(declared, TypedListType):
        count = int(arrays[f"{name}.length"])
        return [_decoded(declared.ttype, f"{name}[{k}]", arrays) for k in range(count)]
    if isinstance(declared, RandomType):
        return _generator(arrays[name], name)
    if isinstance(declared, SparseTensorType):
        data, indices, indptr, shape = (arrays[f"{name}.{part}"] for part in _PARTS)
        refuse_data(f"{name}.data", np.dtype(declared.dtype), 1, data)
        matrix_class = (
            scipy.sparse.csc_matrix if declared.format == "csc" else scipy.sparse.csr_matrix
        )
        matrix = matrix_class((data, indices, indptr), shape=tuple(shape.tolist()))
        return conversion.accept(matrix, declared, f"The value of {name!r} in the file")
    refuse_data(name, np.dtype(declared.dtype), getattr(declared, "ndim", 0), arrays[name])
    return conversion.accept(arrays[name], declared, f"The value of {name!r} in the file")


def _generator(data: np.ndarray, name: str) -> np.random.Generator:
    try:
        state = json.loads(data.tobytes())
        bits = getattr(np.random, state["bit_generator"])()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoopTypeError(
            f"The value of {name!r} must be the state of a NumPy generator, but the file has "
            f"{data.dtype} of shape {data.shape}. Restore into a context of the same form as the saved "
            "one."
        ) from error
    bits.state = state
    return np.random.Generator(bits)
