"""The Python side of a native program: conversion of arguments and results at each call.

A call without conversions costs a fraction of a microsecond, because the checks are generated for the
types of one program. Numba receives one kind of argument for each input: a writable array of the
declared dtype, rank and static shape, in C order, or a number for a 0-d input. So there is one
compilation for all callers, and the program may rely on the order. Every other value is converted as
PyTensor converts it, or refused. Numba's own call checks an array of undeclared shape
(`base/compiling`), until one fails: a failure costs 13 us, for read-only arrays of JAX or pandas for
instance, and a test of the flags 0.05.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType

from loopax.base.compiling.no_recompilation import SignatureMismatch, compile_for
from loopax.numba_backend.callable.conversion import accept
from loopax.numba_backend.callable.opaque_arguments import argument
from loopax.numba_backend.emit.size_specializations import SizeSpecializations
from loopax.numba_backend.emit.source import Source, tuple_of
from loopax.numba_backend.runtime.checks import StateChangesShape

_NUMBERS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
_missing = object()


def entry(
    variants: SizeSpecializations,
    inputs: Sequence[Type],
    outputs: Sequence[Type],
    labels: Sequence[str],
    *,
    cells: Sequence[list[Any]] = (),
    early_values: Callable[[], Any] | None = None,
    count: int = 0,
    whole: Callable[..., Any] | None = None,
    in_order: Callable[..., Any] | None = None,
    build: Callable[[Any], Any] = list,
    explained: Callable[[Exception, Sequence[Any]], Exception] = lambda error, values: error,
    flagged: Callable[[Sequence[Any]], Exception] | None = None,
) -> Callable[..., Any]:
    """Wrap a native program as a function of Python values.

    Parameters
    ----------
    variants
        Native functions that take a value for each input, and return a tuple of all outputs.
    inputs, outputs
        Types of the inputs and outputs.
    labels
        Names of the inputs in errors.
    cells
        Lists whose only element is the value of an input that callers do not pass, read at each call.
    early_values, count, whole
        ``early_values()`` returns the last ``count`` inputs, or None if ``whole`` must be called instead.
    in_order
        Orders the positional and named arguments of a call.
    build
        Builds the result of a call from all outputs.
    explained
        Maps an error of the native function, and its arguments, to the error to raise.
    flagged
        For programs whose last output is a flag: maps the arguments of a call to the error to raise
        if the flag is set.
    """
    names = [f"x{k}" for k in range(len(inputs))]
    arguments = names[: len(inputs) - len(cells) - count]
    source = Source("call", _parameters(arguments, in_order))
    source.line("global careful" if variants.axes else "global careful, function")
    namespace: dict[str, Any] = {
        "functions": variants.by_lengths,
        "find": variants.find,
        "changing": variants.changing,
        "StateChangesShape": StateChangesShape,
        "OtherTypes": SignatureMismatch,
        "compile_for": compile_for,
        "ndarray": np.ndarray,
        "asarray": np.asarray,
        "missing": _missing,
        "careful": False,
        "build": build,
        "explained": explained,
        "early_values": early_values,
        "whole": whole,
        "flagged": flagged,
    }
    if in_order is not None:
        namespace["in_order"] = lambda args, named: in_order(
            tuple(x for x in args if x is not _missing), named
        )
        last = f"{arguments[-1]} is missing or " if arguments else ""
        to = f"{', '.join(arguments)}, = " if arguments else ""
        with source.block(f"if {last}more or named:"):
            source.line(f"{to}in_order(({''.join(f'{x}, ' for x in arguments)}*more,), named)")
    if early_values is not None:
        source.line("early = early_values()")
        with source.block("if early is None:"):
            source.line(f"return whole({', '.join(arguments)})")
        source.line(f"{', '.join(names[len(names) - count :])}, = early")
    for x, cell in zip(names[len(arguments) : len(names) - count], cells, strict=True):
        namespace[f"cell_{x}"] = cell
        source.line(f"{x} = cell_{x}[0]")
    measured = {k for k, _ in variants.axes}
    late: list[str] = []  # arrays that are converted only after Numba has refused them
    for k, (x, declared, label) in enumerate(zip(names, inputs, labels, strict=True)):
        namespace[f"convert_{x}"] = _converter(declared, label)
        if _ndim(declared) and k not in measured and not any(_static(declared)):
            late.append(x)
            # Numba takes a masked array for an array.
            with source.block(f"if type({x}) is not ndarray or careful and not {x}.flags.carray:"):
                source.line(f"{x} = convert_{x}({x})")
        else:
            _write_check(source, namespace, x, declared)
    output_names = [f"y{k}" for k in range(len(outputs))]
    to = f"{', '.join(output_names)}, = " if output_names else ""
    if variants.axes:
        lengths = tuple_of([f"x{k}.shape[{axis}]" for k, axis in variants.axes])
        source.line(f"lengths = {lengths}")
        source.line("function = functions.get(lengths) or find(lengths)")
    else:  # one function serves all lengths, until a state changes its shape
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
        # Numba (0.65 to 0.68) runs Python code to make an array. Where a signal's handler raises there and
        # the array is one of several results, Numba returns them all the same, and Python raises a
        # SystemError. To be removed when `test_a_signal_is_no_system_error` passes without these lines.
        with source.block("except SystemError as error:"):
            source.line("raise error.__cause__ or error from None")
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
        flag = output_names.pop()
        with source.block(f"if {flag}:"):
            source.line(f"raise flagged({tuple_of(arguments)})")
    results = [_result(namespace, y, t) for y, t in zip(output_names, outputs, strict=False)]
    source.line(f"return {_structure(build, results)}")
    exec(compile(str(source), "<call of a native program>", "exec"), namespace)
    return namespace["call"]


def _parameters(arguments: Sequence[str], in_order: Callable[..., Any] | None) -> list[str]:
    if in_order is None:
        return list(arguments)
    positional = [f"{x}=missing" for x in arguments]
    return [*positional, *(["/"] if positional else []), "*more", "**named"]


# -- arguments -------------------------------------------------------------------------------------


def _write_check(source: Source, namespace: dict[str, Any], x: str, declared: Any) -> None:
    """Write the check of the argument ``x``, and its conversion where the check fails."""
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
        # `carray` is C order, aligned and writable in one attribute, at half the time of three.
        with source.block(f"if {wrong} or not {x}.flags.carray:"):
            source.line(f"{x} = convert_{x}({x})")
        return
    kind = namespace[f"kind_{x}"] = dtype.type
    number = _NUMBERS[dtype.kind]
    namespace[f"numbers_{x}"] = (number, kind)
    is_0d = f"type({x}) is ndarray and {x}.dtype is dtype_{x} and not {x}.ndim"
    convert = f"{x}.item() if {is_0d} else convert_{x}({x})"
    if dtype == "uint64":  # a NumPy number: Numba types a Python number as signed, which would wrap
        condition, convert = f"if type({x}) is not kind_{x}:", f"convert_{x}({x})"
    elif dtype == "int64":  # Numba types a large Python number as unsigned
        limits = np.iinfo(dtype)
        fits = f"type({x}) is int and {limits.min} <= {x} <= {limits.max}"
        condition = f"if not ({fits} or type({x}) is kind_{x}):"
    elif dtype in ("bool", "float64", "complex128"):
        condition = f"if type({x}) not in numbers_{x}:"
    else:  # a Python number may not fit, and Numba would compile again for a NumPy number
        source.line(f"{x} = {number.__name__}({x}) if type({x}) is kind_{x} else {convert}")
        return
    with source.block(condition):
        source.line(f"{x} = {convert}")


def _converter(declared: Any, label: str) -> Callable[[Any], Any]:
    if not _on_numbers(declared):
        return lambda x: argument(declared, accept(x, declared, label))
    dtype, shape = np.dtype(declared.dtype), _static(declared)

    def convert(x: Any) -> Any:
        is_exact = type(x) is np.ndarray and x.dtype == dtype and x.ndim == len(shape)
        if not is_exact or any(n not in (None, m) for n, m in zip(shape, x.shape, strict=True)):
            x = accept(x, declared, label)
        if not _ndim(declared):
            return x[()] if declared.dtype == "uint64" else x.item()
        if type(x) is np.ndarray and x.flags.carray and x.dtype.isnative:
            return x
        return np.array(x, dtype=declared.dtype, order="C", copy=True)

    return convert


def _on_numbers(declared: Type) -> bool:
    return isinstance(declared, DenseTensorType | ScalarType)


def _ndim(declared: Type) -> int:
    return getattr(declared, "ndim", 0) if _on_numbers(declared) else 0


def _static(declared: Type) -> Sequence[int | None]:
    """The static lengths of ``declared``, None for unknown ones."""
    return getattr(declared, "shape", ())


# -- results ---------------------------------------------------------------------------------------


def _result(namespace: dict[str, Any], y: str, declared: Any) -> str:
    """The returned expression of ``y``: an array for a tensor, 0-d ones included."""
    if not _on_numbers(declared) or _ndim(declared):
        return y
    dtype = namespace[f"dtype_{y}"] = np.dtype(declared.dtype)
    # NumPy infers the dtype of a Python number faster than it reads an explicit one.
    is_default = np.array(_NUMBERS[dtype.kind](0)).dtype == dtype and dtype.kind != "u"
    return f"asarray({y})" if is_default else f"asarray({y}, dtype_{y})"


def _structure(build: Callable[[Any], Any], results: Sequence[str]) -> str:
    """``build([*results])`` as an expression, written out for lists, tuples and dicts."""
    marks = [object() for _ in results]
    texts = {id(mark): text for mark, text in zip(marks, results, strict=True)}
    call = f"build([{', '.join(results)}])"
    try:
        return _tree_text(build(marks), texts) or call
    except Exception:  # a user's class that accepts arrays alone
        return call


def _tree_text(tree: Any, texts: dict[int, str]) -> str | None:
    if id(tree) in texts:
        return texts[id(tree)]
    if tree is None:
        return "None"
    if type(tree) not in (list, tuple, dict):
        return None
    values = list(tree.values()) if type(tree) is dict else list(tree)
    texts_of_values = (_tree_text(value, texts) for value in values)
    parts = [text for text in texts_of_values if text is not None]
    if len(parts) < len(values):
        return None
    if type(tree) is tuple:
        return tuple_of(parts)
    if type(tree) is list:
        return f"[{', '.join(parts)}]"
    if not all(type(key) in (str, int) for key in tree):
        return None
    return f"{{{', '.join(f'{key!r}: {part}' for key, part in zip(tree, parts, strict=True))}}}"
