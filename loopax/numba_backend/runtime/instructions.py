"""Functions inlined as LLVM instructions into their callers, instead of Python compiled by Numba."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import types
from numba.extending import lower_builtin, type_callable

from loopax.base.upstream.numba import CPUContext, Signature, ir, literal_type_callable

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


FUNCTIONS = {"hidden": hidden}
