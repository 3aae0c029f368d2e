"""Random bits: counters through the cipher threefry, bit for bit JAX's.

Operations on keys are JAX's own functions, as jaxprs of the cipher; the cipher itself is one function
of four integers (`loopax.ir.ops.threefry`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.scalar import basic as ps

from loopax.base.upstream.jax import implementation_jaxpr, threefry_jaxpr
from loopax.facts.elementwise import is_elementwise
from loopax.frontend.from_jaxpr.reading import inner_graph, refuse, rule
from loopax.ir.ops.threefry import threefry


@rule("threefry2x32")
def _threefry2x32(eqn: Any, key_1: Any, key_2: Any, x: Any, y: Any) -> Any:
    word = threefry(key_1, key_2, x, y)
    return [word.astype("uint32"), (word // np.uint64(2**32)).astype("uint32")]


@rule("iota_2x32_shape")
def _counters(eqn: Any) -> Any:
    """The flat index of each element as two integers of 32 bits, the higher bits first."""
    shape = tuple(eqn.params["shape"])
    numbers = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint64).reshape(shape)
    halves = numbers >> np.uint64(32), numbers & np.uint64(0xFFFFFFFF)
    return [pt.constant(half.astype("uint32")) for half in halves]


@rule("random_wrap", "random_unwrap", keys=True)
def _same_integers(eqn: Any, x: Any) -> Any:
    """Conversions between a key and its integers, which are one in the IR."""
    return x


@rule("random_bits", "random_split", "random_fold_in", "random_seed", keys=True)
def _key_function(eqn: Any, *inputs: Any) -> Any:
    """JAX's own function of a key's integers, over all keys."""
    name, aval = eqn.primitive.name, eqn.invars[0].aval
    if name == "random_seed" and str(eqn.outvars[0].aval.dtype) != "key<fry>":
        raise refuse(eqn, "of another generator")
    types = [(v.type.shape, v.type.dtype) for v in inputs]
    return inner_graph(threefry_jaxpr(name, eqn.params, types, len(aval.shape)), inputs)


@rule("random_gamma", keys=True)
def _gamma(eqn: Any, key: Any, alpha: Any) -> Any:
    """JAX's own function, as a loop over the draws, with a loop of rejections in each."""
    return inner_graph(implementation_jaxpr(eqn), [key, alpha])


@rule("bitcast_convert_type")
def _bitcast(eqn: Any, x: Any) -> Any:
    """A reinterpretation of integers, or of random bits after the exponent of 1 as a float."""
    target = np.dtype(eqn.params["new_dtype"])
    source = np.dtype(x.type.dtype)
    if target.itemsize != source.itemsize:
        raise refuse(eqn, "to another size")
    if target.kind in "iu" and source.kind in "iu":
        return x.astype(str(target))
    if target.kind == "f" and source.kind == "u" and (bits := _mantissa(x, target)) is not None:
        return bits.astype(str(target)) * np.array(
            2.0 ** -np.finfo(target).nmant, target
        ) + np.array(1, target)
    raise refuse(eqn, f"of {source} as {target}")


def _mantissa(x: Any, target: np.dtype[Any]) -> Any:
    """The mantissa of ``x``, where its exponent is known to be that of 1; else None."""
    bits_of_one = np.array(1, target).view(f"u{target.itemsize}")
    if not is_elementwise(x.owner, ps.OR):
        return None
    for bits, exponent in (x.owner.inputs, x.owner.inputs[::-1]):
        if _constant(exponent) == bits_of_one and _is_below(bits, 2 ** np.finfo(target).nmant):
            return bits
    return None


def _constant(v: Any) -> Any:
    while v.owner is not None and len(v.owner.inputs) == 1:
        v = v.owner.inputs[0]
    return (
        v.data.flat[0] if isinstance(v, Constant) and v.data.size and not np.ptp(v.data) else None
    )


def _is_below(bits: Any, limit: int) -> bool:
    """Whether ``bits`` is a quotient of an unsigned integer that is less than ``limit``."""
    while bits.owner is not None and len(bits.owner.inputs) == 1:
        bits = bits.owner.inputs[0]
    if not is_elementwise(bits.owner, ps.IntDiv):
        return False
    divisor = _constant(bits.owner.inputs[1])
    return (
        divisor is not None
        and 2 ** (8 * np.dtype(bits.type.dtype).itemsize) // int(divisor) <= limit
    )
