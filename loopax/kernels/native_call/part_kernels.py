"""A part of a jaxpr as a kernel, and its call in the part's place.

The part is read into the IR by the frontend's reader, which registers itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from pytensor.graph.basic import Variable

from loopax.base.errors import unexpected
from loopax.base.upstream.jax import Jaxpr, Var
from loopax.kernels.kernel import Kernel, Policy
from loopax.kernels.native_call.equations import has_loop, loop_depth
from loopax.kernels.primitive import bind

# Lines of a native source for one loop, at 1 to 10 ms of Numba each: the limit with small arrays in locals,
# and the limit of any program with "auto". JAX's own function is compiled after half a second, and a user
# who wants its Hessian once should not wait longer. Two or more loops, such as the loops of a value and its
# gradient, may take twice as many.
_LONGEST, _MOST_LINES = 300, 450
# Of nested loops, as many more: refused, their inner loops are tried in turn, and those of BFGS (594 lines)
# and of a scan with a matrix exponential (1,003 with its gradient) are ready later than the whole. The step
# of NumPyro's NUTS for an AR, a GARCH and an HMM model (1,485 to 2,012 lines) was ready after 4.5, 5.1 and
# 6.0 s in parts and after 3.3, 3.8 and 5.2 s as a whole, which is up to 2.8 times as fast.
_NESTED = 5


@dataclass(frozen=True)
class Reader:
    """A reader of a jaxpr's equations into the IR.

    Parameters
    ----------
    read
        Extends a map from a jaxpr's variables to the IR's by all that the equations compute.
    type_of
        The type of a value of a jaxpr in the IR.
    refused
        The exception that both raise where there is no rule; its message names the primitive.
    """

    read: Callable[[Iterable[Any], Mapping[Any, Variable]], dict[Any, Variable]]
    type_of: Callable[[Any], Any]
    refused: type[Exception]


_readers: list[Reader] = []


def reader() -> Reader:
    return _readers[0]


def register_reader(reader: Reader) -> None:
    """Register the reader of jaxprs: the frontend's, which this folder does not import."""
    _readers[:] = [reader]


def part_kernel(part: Jaxpr, values: Mapping[Any, Variable], is_limited: bool) -> Kernel:
    """The kernel of a part, whose inputs and outputs are these ``values`` in the IR.

    ``is_limited``: whether to refuse a source that takes long to compile.
    """
    shapes = [reader().type_of(v.aval).shape for v in part.outvars]
    size = min(2, sum(map(has_loop, part.eqns)))
    most_lines = size * _MOST_LINES * (_NESTED if loop_depth(part.eqns) > 1 else 1)

    def in_jax(*args: jax.Array) -> list[Any]:
        outs = jax.core.eval_jaxpr(part, (), *map(_as_declared, args, part.invars))
        return [_as_array(x) for x in outs]

    return Kernel(
        [values[v] for v in part.invars],
        [values[v] for v in part.outvars],
        in_jax,
        lambda inputs: shapes,
        "_".join(eqn.primitive.name for eqn in part.eqns if has_loop(eqn)),
        Policy(
            checks="ignore",
            most_lines=most_lines if is_limited else float("inf"),
            longest=size * _LONGEST,
        ),
        canonical=True,
    )


def no_code(kernel: Kernel) -> str | None:
    """The reason why there is no native code; None where there is."""
    try:
        return kernel.no_code
    except Exception as error:
        # PyTensor may fail when it evaluates constants: 3.0 on an integer that does not fit into another
        # type.
        return f"there is no native code, {unexpected(error)}"


def kernel_call(kernel: Kernel, inputs: Sequence[Var], outputs: Sequence[Var]) -> Any:
    """The equation that computes ``outputs`` by a kernel: a call, as random keys are arrays in a kernel."""
    avals = [v.aval for v in inputs]
    call_jaxpr = jax.make_jaxpr(jax.jit(partial(_run_kernel, kernel, outputs)))(*avals)
    (equation,) = call_jaxpr.jaxpr.eqns
    return equation.replace(invars=inputs, outvars=outputs)


def _run_kernel(kernel: Kernel, outputs: Sequence[Var], *args: jax.Array) -> list[Any]:
    outs = bind(kernel, [_as_array(x) for x in args])
    return [_as_declared(x, v) for x, v in zip(outs, outputs, strict=True)]


def _as_array(x: jax.Array) -> jax.Array:
    """Convert a random key to the integers that it holds."""
    return jax.random.key_data(x) if _is_key(jax.typeof(x)) else x


def _as_declared(x: jax.Array, v: Var) -> jax.Array:
    """Convert a result for ``v`` back from its array: the inverse of `_as_array`."""
    return jax.random.wrap_key_data(x, impl="threefry2x32") if _is_key(v.aval) else x


def _is_key(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)
