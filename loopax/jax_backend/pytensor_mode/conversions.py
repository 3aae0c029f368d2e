"""Registration of IR ops with ``jax_funcify``, for PyTensor's own ``mode="JAX"``.

That mode converts node by node and traces every value. `known_shapes` makes values that follow from shapes
known again. A trip count that is still a tracer is taken from the length of the sequences, and checked
while the program runs. Programs that need more than that need `loopax.jaxify`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.tensor.type import TensorType

from loopax.base.errors import DynamicShapeError, describe
from loopax.base.lock import TRACING
from loopax.ir import Scan
from loopax.jax_backend.pytensor_mode.known_shapes import register_rewrite
from loopax.jax_backend.staging.context import Context, Plan
from loopax.jax_backend.staging.evaluate import Site, convert
from loopax.jax_backend.staging.frame import Frame, NeedsStatic
from loopax.jax_backend.staging.registry import converted_ops
from loopax.jax_backend.staging.static import is_traced
from loopax.numerics.no_number import or_no_number

_USE_JAXIFY = (
    'mode="JAX" traces every input. loopax.jaxify(inputs, outputs) gives a JAX function that is compiled '
    "for each value of an input that makes a shape."
)


def register() -> None:
    """Register ops that PyTensor's registry lacks, the ops of the IR and typed lists, and the pass."""
    missing = jax_funcify.dispatch(object)
    for cls in converted_ops():
        ours = cls.__module__.startswith(("loopax.", "pytensor.typed_list."))
        if ours and jax_funcify.dispatch(cls) is missing:
            jax_funcify.register(cls)(_funcify)
    register_rewrite()


def _funcify(op: Op, node: Apply, **_: object) -> Any:
    context = Context(on_missing="raise")
    # A copy without ancestors: a rule may look at the ops that made an input, which have no values here.
    node = Apply(
        op,
        [v if isinstance(v, Constant) else v.clone() for v in node.inputs],
        [v.clone() for v in node.outputs],
    )

    def function(*values: object) -> Any:
        inputs = [_known(x, v) for x, v in zip(values, node.inputs, strict=True)]
        with TRACING:
            if isinstance(op, Scan):
                outs = _scan(context, node, inputs)
            else:
                outs = _convert(context, node, inputs, (True,) * len(node.outputs))
        return outs[0] if len(outs) == 1 else tuple(outs)

    return function


def _known(x: object, v: Variable) -> Any:
    """The value of input ``v``; NumPy if it is a constant, or PyTensor's mode knows the number."""
    if isinstance(v, Constant):
        return v.data
    if isinstance(v.type, TensorType) and isinstance(x, bool | int | float | complex):
        return np.asarray(x, v.type.dtype)
    return x


def _convert(
    context: Context, node: Apply, inputs: Sequence[Any], used: tuple[bool, ...]
) -> list[Any]:
    values = dict(zip(node.inputs, inputs, strict=True))
    frame = Frame(context, Plan(tuple(node.inputs)), values, range(len(inputs)))
    try:
        return convert(Site(node, used, frame), inputs)
    except NeedsStatic as need:
        raise DynamicShapeError(f"{need.reason}. {_USE_JAXIFY}") from None


def _scan(context: Context, node: Apply, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a loop; this mode does not tell which are read, so every possible trace is made."""
    op: Scan = node.op
    args = op.split_inputs(inputs)
    counted = is_traced(args.n_steps) and bool(args.sequences)
    if counted:
        args = args._replace(n_steps=np.asarray(len(args.sequences[0])))
    with_traces = not op.stops and not is_traced(args.n_steps)
    whole = op.split_outputs([True] * len(node.outputs))
    used = whole._replace(traces=[with_traces] * op.n_ys).flat()
    outs = _convert(context, node, args.flat(), tuple(used))
    outs = [
        x if u else _Unread(_why_not(op, v))
        for x, v, u in zip(outs, node.outputs, used, strict=True)
    ]
    if not counted:
        return outs
    fits = inputs[0] == args.n_steps  # `evaluate` raises if they differ; here the result is NaN

    def checked(x: object) -> Any:
        if not isinstance(x, jax.Array) or jnp.issubdtype(x.dtype, jax.dtypes.extended):
            return x
        return or_no_number(fits, x)

    return [x if isinstance(x, _Unread) else jax.tree.map(checked, x) for x in outs]


def _why_not(op: Scan, trace: Variable) -> str:
    loop = f"{op}, which can stop early" if op.stops else "a loop whose number of steps is traced"
    return f"{describe(trace)} is the trace of {loop}: JAX must know how many rows it has. {_USE_JAXIFY}"


@jax.tree_util.register_pytree_node_class
class _Unread:
    """Stands in for a trace that cannot be made; any use raises an error that says why."""

    def __init__(self, message: str) -> None:
        self.__dict__["message"] = message

    def _refuse(self, *_: object) -> Any:
        raise DynamicShapeError(self.__dict__["message"])

    # JAX flattens the arguments and results of a traced function.
    tree_flatten = __getattr__ = __getitem__ = __len__ = __array__ = _refuse

    @classmethod
    def tree_unflatten(cls, aux: object, children: object) -> Any:
        raise AssertionError("it is never flattened")
