"""What PyTensor says a program gives: values, gradients, Hessians. Nothing is hard-coded."""

from __future__ import annotations

import functools

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.link.vm import VMLinker

from .record import Program

# The program as it is written, in Python: to rewrite a graph that runs once takes longer than running it.
LITERAL = Mode(VMLinker(use_cloop=False, c_thunks=False), None)


def parts(program: Program) -> tuple[list, object, dict]:
    """A fresh graph: inputs, outputs in the structure the builder gave them, options."""
    inputs, outputs, *options = program.build()
    return list(inputs), outputs, options[0] if options else {}


@functools.cache
def declared(program: Program) -> tuple[list, object, dict]:
    """As `parts`, one graph for all who only read it: running it might update a shared variable."""
    return parts(program)


def leaves(outputs) -> list:
    """The outputs as a flat list, a dict by its own order."""
    if isinstance(outputs, dict):
        return list(outputs.values())
    return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


def evaluate(program: Program, mode=LITERAL) -> list:
    """The program's outputs as PyTensor's own `mode` computes them."""
    inputs, outputs, options = parts(program)
    return _call(program, inputs, leaves(outputs), mode, options)


def _call(program, inputs, outputs, mode, options):
    # Ops with an inner graph compile it in the configuration's mode (Numba), Scan by the C
    # compiler: a second or more each. These two are to mean Python all the way down.
    flags = {"mode": mode, "cxx": ""} if mode in (LITERAL, "FAST_COMPILE") else {}
    with pytensor.config.change_flags(**flags):
        fn = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore", **options)
        return fn(*program.arguments(inputs))


@functools.cache
def expected(program: Program) -> tuple:
    """What is right: the program's own word where it has one, else PyTensor's values."""
    inputs, outputs, _ = declared(program)
    if program.expected is None:
        arrays = evaluate(program)
    else:
        arrays = leaves(program.expected(*program.arguments(inputs)))
    # In the declared dtype: CumOp.perform, for one, gives int64 where its int8 is declared.
    return tuple(
        np.asarray(array, dtype=var.type.dtype)
        for array, var in zip(arrays, leaves(outputs), strict=True)
    )


def weights(program: Program) -> list[np.ndarray]:
    """One array per float output (None for others): the cost is the sum of weight * output.

    Unequal weights, so that a gradient that mixes up two elements or two outputs is seen.
    """
    return [
        np.cos(1.0 + 1.7 * k + np.arange(value.size)).reshape(value.shape)
        if value.dtype.kind == "f"
        else None
        for k, value in enumerate(expected(program))
    ]


def gradients(program: Program, mode=LITERAL) -> list[np.ndarray]:
    """pytensor.grad of the weighted sum of the float outputs, after each of `grad_wrt`."""
    if program.expected_grads is not None:
        inputs, _, _ = declared(program)
        return leaves(program.expected_grads(weights(program), *program.arguments(inputs)))
    inputs, outputs, options = parts(program)
    cost = sum(
        (weight * out).sum()
        for weight, out in zip(weights(program), leaves(outputs), strict=True)
        if weight is not None
    )
    wrt = [var for var in inputs if var.name in program.grad_wrt]
    grads = pytensor.grad(cost, wrt, disconnected_inputs="ignore")
    return _call(program, inputs, grads, mode, options)


def hessian(program: Program, mode=LITERAL) -> np.ndarray:
    """pytensor's Hessian of the (scalar) output after the vector `hessian_wrt`."""
    inputs, output, options = parts(program)
    [wrt] = [var for var in inputs if var.name == program.hessian_wrt]
    if wrt.type.ndim == 0:
        matrix = pt.grad(pt.grad(output, wrt), wrt)
    else:
        matrix = pytensor.gradient.hessian(output, wrt)
    return _call(program, inputs, matrix, mode, options)
