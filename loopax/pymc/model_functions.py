"""Functions of the variables of a PyMC model: the model, its checks, and their compilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pymc as pm
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scan.op import Scan as PyTensorScan
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType

from loopax import frontend
from loopax.base.errors import StatefulFunctionError
from loopax.builders import Builder
from loopax.calling import backend_named
from loopax.ir import Scan
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.program import Program


def model_given_or_in_context(model: pm.Model | None, caller: str) -> Any:
    """``model``, or the model of the ``with`` block around the call of ``loopax.pymc.<caller>``.

    Raises
    ------
    TypeError
        There is no model.
    """
    if model is None:
        try:
            return pm.modelcontext(None)
        except TypeError as error:
            raise TypeError(
                f"There is no model. Pass one, loopax.pymc.{caller}(model), or call it in a `with "
                "model:` block."
            ) from error
    if not hasattr(model, "value_vars"):
        raise TypeError(
            f"loopax.pymc.{caller} takes a PyMC model first, got {model!r} of type "
            f"{type(model).__name__}. For variables outside a model, use loopax.jaxify([x, y], "
            "outputs)."
        )
    return model


def checked_by_value(model: pm.Model, outputs: list[Any]) -> list[Any]:
    """Replace PyMC's checks of parameters by minus infinity, or remove them, as PyMC does."""
    check = (
        "local_check_parameter_to_ninf_switch"
        if model.check_bounds
        else "local_remove_check_parameter"
    )
    rewritten: Any = rewrite_graph(clone_replace(outputs), include=("canonicalize_db", check))
    return rewritten


_EQUAL_MINIBATCHES = (
    "If the model has a pm.Minibatch, all calls use the same rows. Choose the rows with pm.Data and "
    'pm.set_data, or let PyMC update the draws: model.compile_logp(mode="LOOPAX").'
)


def built(
    inputs: Sequence[Variable], outputs: object, name: str, backend: str, options: Mapping[str, Any]
) -> Any:
    """Compile ``outputs`` as a function of ``inputs``. Warns of draws that are equal in all calls.

    Raises
    ------
    StatefulFunctionError
        A loop draws in its step with the generator of a variable of the model.
    """
    program = frontend.read_variables(inputs, outputs, name=name)
    _refuse_draws_in_loops(program)
    frontend.warn_of_equal_draws(program, _EQUAL_MINIBATCHES)
    return builder(backend, options)(program)


def _refuse_draws_in_loops(program: Program) -> None:
    """Refuse a loop that reads a generator and does not update it, as PyMC does.

    ``pytensor.scan`` copies into its step what the step captures: a free variable of the model, captured,
    is drawn at each step, whatever its value is.
    """
    shared = {s.variable for s in program.shared if isinstance(s.variable.type, RandomType)}
    for node in program.graph.apply_nodes:
        if shared.isdisjoint(_loop_constants(node)):
            continue
        inner = nodes_within(node.op.fgraph.inputs, node.op.fgraph.outputs)
        draws = {repr(n.op.name) for n in inner if isinstance(n.op, RandomVariable)}
        names = " and ".join(sorted(draws)) or "a random variable"
        raise StatefulFunctionError(
            f"A step of {node.op} in {program.name} draws from {names}: pytensor.scan copies a random "
            "variable that the step captures, and the value of the variable is not used. Pass the variable "
            "to the loop: pytensor.scan(step, ..., non_sequences=[b]), with a parameter for b in the step."
        )


def _loop_constants(node: Apply) -> Sequence[Variable]:
    """The operands of a loop that are the same at every step; none for another op."""
    if isinstance(node.op, PyTensorScan):
        return list(node.op.outer_non_seqs(node.inputs))
    return node.op.split_inputs(node.inputs).consts if isinstance(node.op, Scan) else ()


def builder(backend: str, options: Mapping[str, Any]) -> Builder:
    """The builder of a backend; options that ``options`` lacks have their defaults."""
    chosen = backend_named(backend)
    requested = {"jit": True, "on_missing": "callback", **options}
    return Builder(chosen, chosen.options(**requested))
