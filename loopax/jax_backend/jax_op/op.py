"""The op ``JaxOp``: a JAX function in a PyTensor graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.type import DenseTensorType, TensorType

from loopax.base.errors import LoopTypeError, describe
from loopax.base.upstream.pytensor import vectorize_rules
from loopax.calling.types import has_shape
from loopax.facts.scalars import is_real
from loopax.ir.sequences import with_items
from loopax.jax_backend.jax_op.functions import Batched, Pulled, Pushed
from loopax.jax_backend.jax_op.output_types import output_types
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule


class JaxOp(Op):
    """Wraps ``function``, from arrays to a tuple of arrays, as an op.

    In a program for JAX it is inlined; everywhere else JAX compiles it and runs it in `perform`.
    Derivatives of any order and batches are JAX's.

    Parameters
    ----------
    function
        Compared by ``==``, as the op is.
    name
        For printing.
    types
        The types of the outputs, if they are already known; else abstract evaluation finds them.
    """

    __props__ = ("function", "types")

    def __init__(
        self,
        function: Callable[..., Sequence[Any]],
        name: str,
        types: Sequence[DenseTensorType] | None = None,
    ) -> None:
        self.function, self.name = function, name
        self.types = None if types is None else tuple(types)

    def __str__(self) -> str:
        return f"JaxOp{{{self.name}}}"

    def make_node(self, *inputs: Variable) -> Apply:
        for v in inputs:
            _refuse_narrower(v)
        types = self.types or output_types(self.function, inputs, self.name)
        return Apply(self, list(inputs), [t() for t in types])

    def perform(
        self, node: Apply, inputs: Sequence[Any], output_storage: Sequence[list[Any]]
    ) -> None:
        results = self._compiled(*inputs)
        for cell, x, v in zip(output_storage, results, node.outputs, strict=True):
            if not has_shape(np.shape(x), v.type.shape):
                raise ValueError(
                    f"{self.name} returned the shape {np.shape(x)} for {describe(v)}. Its result must "
                    "have the same rank for all lengths of its arguments, and length 1 wherever it "
                    "had length 1."
                )
            cell[0] = np.array(x, dtype=v.type.dtype)

    @cached_property
    def _compiled(self) -> Any:
        return jax.jit(self.function)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_compiled"}

    # -- derivatives -----------------------------------------------------------------------------

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[is_real(x) and is_real(y) for y in node.outputs] for x in node.inputs]

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        ins, outs = _places(inputs), _connected(outputs, cotangents)
        in_cotangents: list[Any] = [DisconnectedType()() for _ in inputs]
        if ins and outs:
            function = Pulled(self.function, len(inputs), ins, outs)
            op = JaxOp(function, f"pullback of {self.name}", [inputs[k].type for k in ins])
            slopes: Any = op(*inputs, *(cotangents[j] for j in outs), return_list=True)
            return with_items(in_cotangents, ins, slopes)
        return in_cotangents

    def pushforward(
        self, inputs: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
    ) -> list[Any]:
        ins, outs = _connected(inputs, tangents), _places(outputs)
        out_tangents: list[Any] = [DisconnectedType()() for _ in outputs]
        if ins and outs:
            function = Pushed(self.function, len(inputs), ins, outs)
            op = JaxOp(function, f"pushforward of {self.name}", [outputs[j].type for j in outs])
            moved: Any = op(*inputs, *(tangents[k] for k in ins), return_list=True)
            return with_items(out_tangents, outs, moved)
        return out_tangents


@rule(JaxOp)
def inline(site: Site, *values: object) -> tuple[Any, ...]:
    return tuple(site.op.function(*values))


def _places(variables: Sequence[Any]) -> tuple[int, ...]:
    # JAX and PyTensor conjugate complex cotangents differently.
    return tuple(k for k, v in enumerate(variables) if is_real(v))


def _connected(variables: Sequence[Any], others: Sequence[Any]) -> tuple[int, ...]:
    """The positions of the floats in ``variables`` whose counterpart in ``others`` is connected."""
    return tuple(k for k in _places(variables) if not isinstance(others[k].type, DisconnectedType))


def _refuse_narrower(v: Variable) -> None:
    """Raise if JAX has no arrays of the type of ``v``, or only arrays with fewer bits."""
    if not isinstance(v.type, TensorType):
        raise LoopTypeError(
            f"A JAX function takes tensors; got {describe(v)}. Pass the draws instead of a random "
            "generator, and the dense form of a sparse matrix."
        )
    has = str(jax.dtypes.canonicalize_dtype(v.type.dtype))
    if has != v.type.dtype:
        raise LoopTypeError(
            f"A JAX function gets {describe(v)}, but JAX is in 32-bit mode and would convert it to "
            f"{has}. Call jax.config.update('jax_enable_x64', True) first, or cast it: "
            f"x.astype({has!r})."
        )


# -- batches ---------------------------------------------------------------------------------------


@vectorize_rules.register(JaxOp)
def vectorize_jax_op(op: JaxOp, node: Apply, *inputs: Variable) -> Sequence[Variable]:
    """Batch the op over the leading axes that the inputs have beyond the rank of the node's inputs."""
    ranks = tuple(v.type.ndim for v in node.inputs)
    leads = [x.type.shape[: x.type.ndim - n] for x, n in zip(inputs, ranks, strict=True)]
    n_batch = max(map(len, leads), default=0)
    if not n_batch:
        return op.make_node(*inputs).outputs
    lead = []
    for axis in range(-n_batch, 0):
        lengths = {own[axis] for own in leads if len(own) >= -axis} - {1}
        known = lengths - {None}
        lead.append(known.pop() if known else None if lengths else 1)
    types: list[Any] = [TensorType(v.type.dtype, (*lead, *v.type.shape)) for v in node.outputs]
    return JaxOp(Batched(op.function, ranks), op.name, types).make_node(*inputs).outputs
