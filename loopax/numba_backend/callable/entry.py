"""The Python side of a native program: what is done to arguments and results at each call.

A call costs a fraction of a microsecond when nothing has to be converted, so that the checks are
written out for the types of one program, as the program itself is. Numba is given one kind of
argument for each input: an array of the declared dtype, rank and static shape, in C order, that may be
written to, or for a 0-d input a number. So there is one compilation, whatever a caller gives, and the
program may rely on the order. Everything else is converted as PyTensor converts it, or refused. Whether an
array of undeclared shape is of that kind, Numba's call finds out by itself (`base/compiling`),
until one was not: that takes Numba 13 us for each, read-only arrays of JAX or pandas for instance, and a
look at its flags 0.05.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType

from loopax.base.compiling.exact_types import OtherTypes, compile_for
from loopax.numba_backend.callable.crossing import accept
from loopax.numba_backend.callable.opaque_arguments import argument
from loopax.numba_backend.emit.source import Source, tuple_of
from loopax.numba_backend.emit.variants import Variants
from loopax.numba_backend.runtime.checks import StateChangesShape

_NUMBERS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
_missing = object()


def entry(
    variants: Variants,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    whats: Sequence[str],
    *,
    cells: Sequence[list[Any]] = (),
    kept: Callable[[], Any] | None = None,
    count: int = 0,
    whole: Callable[..., Any] | None = None,
    in_order: Callable[..., Any] | None = None,
    build: Callable[[Any], Any] = list,
    explained: Callable[[Exception, Sequence[Any]], Exception] = lambda error, values: error,
    flagged: Callable[[Sequence[Any]], Exception] | None = None,
) -> Callable[..., Any]:
    """A native program as a function of Python's values.

    Parameters
    ----------
    variants
        The functions that take a value for each input, and return a tuple of all outputs.
    inputs, outputs
        Their types.
    whats
        For each input what it is, in the words of an error.
    cells
        For inputs that a caller does not give: lists whose only element is the value, read at each call.
    kept, count, whole
        For the last ``count`` inputs: what gives their values, or None where ``whole`` is to be called
        in the place of this function.
    in_order
        Of what was given by position, and by name: the values of the other inputs, in order.
    build
        Of all outputs, what is to be returned.
    explained
        Of an error of the native function and what it was called with, the error to raise.
    flagged
        Where the last output is a flag, which is not returned: of what was given by a caller, the error to
        raise where it is up.
    """
    names = [f"x{k}" for k in range(len(inputs))]
    given = names[: len(inputs) - len(cells) - count]
    source = Source("call", _parameters(given, in_order))
    source.line("global careful" if variants.axes else "global careful, function")
    namespace: dict[str, Any] = {
        "found": variants.found,
        "find": variants.find,
        "changing": variants.changing,
        "StateChangesShape": StateChangesShape,
        "OtherTypes": OtherTypes,
        "compile_for": compile_for,
        "ndarray": np.ndarray,
        "asarray": np.asarray,
        "missing": _missing,
        "careful": False,
        "build": build,
        "explained": explained,
        "kept": kept,
        "whole": whole,
        "flagged": flagged,
    }
    if in_order is not None:
        namespace["in_order"] = lambda args, named: in_order(
            tuple(x for x in args if x is not _missing), named
        )
        last = f"{given[-1]} is missing or " if given else ""
        to = f"{', '.join(given)}, = " if given else ""
        with source.block(f"if {last}more or named:"):
            source.line(f"{to}in_order(({''.join(f'{x}, ' for x in given)}*more,), named)")
    if kept is not None:
        source.line("known = kept()")
        with source.block("if known is None:"):
            source.line(f"return whole({', '.join(given)})")
        source.line(f"{', '.join(names[len(names) - count :])}, = known")
    for x, cell in zip(names[len(given) : len(names) - count], cells, strict=True):
        namespace[f"cell_{x}"] = cell
        source.line(f"{x} = cell_{x}[0]")
    measured = {k for k, _ in variants.axes}
    late: list[str] = []  # arrays that are only converted where Numba's function refuses them
    for k, (x, declared, what) in enumerate(zip(names, inputs, whats, strict=True)):
        namespace[f"convert_{x}"] = _converter(declared, what)
        if _ndim(declared) and k not in measured and not any(_static(declared)):
            late.append(x)
            # Numba takes a masked one for an array.
            with source.block(f"if type({x}) is not ndarray or careful and not {x}.flags.carray:"):
                source.line(f"{x} = convert_{x}({x})")
        else:
            _write_check(source, namespace, x, declared)
    found = [f"y{k}" for k in range(len(outputs))]
    to = f"{', '.join(found)}, = " if found else ""
    if variants.axes:
        lengths = tuple_of([f"x{k}.shape[{axis}]" for k, axis in variants.axes])
        source.line(f"lengths = {lengths}")
        source.line("function = found.get(lengths) or find(lengths)")
    else:  # there is one function for all lengths, until a state has changed its shape
        namespace.update(lengths=(), function=variants.find(()))
    values = f"({''.join(f'{x}, ' for x in names)})"
    source.line("converted = compiled = False")
    with source.block("while True:"):
        with source.block("try:"):
            source.line(f"{to}function({', '.join(names)})")
            source.line("break")
        with source.block("except OtherTypes:"):
            with source.block("if compiled:"):
                source.line("raise")
        with source.block("except StateChangesShape:"):
            source.line("changing()")
            source.line("function = find(lengths)")
            source.line("compiled = False")
            source.line("continue")
        with source.block("except (ValueError, IndexError) as error:"):
            source.line(f"raise explained(error, {values}) from None")
        if late:
            with source.block("if not converted:"):
                source.line("converted = True")
                source.line(f"exact = {tuple_of([f'convert_{x}({x})' for x in late])}")
                changed = " or ".join(f"{x} is not exact[{k}]" for k, x in enumerate(late))
                with source.block(f"if {changed}:"):
                    source.line("careful = True")
                    source.line(f"{', '.join(late)}, = exact")
                    source.line("continue")
        source.line(f"compile_for(function, {values})")
        source.line("compiled = True")
    if flagged is not None:
        flag = found.pop()
        with source.block(f"if {flag}:"):
            source.line(f"raise flagged({tuple_of(given)})")
    results = [_result(namespace, y, t) for y, t in zip(found, outputs, strict=False)]
    source.line(f"return {_structure(build, results)}")
    exec(compile(str(source), "<call of a native program>", "exec"), namespace)
    return namespace["call"]


def _parameters(given: Sequence[str], in_order: Any) -> list[str]:
    if in_order is None:
        return list(given)
    positional = [f"{x}=missing" for x in given]
    return [*positional, *(["/"] if positional else []), "*more", "**named"]


# -- arguments -------------------------------------------------------------------------------------


def _write_check(source: Source, namespace: dict[str, Any], x: str, declared: Any) -> None:
    """Lines by which ``x`` is what Numba is given."""
    if not _on_numbers(declared):
        source.line(f"{x} = convert_{x}({x})")
        return
    dtype = namespace[f"dtype_{x}"] = np.dtype(declared.dtype)
    if _ndim(declared):
        wrong = (
            f"type({x}) is not ndarray or {x}.dtype is not dtype_{x} or {x}.ndim != {declared.ndim}"
        )
        for axis, n in enumerate(_static(declared)):
            wrong += "" if n is None else f" or {x}.shape[{axis}] != {n}"
        # In C order, aligned and writable: one attribute, which takes half the time of three.
        with source.block(f"if {wrong} or not {x}.flags.carray:"):
            source.line(f"{x} = convert_{x}({x})")
        return
    kind = namespace[f"kind_{x}"] = dtype.type
    number = _NUMBERS[dtype.kind]
    namespace[f"numbers_{x}"] = (number, kind)
    is_0d = f"type({x}) is ndarray and {x}.dtype is dtype_{x} and not {x}.ndim"
    convert = f"{x}.item() if {is_0d} else convert_{x}({x})"
    if (
        dtype == "uint64"
    ):  # as NumPy's: for Numba a Python number is one with a sign, and would wrap
        condition, convert = f"if type({x}) is not kind_{x}:", f"convert_{x}({x})"
    elif dtype == "int64":  # and a large one is one without a sign
        limits = np.iinfo(dtype)
        fits = f"type({x}) is int and {limits.min} <= {x} <= {limits.max}"
        condition = f"if not ({fits} or type({x}) is kind_{x}):"
    elif dtype in ("bool", "float64", "complex128"):
        condition = f"if type({x}) not in numbers_{x}:"
    else:  # a Python number need not fit, and Numba would compile again for one of NumPy's
        source.line(f"{x} = {number.__name__}({x}) if type({x}) is kind_{x} else {convert}")
        return
    with source.block(condition):
        source.line(f"{x} = {convert}")


def _converter(declared: Any, what: str) -> Callable[[Any], Any]:
    if not _on_numbers(declared):
        return lambda x: argument(declared, accept(x, declared, what))
    dtype, shape = np.dtype(declared.dtype), _static(declared)

    def convert(x: Any) -> Any:
        is_exact = type(x) is np.ndarray and x.dtype == dtype and x.ndim == len(shape)
        if not is_exact or any(n not in (None, m) for n, m in zip(shape, x.shape, strict=True)):
            x = accept(x, declared, what)
        if not _ndim(declared):
            return x[()] if declared.dtype == "uint64" else x.item()
        if type(x) is np.ndarray and x.flags.carray and x.dtype.isnative:
            return x
        return np.array(x, dtype=declared.dtype, order="C", copy=True)

    return convert


def _on_numbers(declared: Any) -> bool:
    return isinstance(declared, DenseTensorType | ScalarType)


def _ndim(declared: Any) -> int:
    return getattr(declared, "ndim", 0) if _on_numbers(declared) else 0


def _static(declared: Any) -> Sequence[int | None]:
    """The lengths that ``declared`` says, and for the others None."""
    return getattr(declared, "shape", ())


# -- results ---------------------------------------------------------------------------------------


def _result(namespace: dict[str, Any], y: str, declared: Any) -> str:
    """What is returned for ``y``: an array where it is a tensor, a 0-d one too."""
    if not _on_numbers(declared) or _ndim(declared):
        return y
    dtype = namespace[f"dtype_{y}"] = np.dtype(declared.dtype)
    # NumPy finds the dtype of a Python number faster than it reads one that is given.
    same = np.array(_NUMBERS[dtype.kind](0)).dtype == dtype and dtype.kind != "u"
    return f"asarray({y})" if same else f"asarray({y}, dtype_{y})"


def _structure(build: Callable[[Any], Any], results: Sequence[str]) -> str:
    """``build([*results])`` as an expression, written out where it is made of lists, tuples and dicts."""
    marks = [object() for _ in results]
    named = {id(mark): text for mark, text in zip(marks, results, strict=True)}
    call = f"build([{', '.join(results)}])"
    try:
        return _written(build(marks), named) or call
    except Exception:  # a class of the user's that can only hold arrays
        return call


def _written(tree: Any, named: dict[int, str]) -> str | None:
    if id(tree) in named:
        return named[id(tree)]
    if tree is None:
        return "None"
    if type(tree) not in (list, tuple, dict):
        return None
    values = list(tree.values()) if type(tree) is dict else list(tree)
    parts = [_written(value, named) for value in values]
    if None in parts:
        return None
    if type(tree) is tuple:
        return tuple_of(parts)
    if type(tree) is list:
        return f"[{', '.join(parts)}]"
    if not all(type(key) in (str, int) for key in tree):
        return None
    return f"{{{', '.join(f'{key!r}: {part}' for key, part in zip(tree, parts, strict=True))}}}"
