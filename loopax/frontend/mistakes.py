"""Mistakes in functions that run on symbols: errors of Python, PyTensor and JAX, with fixes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from traceback import walk_tb
from typing import Any, TypeVar

import numpy as np
from pytensor.graph.basic import Variable

from loopax.base.errors import LoopTypeError
from loopax.frontend.numpy_functions import numpy_protocols

F = TypeVar("F", bound=Callable[..., Any])

_JAX = (
    "JAX's functions take arrays, but this is a variable. Write the function in PyTensor, pt.sin(x) "
    "for jnp.sin(x), or turn the JAX function into a function of variables: "
    "loopax.from_jax(jnp.sin)(x)."
)
_JAX_ARRAY = (
    "A variable and a JAX array cannot be combined. Convert the array, np.asarray(a), or make it an "
    "argument of the function, or a sequence or state of the loop."
)
_SCIPY = (
    "SciPy's functions take arrays, but this is a variable. Write the function in PyTensor, "
    "pt.logsumexp(x) for scipy.special.logsumexp(x), and a density with PyMC, "
    "pm.logp(pm.Normal.dist(mu, sigma), x) for scipy.stats.norm.logpdf(x, mu, sigma)."
)
_NUMPY = (
    "NumPy's functions take arrays, but this is a variable, which NumPy does not understand: "
    "np.dot(x, y) would even multiply the elements. Write pt.sum(x) for np.sum(x), pt.where for "
    "np.where, x @ y for np.dot(x, y)."
)

# Parts of an exception's text, with the fix for the code that raised it.
_FIXES = {
    "cannot be converted to Python boolean": (
        "A Python `if`, `while`, `and`, `or` or `not` needs a number now, but a variable has one only when "
        "the program runs. Choose values with pt.switch(x > 0, a, b); run one of two branches with "
        "loopax.cond(x > 0, lambda x: a, lambda x: b, x); join conditions with & and |; loop with "
        "loopax.while_loop. If the value is known beforehand, make it an argument of the enclosing "
        "Python function, or a static one of the function itself, jaxify(f, static_argnames='flag')."
    ),
    "cannot be converted to Python float": (
        "float(x) and math.sin(x) need a number now, but a variable has one only when the program runs. "
        "Write pt.sin(x) for math.sin(x), and x.astype('float64') for float(x)."
    ),
    "cannot be converted to Python integer": (
        "int(x) and range(x) need a number now, but a variable has one only when the program runs. "
        "Write loopax.fori_loop(0, n, body, init) for a loop over range(n), and x.astype('int64') for "
        "int(x)."
    ),
    "has no len()": "The length of a variable is itself a variable, x.shape[0].",
    "cannot be determined": (
        "Python can iterate over a variable only if its type has the number of rows, "
        "pt.vector('x', shape=(3,)). To iterate over all rows when the program runs, use "
        "loopax.scan(step, init, x) or loopax.map(f, x)."
    ),
    "_tensor_py_operators": _NUMPY,  # called by np.sum
    "setting an array element with a sequence": _NUMPY,  # from np.where
    "not supported for the input types": _NUMPY,  # from np.isnan
    "'jaxlib._jax.ArrayImpl'": _JAX_ARRAY,  # from x * jnp.ones(3)
    "Cannot convert Array(": _JAX_ARRAY,  # from jnp.ones(3) * x
}


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Run the user's function ``name`` on variables in the block, and add fixes to type errors.

    Raises `LoopTypeError` if the exception is a known mistake.
    """
    try:
        with numpy_protocols():
            yield
    except (TypeError, ValueError, NotImplementedError) as error:
        if isinstance(error, LoopTypeError):
            raise
        fix = _fix(error)
        if fix is None:
            raise
        first_line = str(error).splitlines()[0].removesuffix(".")
        raise LoopTypeError(f"{first_line}. In {name}: {fix}") from error


def _fix(error: Exception) -> str | None:
    """The fix for the code that raised; None if the mistake is not known."""
    if _is_from_jax(error):
        return _JAX
    if _passes_through("scipy", error):
        return _SCIPY
    text = str(error)
    if not _is_about_a_variable(error):
        return None
    return next((fix for phrase, fix in _FIXES.items() if phrase in text), None)


def _is_from_jax(error: Exception) -> bool:
    """Whether a function of JAX raised because one of its arguments is a variable.

    JAX has many wordings for it, which change, so the arguments in its frames decide. Where JAX has
    removed its frames from the traceback, a note says so.
    """
    if any("JAX has removed its internal frames" in n for n in getattr(error, "__notes__", ())):
        return True
    return _passes_through("jax", error)


def _passes_through(package: str, error: Exception) -> bool:
    """Whether a function of ``package`` with a variable among its arguments raised, or called what did."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return any(
        str(frame.f_globals.get("__name__")).partition(".")[0] == package
        and any(map(_has_variable, list(frame.f_locals.values())))
        for frame in frames
    )


def _has_variable(x: object) -> bool:
    if isinstance(x, np.ndarray) and x.dtype == object:  # NumPy's form of a variable
        x = x.ravel().tolist()
    entries = x if isinstance(x, tuple | list) else (x,)
    return any(isinstance(entry, Variable) for entry in entries)


def _is_about_a_variable(error: Exception) -> bool:
    texts = str(error), str(error.__cause__ or "")
    iterated = texts[0].startswith("Length of ")  # PyTensor's own message
    return (
        iterated
        or "Array(" in texts[0]
        or any("Variable" in t or "_tensor_py_operators" in t for t in texts)
    )


def label_of(function: str, name: str | None) -> str:
    """The label of a loop or a branch in messages: ``scan 'filter'``, or ``scan`` without a name."""
    return f"{function} '{name}'" if name else function


def refuse_no_function(argument: object, call: str, role: str, fix: str) -> None:
    """Raise if ``argument``, the ``role`` in ``call``, is not callable; ``fix`` ends the message."""
    if not callable(argument) or isinstance(argument, Variable):
        raise LoopTypeError(
            f"{role} of {call} must be a function, got {argument!r} of type {type(argument).__name__}. "
            f"{fix}"
        )


def refuse_no_step(
    argument: object, call: str, role: str, arguments: Sequence[str], fix: str = ""
) -> None:
    """Raise if ``argument``, the ``role`` in ``call``, is no function of so many ``arguments``."""
    used_as = f"called as {role}({', '.join(arguments)})"
    refuse_no_function(argument, call, role, fix or f"It is {used_as}.")
    try:
        parameters = signature(argument)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # some functions that are written in C have none
        return
    try:
        parameters.bind(*arguments)
    except TypeError as error:
        raise LoopTypeError(
            f"{role} of {call} is {used_as}, but its parameters are {parameters}: {error}. A function "
            "captures the variables that it uses from outside, so they are no parameters."
        ) from None


def refusing_arguments(fixes: Mapping[str, str]) -> Callable[[F], F]:
    """A decorator that refuses unknown keyword arguments; the error has the fix from ``fixes``, if any."""

    def decorate(function: F) -> F:
        known = [p.name for p in signature(function).parameters.values() if p.kind in _BY_KEYWORD]

        @wraps(function)
        def refusing(*args: object, **kwargs: object) -> Any:
            for name in kwargs:
                if name not in known:
                    fix = fixes.get(name) or similar(name, known)
                    raise TypeError(f"loopax.{function.__name__} has no argument {name!r}: {fix}.")
            return function(*args, **kwargs)

        return refusing  # type: ignore[return-value]

    return decorate


_BY_KEYWORD = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def similar(name: str, known: Iterable[str]) -> str:
    """The ``known`` name that is closest to ``name``, or else all of them, as the end of a message."""
    names = [*known]
    close = get_close_matches(name, names, n=1)
    return f"the closest one is {close[0]!r}" if close else f"it has {', '.join(names)}"


def name_of(function: object) -> str:
    """The name of a function, for messages."""
    return getattr(function, "__name__", None) or type(function).__name__


def level_of_the_user() -> int:
    """The ``stacklevel`` of the first caller outside of loopax."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "loopax" or module in ("contextlib", "functools")
