"""One graph under evaluation: its nodes in order, its values, and the origins of its inputs.

From these the static stage finds the value of a variable as NumPy, or else the inputs of the program that
would have to be static for the value to be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.basic import Alloc, ARange
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType

from loopax.base.errors import DynamicShapeError, describe
from loopax.facts.elementwise import is_elementwise
from loopax.ir.derivatives.pullback import floats
from loopax.ir.sizes import DimExpr, Dims, Length
from loopax.jax_backend.staging.context import Context, Plan
from loopax.jax_backend.staging.static import NotKnown, compute, is_traced
from loopax.jax_backend.staging.symbolic import as_length
from loopax.jax_backend.values.generators import as_key
from loopax.jax_backend.values.sparse import OrderedBCOO, as_bcoo


class ChangesInLoop(DynamicShapeError):
    """Raised where a shape depends on a value that changes between the steps of a loop."""


class DiffersByRow(DynamicShapeError):
    """Raised where a shape differs between rows of a batch, though all else is known."""


class NeedsStatic(Exception):
    """The values of program inputs (by position) must be static; ``reason`` is for the user.

    If they cannot be static, ``refusal`` replaces the whole message, and ``advice`` says what else to do.
    """

    def __init__(
        self, positions: frozenset[int], reason: str, refusal: str | None = None, advice: str = ""
    ) -> None:
        super().__init__(reason)
        self.positions, self.reason, self.refusal = positions, reason, refusal
        self.advice = advice


def _bound_for(node: Apply, length: Variable) -> str:
    """Advice on a bound, if ``node`` makes an array of unknown length; otherwise an empty string."""
    if not isinstance(node.op, ARange | Alloc) or getattr(length.type, "ndim", None) != 0:
        return ""
    return (
        " A length that has a bound may be traced: with pt.minimum(n, 100) in the place of n, what is made "
        "is summed, indexed or returned as an array of 100 of which n count."
    )


@dataclass(frozen=True)
class RowOf:
    """The origin of an input that is a row of ``sequence``, another one in each step of a loop."""

    sequence: Variable

    def __str__(self) -> str:
        return "a sequence of a loop"


@dataclass(frozen=True)
class IndexOf:
    """The origin of an input that is the index of a loop with ``n_steps`` steps."""

    n_steps: Variable

    def __str__(self) -> str:
        return "the index of a loop's step"


@dataclass
class Frame:
    """One graph being evaluated: its values, and the origins of its inputs.

    ``origins[k]`` is the variable of ``parent`` that input ``k`` stands for, a `RowOf` or an `IndexOf`, a
    number for an input of the program, or a word for anything else that changes between steps. ``pulled``
    is the node whose pullback the graph is, if any. ``intervals`` has the intervals of integers that calls
    return, found in the graphs inside them.
    """

    context: Context
    plan: Plan
    values: dict[Variable, Any]
    origins: Sequence[Any]
    parent: Frame | None = None
    pulled: Apply | None = None
    dims: Dims = field(default_factory=Dims)
    intervals: dict[Variable, tuple[int, int]] = field(default_factory=dict)

    def read(self, v: Variable) -> Any:
        x = v.data if isinstance(v, Constant) else self.values[v]
        if isinstance(v.type, SparseTensorType) and not isinstance(x, OrderedBCOO):
            return as_bcoo(x, v.type, describe(v))
        return as_key(x) if isinstance(v.type, RandomType) and isinstance(v, Constant) else x

    def static_value(self, v: Variable, needed_by: Apply) -> Any:
        """The value of ``v`` as NumPy.

        Raises `NeedsStatic` if it is traced, but follows from program inputs that could be static;
        `DynamicShapeError` if it is traced, and changes from step to step of a loop, or from row to
        row of a batch.
        """
        x = self.read(v)
        if not is_traced(x):
            return np.asarray(x) if isinstance(x, jax.Array) else x
        positions: set[int] = set()
        changing = self.blame(v, positions)
        reason = f"{needed_by.op} needs the value of {describe(v)} while JAX traces"
        if changing:
            raise ChangesInLoop(
                f"{reason}, because a shape, length or index depends on it. It depends on "
                f"{', '.join(sorted(changing))}, which is only known when the program runs. Use an "
                "array of fixed shape and mask it, as in pt.where(pt.arange(n) < k, x, 0), or make "
                "the value an input of the program that does not change in the loop. In native code "
                'a shape may change: jaxify(..., backend="numba"), or the mode LOOPAX_NUMBA.'
            )
        if not positions:
            with suppress(NotKnown):
                return self._computed(v)
            raise DiffersByRow(
                f"{reason}, but it differs from row to row of a batch, and all rows of an array have "
                "one shape. Make it the same for all rows, or pad and mask."
            )
        raise NeedsStatic(frozenset(positions), reason, advice=_bound_for(needed_by, v))

    def length(self, v: Variable, axis: int) -> int | None:
        """The length of ``v``, if the graph shows that it follows from known values."""
        return self.known(self.dims.length(v, axis))

    def distance(self, start: Variable, stop: Variable) -> int | None:
        """The difference ``stop - start`` of integers, which may be traced, if the graph shows it."""
        return self.known(self.dims.value(stop) - self.dims.value(start))

    def awaited_shape(self, v: Variable) -> tuple[int, ...] | None:
        """The shape of ``v`` implied by its use: a cotangent has the shape of its input."""
        if self.pulled is None:
            return None
        if v in self.plan.outputs:
            k = floats(self.pulled.inputs)[self.plan.outputs.index(v)]
            return np.shape(self.values[self.plan.inputs[k]])
        # Without declared broadcasting, elements of input and output correspond one to one.
        for node in self.plan.readers.get(v, ()) if 1 not in v.type.shape else ():
            if is_elementwise(node):
                shape = self.awaited_shape(node.outputs[0])
                if shape is not None:
                    return shape
        return None

    def known(self, expr: DimExpr) -> int | None:
        """The value of ``expr``, over variables of this graph; None if one of them is traced."""
        length = expr.offset
        for variable, k in expr.terms:
            of = variable.of if isinstance(variable, Length) else variable
            x = self.values.get(of)
            if isinstance(variable, Length):
                shape = getattr(x, "shape", ())
                n = shape[variable.axis] if variable.axis < len(shape) else None
            else:
                n = None if x is None or is_traced(x) else as_length(np.asarray(x))
            if n is None:
                return None
            length += k * n
        return length

    def _computed(self, v: Variable) -> Any:
        """Compute ``v`` if it depends on static values alone, through ops that are usually left to XLA.

        Raises `NotKnown` if it depends on a traced value.
        """
        x = self.read(v)
        if not is_traced(x):
            return np.asarray(x) if isinstance(x, jax.Array) else x
        if v.owner is None or v in self.plan.positions:
            raise NotKnown
        outs = compute(v.owner, [self._computed(u) for u in v.owner.inputs])
        self.values.update(zip(v.owner.outputs, outs, strict=True))
        return self.values[v]

    def blame(self, v: Variable, positions: set[int]) -> set[str]:
        """Collect the program inputs that the traced ``v`` depends on; return words for other origins."""
        changing: set[str] = set()
        stack, seen = [v], {v}
        while stack:
            v = stack.pop()
            if v in self.plan.positions:
                origin = self.origins[self.plan.positions[v]]
                if not is_traced(self.values[v]):
                    continue  # static here; only the row taken from it varies in the batch
                if isinstance(origin, int):
                    positions.add(origin)
                elif isinstance(origin, Variable):
                    assert self.parent is not None
                    changing |= self.parent.blame(origin, positions)
                else:
                    changing.add(str(origin))
                continue
            if isinstance(v.owner.op, RandomVariable):
                changing.add("a random draw")
                continue
            for u in v.owner.inputs:
                if u not in seen and not isinstance(u, Constant) and is_traced(self.read(u)):
                    seen.add(u)
                    stack.append(u)
        return changing
