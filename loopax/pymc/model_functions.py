"""Functions of the variables of a PyMC model: the model, its checks, and their compilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph

from loopax import frontend
from loopax.builders import Builder
from loopax.calling import backend_named


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
    """Compile ``outputs`` as a function of ``inputs``. Warns of draws that are equal in all calls."""
    program = frontend.read_variables(inputs, outputs, name=name)
    frontend.warn_of_equal_draws(program, _EQUAL_MINIBATCHES)
    return builder(backend, options)(program)


def builder(backend: str, options: Mapping[str, Any]) -> Builder:
    """The builder of a backend; options that ``options`` lacks have their defaults."""
    chosen = backend_named(backend)
    requested = {"jit": True, "on_missing": "callback", **options}
    return Builder(chosen, chosen.options(**requested))
