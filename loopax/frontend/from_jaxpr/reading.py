"""The table of rules, and the import of a jaxpr as a graph of the IR.

A rule takes an equation of a jaxpr and variables for its inputs, and returns variables for its
outputs. Its graph has XLA's meaning of the primitive, to rounding: where an op of the IR differs for
some arguments (a division by zero, an index out of bounds, a conversion out of range), the graph
corrects it, and where that is impossible there is no rule.

Each variable has the dtype and the static shape of its type in the jaxpr. A random key is the array
of its integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType

from loopax.base.upstream.jax import JaxprEqn, Literal, Var, without_dead_code

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Rule = Callable[..., Any]

RULES: dict[str, Rule] = {}
# Primitives whose rules take random keys, which have a further axis in the IR; or `FloatBits`.
KEY_PRIMITIVES: set[str] = set()
BIT_PRIMITIVES: set[str] = set()
# Functions of JAX that are read as one op, by the names of their calls.
FUNCTION_RULES: dict[str, Rule] = {}
_DTYPES = {"bool", "float32", "float64", "complex64", "complex128"}
_DTYPES |= {f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)}


class NotImportable(Exception):
    """Raised if a primitive has no rule, or none for these arguments; the message names it."""


class FloatBits(NamedTuple):
    """The bits of the floats ``x`` as integers whose lowest ``n_cleared`` bits are 0.

    The IR has no such integers, but some operations of programs on them are arithmetic on ``x``.
    """

    x: Variable
    n_cleared: int = 0


def rule(*primitives: str, keys: bool = False, bits: bool = False) -> Callable[[Rule], Rule]:
    """Register a function ``(eqn, *inputs) -> output, or a list of outputs`` for primitives.

    With ``keys`` the function takes random keys as well, with ``bits`` `FloatBits`.
    """

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(primitives, function))
        KEY_PRIMITIVES.update(primitives if keys else ())
        BIT_PRIMITIVES.update(primitives if bits else ())
        return function

    return register


def function_rule(name: str) -> Callable[[Rule], Rule]:
    """Register a rule for calls of the function of JAX with this name.

    A user's function may have that name, too: the rule compares the jaxprs, and returns None if they
    differ.
    """

    def register(function: Rule) -> Rule:
        FUNCTION_RULES[name] = function
        return function

    return register


def tensor_type(aval: object) -> TensorType:
    """The type of a value of a jaxpr in the IR.

    Raises
    ------
    NotImportable
        The value has a dtype without native code, or a symbolic length.
    """
    shape: Any = getattr(aval, "shape", None)  # not an array: it has no dtype either
    dtype = str(getattr(aval, "dtype", aval))
    if dtype == "key<fry>":
        shape, dtype = (*shape, 2), "uint32"
    if dtype not in _DTYPES:
        raise NotImportable(f"values of type {dtype}")
    if not all(isinstance(n, int | np.integer) for n in shape):
        raise NotImportable("a symbolic length")
    return TensorType(dtype, tuple(int(n) for n in shape))


def declared(v: Variable, aval: object) -> Variable:
    """Convert ``v`` to exactly the type of ``aval`` in the IR."""
    if isinstance(v, FloatBits):
        return v
    declared_type = tensor_type(aval)
    assert v.type.dtype == declared_type.dtype and v.type.ndim == declared_type.ndim, (
        v,
        v.type,
        declared_type,
    )
    if v.type.shape == declared_type.shape:
        return v
    return pt.specify_shape(v, declared_type.shape)


def read_equations(
    equations: Iterable[JaxprEqn], variables: Mapping[Any, Variable]
) -> dict[Any, Variable]:
    """Extend ``variables``, keyed by variables of a jaxpr, by the results of ``equations``.

    Raises
    ------
    NotImportable
        An equation has no rule, or its result is `FloatBits`.
    """
    values = _read_equations(equations, variables)
    _refuse_bits(values.values())
    return values


def _refuse_bits(values: Iterable[Any]) -> None:
    if any(isinstance(v, FloatBits) for v in values):
        raise NotImportable("bitcast_convert_type (of floats)")


def _read_equations(
    equations: Iterable[JaxprEqn], variables: Mapping[Any, Variable]
) -> dict[Any, Variable]:
    values = dict(variables)

    def read(atom: object) -> Variable:
        if isinstance(atom, Literal):
            return constant(atom.val, atom.aval)
        return values[atom]

    for eqn in equations:
        name = eqn.primitive.name
        if name not in RULES or eqn.effects:
            raise NotImportable(name)
        if name not in KEY_PRIMITIVES and any(map(_is_key, (*eqn.invars, *eqn.outvars))):
            raise NotImportable(f"{name} (of random keys)")
        types = [tensor_type(v.aval) for v in eqn.outvars]
        inputs = list(map(read, eqn.invars))
        if name not in BIT_PRIMITIVES:
            _refuse_bits(inputs)
        outs = RULES[name](eqn, *inputs)
        outs = outs if isinstance(outs, list) else [outs]
        assert len(outs) == len(types), eqn
        values.update((v, declared(out, v.aval)) for v, out in zip(eqn.outvars, outs, strict=True))
    return values


def _is_key(atom: Var | Literal) -> bool:
    return str(getattr(atom.aval, "dtype", "")).startswith("key")


def constant(value: ArrayLike, aval: object) -> Variable:
    """A constant of a jaxpr in the IR.

    Raises
    ------
    NotImportable
        The constant is a random key, or contains -0.0: PyTensor merges constants that compare equal, but
        0.0 and -0.0 have different reciprocals.
    """
    declared_type = tensor_type(aval)
    if str(getattr(value, "dtype", "")).startswith("key"):
        raise NotImportable("a constant random key")
    array = np.asarray(value, dtype=declared_type.dtype)
    parts = [array.real, array.imag] if array.dtype.kind in "fc" else []
    if any((np.signbit(part) & (part == 0)).any() for part in parts):
        raise NotImportable("the constant -0.0")
    return pt.constant(array)


def inner_graph(jaxpr: Any, inputs: Sequence[Variable], bits: bool = False) -> list[Variable]:
    """The outputs of a closed jaxpr, a parameter of a primitive, for these inputs.

    With ``bits`` they may be `FloatBits`. A primitive whose results are unread needs no rule.
    """
    opened = without_dead_code(jaxpr).jaxpr
    variables = dict(zip(opened.invars, inputs, strict=True))
    variables |= {
        v: constant(value, v.aval) for v, value in zip(opened.constvars, jaxpr.consts, strict=True)
    }
    values = _read_equations(opened.eqns, variables)
    outs = [
        constant(v.val, v.aval) if isinstance(v, Literal) else values[v] for v in opened.outvars
    ]
    if not bits:
        _refuse_bits(outs)
    return outs


def out_aval(eqn: JaxprEqn) -> Any:
    """The shape and dtype of the one output of an equation, which JAX's annotations lack."""
    return eqn.outvars[0].aval


def out_dtype(eqn: JaxprEqn) -> str:
    """The dtype of the one output of an equation."""
    return str(out_aval(eqn).dtype)


def refuse(eqn: JaxprEqn, why: str) -> NotImportable:
    """The exception for a rule that does not apply to these arguments; ``why`` names them (plural)."""
    return NotImportable(f"{eqn.primitive.name} ({why})")
