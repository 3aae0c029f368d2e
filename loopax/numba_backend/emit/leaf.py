"""Ops without a rule here, converted by PyTensor's Numba registry, on arrays.

Scalars are boxed into 0-d arrays here alone, for the call. Ops that the registry does not convert, or
would itself run as Python, go to `object_mode.py`.
"""

from __future__ import annotations

import warnings
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key
from pytensor.scalar.basic import Composite, ScalarOp, get_scalar_type
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg.decomposition.svd import SVD

from loopax.facts.scalars import is_float
from loopax.ir.derivatives.after_forward import unwrapped
from loopax.ir.matrices import Part, assumption, factored_inputs
from loopax.ir.sequences import with_items
from loopax.numba_backend.cache.content import conversion_key
from loopax.numba_backend.emit import opaque
from loopax.numba_backend.emit.emitter import Site, find_rule, rule
from loopax.numba_backend.emit.empty_matrices import axes_of_factors, with_own_shapes
from loopax.numba_backend.emit.expressions import call, joined
from loopax.numba_backend.emit.object_mode import object_mode
from loopax.numba_backend.emit.scalars import has_expression
from loopax.numba_backend.emit.values import EmittedValue, Opaque


def conversion(op: Op, node: Apply) -> tuple[Any, str | None] | None:
    """PyTensor's native function for a node, with the key of its code; None for Python."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function, key = numba_funcify_and_cache_key(op, node=node)
        except NotImplementedError:
            return None
    if any("object mode" in str(w.message) for w in caught):
        return None
    for w in caught:
        warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    return function, conversion_key(node, key)


def converts_scalar(op: ScalarOp, node: Apply) -> bool:
    """Whether PyTensor has a native function for a scalar op, and for all ops inside of a composite.

    ``node`` applies the op to scalars, or elementwise to tensors.
    """
    if isinstance(op, Composite):
        return all(converts_scalar(n.op, n) for n in op.fgraph.apply_nodes)
    dispatch = numba_funcify_and_cache_key.dispatch  # the registry by which `scalars` calls it
    if dispatch(type(op)) is not dispatch(ScalarOp):
        return True
    if has_expression(op, node):
        return True
    spec = getattr(op, "nfunc_spec", None)
    if not spec or "." not in spec[0]:
        return bool(spec)  # a function of NumPy, if any
    inputs = [get_scalar_type(v.type.dtype)() for v in node.inputs]
    return conversion(op, op.make_node(*inputs)) is not None


def has_own_rule(node: Apply) -> bool:
    """Whether a rule of loopax writes ``node``, so that it is native code without PyTensor's registry.

    A rule may still refuse it because of its inputs.
    """
    op: Any = node.op
    scalar_op = op.scalar_op if isinstance(op, Elemwise) else op
    if isinstance(scalar_op, ScalarOp):
        return converts_scalar(scalar_op, node)
    return find_rule(op) is not leaf


@rule(Op)
def leaf(site: Site, *values: EmittedValue | None) -> Any:
    emit, node = site.emit, site.node
    bare = unwrapped(node)
    converted = conversion(bare.op, bare)
    if converted is None:
        return object_mode(site, *values)
    native, key = converted
    emit.note_foreign_call(node)
    function = emit.bind(native, "op", key)
    destroyed = {k for places in node.op.destroy_map.values() for k in places}
    args = []
    for k, (v, value) in enumerate(zip(node.inputs, values, strict=True)):
        if k in destroyed and isinstance(value, Opaque):
            value = site.owned(k, value)
        name = opaque.as_argument(emit, value, v)
        is_array = getattr(v.type, "ndim", 0) and not isinstance(value, Opaque)
        # A copy, since the emitter may reuse the array in the next step of a loop.
        args.append(emit.temp(name.method("copy"), "a") if k in destroyed and is_array else name)
    parts = factored_inputs(bare)
    for k, part in parts.items():
        if part is not Part.WHOLE:
            options = part is Part.LOWER, assumption(bare.op) != "sym"
            args[k] = emit.temp(call("mirrored", args[k], *options), "a")
    guarded = [k for k in parts if _is_array_of_floats(node.inputs[k])]
    finite = None
    if guarded:
        finite = emit.temp(
            joined([call("all_finite", args[k]) for k in guarded], " and "), "finite"
        )
        replaced = [emit.temp(call("finite_or_identity", args[k], finite), "a") for k in guarded]
        args = with_items(args, guarded, replaced)
    if isinstance(bare.op, SVD) and bare.op.compute_uv:
        # PyTensor 3.3.8 decomposes the transpose of an array in C order. Its vectors may differ in sign
        # from LAPACK's for the array itself, which SciPy and JAX return.
        args = [emit.temp(call("np.asfortranarray", args[0]), "a")]
    axes = axes_of_factors(bare)
    matrix = args[0] if axes else None
    if axes:
        args = [emit.temp(call("nonempty", x), "a") for x in args]
    out = emit.temp(call(function, *args), "out")
    many = len(node.outputs) > 1
    if finite is not None:
        for k, v in enumerate(node.outputs):
            if is_float(v):
                emit.do("no_numbers_unless", finite, out[k] if many else out)
    results = [out[k] if many else out for k in range(len(node.outputs))]
    if matrix is not None:
        results = with_own_shapes(emit, matrix, results, axes)
    return tuple(
        opaque.result(emit, x, v, k not in node.op.view_map)
        for k, (x, v) in enumerate(zip(results, node.outputs, strict=True))
    )


def _is_array_of_floats(v: Variable) -> bool:
    return getattr(v.type, "ndim", 0) > 0 and is_float(v)
