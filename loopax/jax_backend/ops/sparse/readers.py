"""Ops that read the entries of a padded matrix.

``csm_properties`` of such a matrix returns arrays that are too long: with padding at the end. That is
harmless if each entry is mapped on its own and goes back into a matrix, which drops the padding:
``structured_exp``, and nearly all gradients. It would be wrong in ``csm_data(x).mean()``.
"""

from __future__ import annotations

from typing import Any

from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.gradient import DisconnectedGrad, ZeroGrad
from pytensor.graph.basic import Apply, Variable
from pytensor.sparse.basic import CSM, CSMGrad, CSMProperties
from pytensor.sparse.math import StructuredDotGradCSC, StructuredDotGradCSR
from pytensor.sparse.rewriting import (
    CSMGradC,
    MulSDCSC,
    MulSDCSR,
    MulSVCSR,
    SamplingDotCSR,
    StructuredDotCSC,
    StructuredDotCSR,
    UsmmCscDense,
)
from pytensor.tensor.basic import Alloc, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor

from loopax.base.upstream.pytensor import AddSparseDenseC, StructuredAddSparseDenseVectorCSR
from loopax.facts.elementwise import scalar_op_of
from loopax.jax_backend.staging.evaluate import Site

# Ops whose output has one element for each element of their inputs, in the same order.
_ONE_BY_ONE = (
    StructuredDotGradCSC,
    StructuredDotGradCSR,
    DisconnectedGrad,
    ZeroGrad,
    DeepCopyOp,
    ViewOp,
    MulSDCSC,
    MulSDCSR,
    MulSVCSR,
    SamplingDotCSR,
    StructuredAddSparseDenseVectorCSR,
)
# Ops that build a matrix or multiply by one, and so drop the padding.
_WHOLE = (CSM, StructuredDotCSC, StructuredDotCSR, UsmmCscDense, AddSparseDenseC)
_LENGTHS = (Shape, Shape_i, Subtensor, MakeVector, ScalarFromTensor, TensorFromScalar)


def reads_entries(site: Site) -> Any:
    """A reader that does not take the entries of a ``CSMProperties`` one by one, or None."""
    plan, matrix = site.frame.plan, site.node.inputs[0]
    entries: set[Variable] = set()
    lengths: set[Variable] = set()
    for node, _ in plan.steps:  # in topological order: variables come before their readers
        if isinstance(node.op, CSMProperties) and node.inputs[0] is matrix:
            entries.update(node.outputs[:2])
        elif not entries.isdisjoint(node.inputs):
            if not _follow(node, entries, lengths):
                return node.op
        elif not lengths.isdisjoint(node.inputs):
            if isinstance(node.op, Alloc) and node.outputs[0].type.ndim == 1:
                entries.add(node.outputs[0])
            elif isinstance(node.op, _LENGTHS):
                lengths.update(node.outputs)
            else:
                return node.op
    outputs = entries | lengths
    return "An output of the program" if not outputs.isdisjoint(plan.outputs) else None


def _follow(node: Apply, entries: set[Variable], lengths: set[Variable]) -> bool:
    """Whether ``node`` takes entries one by one; adds its results to ``entries`` or ``lengths``."""
    if isinstance(node.op, _WHOLE):
        return True
    if isinstance(node.op, CSMGrad | CSMGradC):
        if not entries.isdisjoint(node.inputs[:2]):
            entries.update(node.outputs)
        return True
    if isinstance(node.op, Shape | Shape_i):
        lengths.update(node.outputs)
        return True
    if scalar_op_of(node.op) is not None:
        others = [v for v in node.inputs if v not in entries]
        if any(v.type.shape != (1,) for v in others):
            return False
    elif not isinstance(node.op, _ONE_BY_ONE):
        return False
    entries.update(node.outputs)
    return True
