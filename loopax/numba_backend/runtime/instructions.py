"""Functions inlined as LLVM instructions into their callers, instead of Python compiled by Numba."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import types
from numba.extending import lower_builtin, type_callable

from loopax.base.upstream.numba import CPUContext, Signature, ir, literal_type_callable
from loopax.ir.ops.total_order import TotalOrder

Rule = Callable[..., Any]


def result_type(
    function: Callable[..., Any], reads_literals: bool = False
) -> Callable[[Rule], Rule]:
    """Decorate a rule for the result type of ``function``; the rule takes the same parameters.

    The rule takes the types of the arguments, and returns None for types that the function refuses. With
    ``reads_literals``, the type of a number in the source includes its value.
    """
    register_type = literal_type_callable if reads_literals else type_callable

    def register(rule: Rule) -> Rule:
        register_type(function)(lambda context: rule)
        return rule

    return register


def hidden(k: int) -> int:
    """Hide the computation of ``k`` from LLVM.

    LLVM would unroll a loop over a matrix of known size, which takes a second for each function. And it
    tries all forms of a sum of lengths, each a minimum and a maximum for a slice, in each loop that starts
    there: 100 parts of a concatenation compiled in 16.8 s without this, and take 2.0 with it.
    """
    return k


@result_type(hidden)
def _type_of_hidden(k):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.int64 if isinstance(k, types.Integer) else None


@lower_builtin(hidden, types.Integer)
def _lower_hidden(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    k = context.cast(builder, args[0], signature.args[0], types.int64)
    return builder.asm(ir.FunctionType(k.type, [k.type]), "", "=r,0", [k], side_effect=False)


_MOST_STEPS = 2**48  # with rows of 2**15 numbers, a position in a trace is less than 2**63


def hidden_step(k: int, n: int) -> int:
    """Hide the computation of ``k``, a step of ``n``, from LLVM, which learns only its range.

    LLVM moves the test for overlapping memory of an inner loop out of the loop around it if addresses
    change by a fixed stride there, and takes a negative stride for an overlap: a backward loop that reads a
    trace and adds to another array had scalar code, 4.8 us for 1,024 exponentials in place of 0.6.
    """
    return k


@result_type(hidden_step)
def _type_of_step(k, n):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.int64 if all(isinstance(t, types.Integer) for t in (k, n)) else None


@lower_builtin(hidden_step, types.Integer, types.Integer)
def _lower_step(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    k, n = (
        context.cast(builder, v, t, types.int64) for v, t in zip(args, signature.args, strict=True)
    )
    k = builder.asm(ir.FunctionType(k.type, [k.type]), "", "=r,0", [k], side_effect=False)
    for bound in (n, n.type(_MOST_STEPS)):
        builder.assume(builder.icmp_unsigned("<", k, bound))
    return k


def place_in_order(x: float) -> int:
    """The integer of `TotalOrder` for ``x``: its bits, reversed below the sign if that is negative."""
    return int(TotalOrder(name="total_order").impl(x))


@result_type(place_in_order)
def _type_of_place(x):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.int64 if x in (types.float32, types.float64) else None


@lower_builtin(place_in_order, types.Float)
def _lower_place(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    word = ir.IntType(signature.args[0].bitwidth)
    n = builder.bitcast(args[0], word)
    is_negative = builder.ashr(n, word(word.width - 1))  # all bits, or none
    n = builder.xor(n, builder.lshr(is_negative, word(1)))
    return n if word.width == 64 else builder.sext(n, ir.IntType(64))


FUNCTIONS = {f.__name__: f for f in (hidden, hidden_step, place_in_order)}
