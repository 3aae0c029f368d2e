"""Mistakes in functions that run on symbols: what Python, PyTensor and JAX say, with what to write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loopax.ir.errors import LoopTypeError

# What an exception's text begins or ends with, and what to write in the place of what raised it.
_FIXES = {
    "cannot be converted to Python boolean": (
        "A Python `if`, `while`, `and`, `or` or `not` needs a number now, and a variable has one only when "
        "the program runs. Choose values by pt.switch(x > 0, a, b); run one of two branches by "
        "loopax.cond(x > 0, lambda x: a, lambda x: b, x); join conditions by & and |; loop by "
        "loopax.while_loop. A number that is to be known is an argument of the function around it."
    ),
    "cannot be converted to Python float": (
        "float(x) needs a number now, and a variable has one only when the program runs. Cast by "
        "x.astype('float64')."
    ),
    "cannot be converted to Python integer": (
        "int(x) and range(x) need a number now, and a variable has one only when the program runs. Cast by "
        "x.astype('int64'). A number of steps may be a variable: loopax.fori_loop(0, n, body, init)."
    ),
    "is not a valid JAX type": (
        "jax.numpy takes arrays, and this is a variable. Write the function in PyTensor, pt.sin(x) for "
        "jnp.sin(x); or make a function of variables of one that is written in JAX: "
        "loopax.from_jax(jnp.sin)(x)."
    ),
}


@contextmanager
def explained(name: str) -> Iterator[None]:
    """While the function ``name`` of a user runs on variables: errors of type get a way out.

    Raises
    ------
    LoopTypeError
        The exception was one of those that are known.
    """
    try:
        yield
    except TypeError as error:
        if isinstance(error, LoopTypeError):
            raise
        said = str(error)
        for words, fix in _FIXES.items():
            if words in said and ("Variable" in said):
                raise LoopTypeError(f"{said.splitlines()[0]} In {name}: {fix}") from error
        raise


def name_of(function: Any) -> str:
    """A function's name, for a message."""
    return getattr(function, "__name__", None) or type(function).__name__
