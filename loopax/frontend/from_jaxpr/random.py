"""Random bits: counters encrypted by the cipher threefry, bit for bit as in JAX.

Operations on keys are JAX's own functions, as jaxprs of the cipher; the cipher itself is one function
of four integers (`loopax.ir.ops.threefry`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.jax import JaxprEqn, implementation_jaxpr, threefry_jaxpr
from loopax.frontend.from_jaxpr.reading import inner_graph, out_dtype, refuse, rule
from loopax.ir.ops.threefry import threefry


@rule("threefry2x32")
def _threefry2x32(
    eqn: JaxprEqn,
    key_1: TensorVariable,
    key_2: TensorVariable,
    x: TensorVariable,
    y: TensorVariable,
) -> Any:
    word: Any = threefry(key_1, key_2, x, y)
    return [word.astype("uint32"), (word // np.uint64(2**32)).astype("uint32")]


@rule("iota_2x32_shape")
def _counters(eqn: JaxprEqn) -> Any:
    """The flat index of each element as two integers of 32 bits, the higher bits first."""
    shape = tuple(eqn.params["shape"])
    numbers = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint64).reshape(shape)
    halves = numbers >> np.uint64(32), numbers & np.uint64(0xFFFFFFFF)
    return [pt.constant(half.astype("uint32")) for half in halves]


@rule("random_wrap", "random_unwrap", "random_clone", keys=True)
def _same_integers(eqn: JaxprEqn, x: TensorVariable) -> Any:
    """Conversions between a key and its integers, which are identical in the IR."""
    return x


@rule("random_bits", "random_split", "random_fold_in", "random_seed", keys=True)
def _key_function(eqn: JaxprEqn, *inputs: TensorVariable) -> Any:
    """Apply JAX's own function of a key's integers to all keys."""
    name = eqn.primitive.name
    aval: Any = eqn.invars[0].aval
    if name == "random_seed" and out_dtype(eqn) != "key<fry>":
        raise refuse(eqn, "keys of another type")
    types = [(v.type.shape, v.type.dtype) for v in inputs]
    return inner_graph(threefry_jaxpr(name, eqn.params, types, len(aval.shape)), inputs)


@rule("random_gamma", keys=True)
def _gamma(eqn: JaxprEqn, key: TensorVariable, alpha: TensorVariable) -> Any:
    """Import JAX's own function, as a loop over the draws, with a rejection loop in each."""
    return inner_graph(implementation_jaxpr(eqn), [key, alpha])
