"""Transformations of a `Program` as a graph: from the program of ``f`` to the program of ``grad(f)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.type import Type
from pytensor.tensor.type import TensorType

from loopax.frontend.loops.leaves import variables_of
from loopax.ir.program import Input, Program, Shared
from loopax.ir.replace import replaced


def transformed(
    program: Program,
    transform: Callable[[Any], Any],
    types: Sequence[Any] | None = None,
    inputs: Sequence[tuple[Any, str | None]] | None = None,
) -> Program:
    """The program of ``transform(f)``, with the inputs' names and the shared variables of ``program``.

    Parameters
    ----------
    program
        A program without updates and with ``as_read``: the graph after the passes can be neither
        differentiated nor batched.
    transform
        A transformation of functions of variables.
    types
        The types of the new program's inputs, if they differ.
    inputs
        The types and names of the new program's inputs, if their number differs.

    Raises
    ------
    LoopTypeError
        From ``transform``.
    """
    assert program.as_read is not None and not program.updates
    old_inputs, outputs = program.as_read[0], program.as_read[1][: program.n_returned]
    n = len(program.inputs)

    def function(*args: Variable) -> Any:
        return program.build(replaced(outputs, dict(zip(old_inputs[:n], args, strict=True))))

    function.__name__, function.__doc__ = program.name, program.doc
    result = transform(function)
    if inputs is None:
        kinds = [v.type for v in old_inputs[:n]] if types is None else types
        inputs = [(t, i.name) for t, i in zip(kinds, program.inputs, strict=True)]
    symbols = [t(name=name) for t, name in inputs]
    returned = result(*symbols)
    leaves, _, tree = variables_of(returned, "result")
    graph = FunctionGraph([*symbols, *old_inputs[n:]], leaves, clone=True)
    return Program(
        graph,
        tuple(Input(v, name) for v, (_, name) in zip(graph.inputs, inputs, strict=False)),
        tuple(
            Shared(v, s.storage)
            for v, s in zip(graph.inputs[len(inputs) :], program.shared, strict=True)
        ),
        tree.build,
        name=result.__name__,
        doc=result.__doc__,
    )


def batched_types(program: Program, in_axes: object) -> list[Any]:
    """The types of a program's inputs with the axis that ``vmap`` maps over.

    For an invalid axis in ``in_axes`` the type is unchanged, or has an additional axis somewhere:
    `loopax.vmap` raises.
    """
    n = len(program.inputs)
    axes = list(in_axes) if isinstance(in_axes, list | tuple) else [in_axes] * n
    axes += [None] * (n - len(axes))
    return [_batched(i.variable.type, a) for i, a in zip(program.inputs, axes, strict=False)]


def _batched(t: Type, axis: object) -> Any:
    if not isinstance(t, TensorType) or not isinstance(axis, int):
        return t
    position = axis if axis >= 0 else axis + t.ndim + 1
    position = position if 0 <= position <= t.ndim else 0
    return TensorType(t.dtype, (*t.shape[:position], None, *t.shape[position:]))
