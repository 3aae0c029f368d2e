"""Random bits: counters through the cipher threefry, bit for bit as JAX has them.

What is done with a key is JAX's own, written as a jaxpr of the cipher; the cipher itself is written here.
Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.scalar import basic as ps

from loopax.base.upstream.jax import threefry_jaxpr
from loopax.facts.elementwise import is_elementwise
from loopax.frontend.from_jaxpr.reading import inner_graph, refuse, rule
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions
from loopax.ir.ops.records import INDEX_TYPE

_ROTATIONS = np.array([[13, 15, 26, 6], [17, 29, 16, 24]])
_PARITY = np.uint32(0x1BD11BDA)


@rule("threefry2x32")
def _threefry2x32(eqn: Any, key_1: Any, key_2: Any, x: Any, y: Any) -> Any:
    """Five times four rounds, as a loop: written out it would be most of many a step.

    A rotation of 32 bits is a product in 64 whose halves are put together.
    """
    keys = key_1, key_2, key_1 ^ key_2 ^ _PARITY
    factors = pt.constant(2 ** _ROTATIONS[[0, 1, 0, 1, 0]].astype("uint64"))
    first = pt.stack([keys[(k + 1) % 3] for k in range(5)])
    second = pt.stack([keys[(k + 2) % 3] + np.uint32(k + 1) for k in range(5)])
    start = [x + keys[0], y + keys[1]]
    rows = [factors[0].type(), first[0].type(), second[0].type()]
    states = [v.type() for v in start]
    a, b = states
    for k in range(4):
        a = a + b
        turned = b.astype("uint64") * rows[0][k]
        b = a ^ (turned | (turned // np.uint64(2**32))).astype("uint32")
    args = BodyArgs(INDEX_TYPE(), rows, states, [])
    loop = Scan.from_body(args, BodyOuts([a + rows[1], b + rows[2]], []), ScanOptions("threefry"))
    return loop.bind(ScanArgs(np.int64(5), [factors, first, second], start, []))


@rule("iota_2x32_shape")
def _counters(eqn: Any) -> Any:
    """The place of each element, as two integers of 32 bits, the higher ones first."""
    shape = tuple(eqn.params["shape"])
    numbers = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint64).reshape(shape)
    halves = numbers >> np.uint64(32), numbers & np.uint64(0xFFFFFFFF)
    return [pt.constant(half.astype("uint32")) for half in halves]


@rule("random_wrap", "random_unwrap", keys=True)
def _same_integers(eqn: Any, x: Any) -> Any:
    """A key is the integers that it holds."""
    return x


@rule("random_bits", "random_split", "random_fold_in", "random_seed", keys=True)
def _of_keys(eqn: Any, *inputs: Any) -> Any:
    """By JAX's own function of the integers that a key holds, for each of the keys."""
    name, aval = eqn.primitive.name, eqn.invars[0].aval
    if name == "random_seed" and str(eqn.outvars[0].aval.dtype) != "key<fry>":
        raise refuse(eqn, "of another generator")
    types = [(v.type.shape, v.type.dtype) for v in inputs]
    return inner_graph(threefry_jaxpr(name, eqn.params, types, len(aval.shape)), inputs)


@rule("bitcast_convert_type")
def _bitcast(eqn: Any, x: Any) -> Any:
    """Of integers; and of random bits behind the exponent of 1, which make a number from 1 to 2."""
    wanted = np.dtype(eqn.params["new_dtype"])
    given = np.dtype(x.type.dtype)
    if wanted.itemsize != given.itemsize:
        raise refuse(eqn, "to another size")
    if wanted.kind in "iu" and given.kind in "iu":
        return x.astype(str(wanted))
    if wanted.kind == "f" and given.kind == "u" and (bits := _mantissa(x, wanted)) is not None:
        return bits.astype(str(wanted)) * np.array(
            2.0 ** -np.finfo(wanted).nmant, wanted
        ) + np.array(1, wanted)
    raise refuse(eqn, f"of {given} as {wanted}")


def _mantissa(x: Any, wanted: np.dtype[Any]) -> Any:
    """The bits of ``x`` behind the exponent, where that is known to be that of 1; else None."""
    of_one = np.array(1, wanted).view(f"u{wanted.itemsize}")
    if not is_elementwise(x.owner, ps.OR):
        return None
    for bits, exponent in (x.owner.inputs, x.owner.inputs[::-1]):
        if _constant(exponent) == of_one and _is_below(bits, 2 ** np.finfo(wanted).nmant):
            return bits
    return None


def _constant(v: Any) -> Any:
    while v.owner is not None and len(v.owner.inputs) == 1:
        v = v.owner.inputs[0]
    return (
        v.data.flat[0] if isinstance(v, Constant) and v.data.size and not np.ptp(v.data) else None
    )


def _is_below(bits: Any, limit: int) -> bool:
    """Whether it is a quotient of an integer without a sign that is too small to reach ``limit``."""
    while bits.owner is not None and len(bits.owner.inputs) == 1:
        bits = bits.owner.inputs[0]
    if not is_elementwise(bits.owner, ps.IntDiv):
        return False
    divisor = _constant(bits.owner.inputs[1])
    return (
        divisor is not None
        and 2 ** (8 * np.dtype(bits.type.dtype).itemsize) // int(divisor) <= limit
    )
