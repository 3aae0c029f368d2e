"""Read an argument of `jaxify` as a `Program`, and warn of mistakes in it."""

from __future__ import annotations

from typing import Any

from pytensor.compile.executor import Function
from pytensor.graph.fg import FunctionGraph

from loopax.frontend.programs.equal_draws import warn_of_equal_draws
from loopax.frontend.programs.read import Replacements, read_function, read_graph, read_variables
from loopax.frontend.wrong_gradients import warn_of_wrong_gradients
from loopax.ir.program import Program


def read_program(
    fn: object,
    outputs: object = None,
    updates: Replacements | None = None,
    givens: Replacements | None = None,
    name: str | None = None,
) -> Program:
    """Read an argument of `jaxify` as a `Program`, except for a Python function, which needs arguments."""
    program = _read(fn, outputs, updates, givens, name)
    warn_of_mistakes(program)
    return program


def warn_of_mistakes(program: Program) -> None:
    """Warn of draws that are equal in every call, and of PyTensor's wrong gradients."""
    warn_of_equal_draws(program)
    warn_of_wrong_gradients(program.graph.apply_nodes)


def _read(
    fn: Any,
    outputs: object,
    updates: Replacements | None,
    givens: Replacements | None,
    name: str | None,
) -> Program:
    if isinstance(fn, Function | FunctionGraph) or (callable(fn) and outputs is None):
        if outputs is not None or updates is not None or givens is not None:
            raise TypeError(
                "outputs, updates and givens need a list of input variables: jaxify([x], y). A "
                f"{type(fn).__name__} has its own."
            )
        program = read_function(fn) if isinstance(fn, Function) else read_graph(fn)
        program.name = name or program.name
        return program
    if outputs is None and updates is None:
        raise TypeError(
            "jaxify takes a list of inputs followed by outputs, a function, a compiled "
            f"pytensor.function, a FunctionGraph or a PyMC model; got {fn!r} of type "
            f"{type(fn).__name__} without outputs. For the variable y as a function of x, write "
            "jaxify([x], y)."
        )
    # A function of updates alone returns [], as PyTensor's does.
    return read_variables(fn, [] if outputs is None else outputs, updates, givens, name)
