"""The function `diagnose`: the origin of the first number that is not finite, with its step and line."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pytensor.compile.executor import Function
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from loopax.calling import BackendFunction
from loopax.diagnosis import Diagnosis
from loopax.diagnosis.graph import GraphRun, diagnose_graph
from loopax.diagnosis.rows import in_row, rows_of
from loopax.graph_runs import call_of, unwrapped
from loopax.jax_backend.callable.stages import Transformed
from loopax.options import is_pymc_model
from loopax.transpile import jaxify


def diagnose(
    fn: Any,
    /,
    *args: Any,
    grad: bool = False,
    within: Mapping[str, tuple[float, float]] | None = None,
    **kwargs: object,
) -> Diagnosis:
    """Find the origin of the first number that is not finite, in one call of ``fn``.

    The program runs once with all values in memory, in the form in which ``fn`` runs: long loops as
    compiled code, and the step in question node by node. The report names that step, the op, the user's
    line and the operands of the op; then the path to the outputs. Values that are not finite and do not
    reach an output are not reported.

    Parameters
    ----------
    fn
        Anything that `loopax.jaxify` takes or returns, a log-density from `loopax.pymc.logp`, a
        compiled PyTensor function, or `loopax.vmap` or `loopax.grad` of a function that `jaxify`
        returned. A PyMC model goes to `loopax.pymc.diagnose`.
    args, kwargs
        The arguments of the call.
    grad
        Whether to examine the gradient of the sum of all float outputs by every float input, if all
        values are finite.
    within
        Bounds for the values of variables, by name, ``{"h": (0, np.inf)}``: the first value outside is
        a finding, too. In loops they apply to the variables of the step.

    Returns
    -------
    A report with the findings as data: ``findings``, ``first``, ``ok``. ``print`` it, or let a notebook
    show it.

    Raises
    ------
    TypeError
        ``fn`` is not such a function.
    MissingInputError
        The arguments do not match the inputs.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from loopax import diagnose, jaxify, scan
    >>> @jaxify
    ... def total(start, xs):
    ...     return scan(lambda c, x: (c - x, pt.log(c)), start, xs)[1].sum()
    >>> report = diagnose(total, 1.0, np.full(4, 0.75))
    >>> report.first.op, report.first.steps, report.first.operands[0].value
    ('Log', (2,), array(-0.5))
    """
    if is_pymc_model(fn):
        return import_module("loopax.pymc").diagnose(fn, *args, **kwargs)
    fn = unwrapped(fn)
    if hasattr(fn, "of_point") and within is None:  # the log-density of a model
        point = {**(args[0] if args else {}), **kwargs}
        return import_module("loopax.pymc").diagnose(fn.model, point or None)
    if isinstance(fn, Transformed):
        return _diagnose_transformed(fn, args, kwargs, grad=grad, within=within)
    return diagnose_graph(read_call(fn, args, kwargs), grad=grad, within=within or {})


def read_call(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> GraphRun:
    """Convert one call of ``fn``, a function of any kind, to a graph with the values of its inputs.

    Raises
    ------
    TypeError
        ``fn`` is not a function with a program.
    """
    fn = jaxify(fn) if is_pymc_model(fn) else unwrapped(fn)
    if hasattr(fn, "of_point"):  # the log-density of a model
        fn, args = fn.of_point, args or (fn.initial_point(),)
    return call_of(fn if isinstance(fn, BackendFunction) else _as_function(fn), args, kwargs)


def _as_function(fn: object) -> Any:
    # PyTensor's own modes keep subnormal numbers, as native code does.
    if isinstance(fn, Function):
        return jaxify(*_as_written(fn), name=fn.name, backend="numba")
    if isinstance(fn, FunctionGraph):
        return jaxify(fn, backend="numba")
    if callable(fn) and not isinstance(fn, Variable):
        return jaxify(fn)
    raise TypeError(
        "This needs a function that jaxify returned, a function of PyTensor variables or a PyMC model; got "
        f"{fn!r} of type {type(fn).__name__}. If you have inputs and outputs, pass jaxify([x], y)."
    )


def _as_written(function: Function) -> tuple[list[Any], Any]:
    """Inputs and outputs from which a function was compiled, with their names and lines."""
    maker = function.maker
    inputs = [
        i.variable for i in maker.inputs if not (i.shared or i.implicit or i.value is not None)
    ]
    outputs = [o.variable for o in maker.outputs]
    return inputs, outputs[0] if maker.unpack_single and outputs else outputs


def _diagnose_transformed(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any
) -> Diagnosis:
    """Diagnose the rows of ``loopax.vmap(f)``, or the gradient that ``loopax.grad(f)`` is."""
    transformation, f, transform_options = fn._made_of
    name = transformation.__name__
    if name in ("grad", "value_and_grad"):
        return diagnose(f, *args, **{**options, "grad": True}, **kwargs)
    if name == "vmap":
        every = bool(options["grad"] or options["within"])
        axes = transform_options.get("in_axes", 0), transform_options.get("out_axes", 0)
        diagnoses = []
        for row, row_args, row_kwargs in rows_of(*axes, fn(*args, **kwargs), args, kwargs, every):
            diagnoses.append(in_row(diagnose(f, *row_args, **options, **row_kwargs), row))
            if every and diagnoses[-1].findings:
                break
        return Diagnosis.first_of(fn.__name__, diagnoses)
    raise TypeError(
        f"diagnose cannot look into {name} of a function. Diagnose the function itself: "
        "loopax.diagnose(f, *args), with grad=True for its gradient."
    )
