"""Symbolic lengths of ``jax.export.symbolic_shape``, while JAX traces a program for export.

    x.shape            ->  array([b, 3], dtype=object)     static, with symbols in it
    x.shape[0] - 1     ->  array(b - 1, dtype=object)      computed here, as JAX's symbols
    x.sum() / x.shape[0]  ->  a traced number, which the exported program computes from the length

An array of lengths that contains a symbol is static, as an array of numbers is. Arithmetic on lengths gives
such an array again (`fold`): sums, products, extrema, slices and joins. An op that takes a length gets it
unchanged; any other op gets it as a traced integer (`traced`).

JAX decides ``b >= 1``, and what follows from the constraints of the symbols. If a program depends on a
comparison that JAX cannot decide, `explained` says which constraint is missing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from jax.export import is_symbolic_dim
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from loopax.base.errors import DynamicShapeError, describe
from loopax.base.upstream.jax import InconclusiveDimensionOperation as Inconclusive
from loopax.base.upstream.pytensor import joined_by
from loopax.facts import facts_of
from loopax.facts.elementwise import function_of
from loopax.ir import Call, Scan


def is_symbolic(x: object) -> bool:
    """Whether ``x`` is an array of lengths that contains a symbol."""
    return isinstance(x, np.ndarray) and x.dtype == object


def static_lengths(dims: Iterable[Any]) -> np.ndarray:
    """Convert lengths to a static value: int64, or an array with symbols."""
    dims = list(dims)
    if not any(map(is_symbolic_dim, dims)):
        return np.array(dims, dtype=np.int64)
    return _array(dims)


def as_length(x: Any) -> Any:
    """Convert a static value to a number, or to a symbol of JAX."""
    return x.item() if is_symbolic(x) else int(x)


def as_lengths(x: np.ndarray) -> tuple[Any, ...]:
    return tuple(map(as_length, np.asarray(x).reshape(-1))) if not is_symbolic(x) else tuple(x.flat)


def traced(x: Any) -> Any:
    """The value of ``x`` at run time."""
    if not is_symbolic(x):
        return x
    flat = [jnp.asarray(n).astype("int64") for n in x.flat]
    return jnp.stack(flat).reshape(x.shape) if x.ndim else flat[0]


def as_taken(node: Apply, values: Sequence[Any]) -> list[Any]:
    """Convert ``values`` for the rule of ``node``: lengths stay unchanged, all else is traced."""
    if not any(map(is_symbolic, values)):
        return list(values)
    op = node.op
    if isinstance(op, Scan):  # its constants are static in its step
        outer = op.split_inputs(node.inputs)
        lengths: Sequence[Any] = [outer.n_steps, *outer.consts]
    elif isinstance(op, Call):
        lengths = node.inputs
    elif isinstance(op, SpecifyShape):
        lengths = node.inputs[1:]
    elif isinstance(op, RandomVariable):
        lengths = [op.size_param(node)]
    else:
        lengths = facts_of(op).lengths(node)
    return [
        x if any(v is u for u in lengths) else traced(x)
        for x, v in zip(values, node.inputs, strict=True)
    ]


def require_one(n: Any) -> None:
    """Raise if JAX cannot prove that the symbol ``n`` is at least 1."""
    if not n >= 1:
        raise Inconclusive(f"'{n}' is less than 1")


def span(k: slice, size: Any) -> tuple[Any, Any, int]:
    """The first position, the number of positions and the step of ``k`` in an axis of length ``size``."""
    if not any(map(is_symbolic_dim, (size, k.start, k.stop))):
        start, stop, step = k.indices(size)
        return start, len(range(start, stop, step)), step
    step = 1 if k.step is None else k.step
    if step == -1 and k.start is None and k.stop is None:
        return size - 1, size, -1
    if step != 1:
        raise Inconclusive(f"a slice with step {step} of an axis of length '{size}'")

    def inside(position: Any) -> Any:
        position = position + size if position < 0 else position
        return jax.core.max_dim(0, jax.core.min_dim(position, size))

    start = 0 if k.start is None else inside(k.start)
    stop = size if k.stop is None else inside(k.stop)
    return start, jax.core.max_dim(stop - start, 0), 1


def explained(error: Exception, node: Apply) -> Exception:
    """Explain ``error`` of the rule of ``node`` if a symbol is to blame; else return it unchanged."""
    if not isinstance(error, Inconclusive) and "_DimExpr" not in str(error):
        return error
    message = str(error).partition("\n")[0].rstrip(".")
    return DynamicShapeError(
        f"{node.op}, for {describe(node.outputs[0])}, must know more of a symbolic length than JAX does: "
        f"{message}. State a constraint, as in jax.export.symbolic_shape('b', constraints=['b >= 10']), or "
        "export the program for a length that is a number."
    )


# -- what is computed of lengths ---------------------------------------------------------------------


def fold(node: Apply, values: Sequence[Any]) -> list[Any] | None:
    """The outputs of ``node``, computed from lengths with symbols; None if it is not arithmetic on them."""
    if not any(map(is_symbolic, values)):
        return None
    if not all(isinstance(x, np.ndarray | np.generic | int | slice | None) for x in values):
        return None
    try:
        folded = _folded(node, values)
    except Inconclusive:
        return None
    return None if folded is None else [_simplest(folded)]


def _folded(node: Apply, values: Sequence[Any]) -> Any:
    op: Any = node.op
    x, *others = values
    scalar_op = op.scalar_op if isinstance(op, CAReduce) else function_of(op)
    scalar = _SCALARS.get(type(scalar_op))
    if function_of(op) is not None:
        return None if scalar is None else _elementwise(scalar, scalar_op, values)
    if isinstance(op, CAReduce):
        return None if scalar is None or x.ndim != 1 else _array(reduce(scalar, x.flat))
    if isinstance(op, ScalarFromTensor | TensorFromScalar | ViewOp | DeepCopyOp):
        return x
    if isinstance(op, CheckAndRaise):
        return x if is_symbolic(x) and all(map(np.all, others)) else None
    if isinstance(op, MakeVector):
        return _array([as_length(v) for v in values])
    if isinstance(op, Join):
        return np.concatenate([np.asarray(x, dtype=object) for x in joined_by(op, values)])
    if isinstance(op, DimShuffle | Subtensor) and not any(map(is_symbolic, others)):
        storage: list[list[Any]] = [[None]]
        op.perform(node, list(values), storage)
        return np.asarray(storage[0][0], dtype=object)
    if (
        isinstance(op, IncSubtensor)
        and op.set_instead_of_inc
        and not any(map(is_symbolic, others[1:]))
    ):
        storage = [[None]]
        op.perform(node, [np.asarray(x, dtype=object).copy(), *others], storage)
        return storage[0][0]
    return None


def _elementwise(scalar: Callable[..., Any], op: ScalarOp, values: Sequence[Any]) -> Any:
    if isinstance(op, ps.Cast) and op.o_type.dtype not in ("int64", "int32", "uint64"):
        return None  # an ordinary number
    if any(np.asarray(x).dtype.kind == "f" for x in values):
        return None
    args = np.broadcast_arrays(*(np.asarray(x, dtype=object) for x in values))
    numbers = [scalar(*each) for each in zip(*(a.flat for a in args), strict=True)]
    return _array(numbers).reshape(args[0].shape)


def _array(dims: Any) -> np.ndarray:
    if not isinstance(dims, list):
        return np.array(dims, dtype=object)
    lengths = np.empty(len(dims), dtype=object)  # NumPy would try to iterate over the symbols
    lengths[:] = dims
    return lengths


def _simplest(x: np.ndarray) -> np.ndarray:
    """Convert ``x`` to numbers if it contains no symbols any more."""
    if any(map(is_symbolic_dim, x.flat)):
        return x
    return x.astype(bool if all(isinstance(n, bool | np.bool_) for n in x.flat) else np.int64)


# Each accepts numbers and symbols; a comparison that JAX cannot decide raises.
_SCALARS: dict[type, Callable[..., Any]] = {
    type(ps.add): lambda *xs: reduce(operator.add, xs),
    type(ps.mul): lambda *xs: reduce(operator.mul, xs),
    type(ps.sub): operator.sub,
    type(ps.neg): operator.neg,
    type(ps.int_div): operator.floordiv,
    type(ps.mod): operator.mod,
    type(ps.maximum): lambda x, y: jax.core.max_dim(x, y),
    type(ps.minimum): lambda x, y: jax.core.min_dim(x, y),
    type(ps.abs): lambda x: x if x >= 0 else -x,
    ps.Cast: lambda x: x,
    type(ps.identity): lambda x: x,
    type(ps.second): lambda x, y: y,
    type(ps.switch): lambda c, x, y: x if c else y,
    type(ps.lt): lambda x, y: x < y,
    type(ps.le): lambda x, y: x <= y,
    type(ps.gt): lambda x, y: x > y,
    type(ps.ge): lambda x, y: x >= y,
    type(ps.eq): lambda x, y: _equal(x, y),
    type(ps.neq): lambda x, y: not _equal(x, y),
    type(ps.or_): lambda x, y: x or y,
    type(ps.and_): lambda x, y: x and y,
    type(ps.invert): lambda x: not x,
}


def _equal(x: Any, y: Any) -> bool:
    """Compare lengths; an undecidable comparison raises, where JAX would return unequal."""
    if x == y:
        return True
    difference = x - y
    if not is_symbolic_dim(difference) or difference > 0 or difference < 0:
        return False
    raise Inconclusive(f"Symbolic dimension comparison '{x}' == '{y}' is inconclusive")
