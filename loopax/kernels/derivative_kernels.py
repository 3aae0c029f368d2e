"""Derivatives of a kernel, which are kernels too, to any order.

The native code comes from the IR's derivatives (`derivative_graphs`); JAX differentiates the form in
its own operations. Each derivative is built once for a kernel and the positions ``wrt`` of the
inputs, and raises NotImplementedError where PyTensor has no derivative of an op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from loopax.ir.sequences import partial_at
from loopax.kernels import derivative_graphs
from loopax.kernels.kernel import InJax, Inputs, Kernel, Shape, Shapes, once_for_each_input


@once_for_each_input
def with_gradient(kernel: Kernel, wrt: Inputs) -> Kernel:
    """A kernel of the outputs, followed by the gradient of the one scalar output."""
    (scalar,) = kernel.floats
    graph = derivative_graphs.with_gradient(kernel.inputs, kernel.outputs, scalar, wrt)

    def in_jax(*args: jax.Array) -> list[Any]:
        outputs = partial_at(kernel.in_jax, args, wrt)

        def value(*moving: jax.Array) -> Any:
            outs = outputs(*moving)
            return outs[scalar], outs

        pull = jax.grad(value, argnums=tuple(range(len(wrt))), has_aux=True)
        slopes, outs = pull(*(args[k] for k in wrt))
        return [*outs, *slopes]

    def shapes(inputs: Shapes) -> list[Shape]:
        return [*kernel.shapes(inputs), *(inputs[k] for k in wrt)]

    return Kernel(
        graph.inputs,
        graph.outputs,
        in_jax,
        shapes,
        f"{kernel.name}_with_gradient",
        kernel.policy.backward,
    )


@once_for_each_input
def with_pushforward(kernel: Kernel, wrt: Inputs) -> Kernel:
    """The kernel from the inputs of `pushforward` to the outputs, followed by their tangents."""
    graph = derivative_graphs.with_pushforward(kernel.inputs, kernel.outputs, kernel.floats, wrt)
    n = len(kernel.inputs)

    def in_jax(*args: jax.Array) -> list[Any]:
        outs, tangents = _pushed_forward_in_jax(kernel, kernel.in_jax, wrt, args)
        return [*outs, *(tangents[k] for k in kernel.floats)]

    def shapes(inputs: Shapes) -> list[Shape]:
        outs = kernel.shapes(inputs[:n])
        return [*outs, *(outs[k] for k in kernel.floats)]

    # It runs forward only, as the program does, so that the program's policy holds.
    return Kernel(
        graph.inputs,
        graph.outputs,
        in_jax,
        shapes,
        f"{kernel.name}_with_pushforward",
        kernel.policy,
        jvp_of=(kernel, wrt),
    )


@once_for_each_input
def pushforward(kernel: Kernel, wrt: Inputs) -> Kernel:
    """The kernel from the inputs, and tangents for the inputs ``wrt``, to the tangents of the outputs."""
    graph = derivative_graphs.pushforward(kernel.inputs, kernel.outputs, kernel.floats, wrt)
    n = len(kernel.inputs)

    def shapes(inputs: Shapes) -> list[Shape]:
        outs = kernel.shapes(inputs[:n])
        return [outs[k] for k in kernel.floats]

    return Kernel(
        graph.inputs,
        graph.outputs,
        lambda *args: _pushed_forward_in_jax(kernel, _floats_in_jax(kernel), wrt, args)[1],
        shapes,
        f"{kernel.name}_pushforward",
        kernel.policy.forward,
        linear=len(wrt),
        transpose=lambda: pullback(kernel, wrt),
    )


@once_for_each_input
def pullback(kernel: Kernel, wrt: Inputs) -> Kernel:
    """The kernel from inputs and cotangents of the outputs to cotangents of the inputs ``wrt``."""
    graph = derivative_graphs.pullback(kernel.inputs, kernel.outputs, kernel.floats, wrt)
    return Kernel(
        graph.inputs,
        graph.outputs,
        lambda *args: pulled_back_in_jax(kernel, wrt, args),
        lambda inputs: [inputs[k] for k in wrt],
        f"{kernel.name}_pullback",
        kernel.policy.backward,
        linear=len(kernel.floats),
        transpose=lambda: pushforward(kernel, wrt),
    )


# -- in JAX's operations -----------------------------------------------------------------------------


def _pushed_forward_in_jax(
    kernel: Kernel, function: InJax, wrt: Inputs, args: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    n = len(kernel.inputs)
    moving = partial_at(function, args[:n], wrt)
    return jax.jvp(moving, tuple(args[k] for k in wrt), tuple(args[n:]))


def pulled_back_in_jax(kernel: Kernel, wrt: Inputs, args: Sequence[Any]) -> list[Any]:
    """The results of the `pullback`, in JAX's operations."""
    n = len(kernel.inputs)
    floats = partial_at(_floats_in_jax(kernel), args[:n], wrt)
    return list(jax.vjp(floats, *(args[k] for k in wrt))[1](list(args[n:])))


def _floats_in_jax(kernel: Kernel) -> InJax:
    def floats(*args: jax.Array) -> list[Any]:
        outs = kernel.in_jax(*args)  # once: JAX would trace a loop again for each output
        return [outs[k] for k in kernel.floats]

    return floats
