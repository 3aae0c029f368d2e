"""`diagnose`: terms of a model's log-density that are not finite at a point, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pymc.backends.arviz import dataset_to_point_list
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace

from loopax.diagnosis import Diagnosis, Finding
from loopax.diagnosis.graph import diagnose_graph
from loopax.diagnosis.numbers import number_in_words
from loopax.diagnosis.origin import Origin
from loopax.graph_runs import call_of
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.pymc.log_density import logp
from loopax.pymc.model_functions import built, checked_by_value, model_given_or_in_context

_POINTS = 3  # diagnosed divergences of a trace
# No step size fits two gradients whose sizes differ by more than this factor.
_SCALES = 1e6


@dataclass(frozen=True)
class ModelDiagnosis(Diagnosis):
    """The result of `diagnose` for a model at one point."""

    # The log-density of each variable and potential, summed over its entries.
    terms: Mapping[str, float] | None = None
    # The largest absolute entry of the gradient with respect to each variable of the sampler.
    gradient: Mapping[str, float] | None = None
    point: Mapping[str, Any] | None = None  # the point, on the unconstrained space

    def _lines(self) -> Sequence[str]:
        lines = list(super()._lines())
        for title, values in (("log-density of", self.terms), ("largest slope by", self.gradient)):
            if values:
                width = max(map(len, values))
                lines += [
                    "",
                    *(f"{title} {n:<{width}}  {number_in_words(x)}" for n, x in values.items()),
                ]
        return lines


def diagnose(model: pm.Model | None = None, point: object = None) -> ModelDiagnosis:
    """Find the terms of a model's log-density that are not finite at a point, and their origins.

    Parameters
    ----------
    model
        A PyMC model; the default is the model of the enclosing ``with`` block.
    point
        Values by the names of the model's value variables, on the unconstrained space; None for
        ``model.initial_point()``. Or the result of a sampler, for the points of its first divergences.

    Returns
    -------
    A report as by `loopax.diagnose`: the terms that are not finite, each traced to an op, a line and
    operands; if all are finite, the variables whose slope is not finite, is 0, or has a different scale
    from the others.

    Examples
    --------
    >>> import pymc as pm, loopax.pymc
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    ...     y = pm.Normal("y", pm.math.log(x - 1.0), 1.0, observed=0.5)
    >>> report = loopax.pymc.diagnose(model)
    >>> report.first.op, report.terms["y"]
    ('Log', nan)
    """
    model = model_given_or_in_context(model, "diagnose")
    if point is not None and not isinstance(point, Mapping) or hasattr(point, "sample_stats"):
        return _diagnose_divergences(model, point)
    point = dict(model.initial_point() if point is None else point)
    name = model.name or "the model"
    variables = {v.name: v for v in (*model.basic_RVs, *model.potentials)}
    values = _terms(model, point)
    bad = [n for n, x in values.items() if not np.isfinite(x)]
    if bad:
        findings = [f for n in bad for f in _term_findings(model, variables[n], point)]
        summary = f"{', '.join(bad)} {'is' if len(bad) == 1 else 'are'} not finite."
        return ModelDiagnosis(name, summary, tuple(findings), terms=values, point=point)
    return _diagnose_gradient(model, name, values, point)


def _terms(model: pm.Model, point: Mapping[str, Any]) -> dict[str, float]:
    """The log-density of each variable and potential, with checks replaced by minus infinity."""
    with pytensor.config.change_flags(traceback__limit=0):
        terms = [t.sum() for t in model.logp(sum=False)]
    names = [v.name for v in (*model.basic_RVs, *model.potentials)]
    f = built(model.value_vars, checked_by_value(model, terms), "terms", "jax", {})
    densities = f(**point)
    return {n: float(x) for n, x in zip(names, densities, strict=True)}


def _term_findings(model: pm.Model, variable: Variable, point: Mapping[str, Any]) -> list[Finding]:
    """Causes in one term: in the parameters, which have the user's lines, or else in the density."""
    title, origin = f"'{variable.name}'", Origin(variable)
    if (f := _parameters(model, variable)) is not None:
        if findings := diagnose_graph(call_of(f, (), point)).findings:
            return [_labelled(f, f"the parameters of {title}", origin) for f in findings]
    # Without a traceback, so that ops added by PyMC here have no line, rather than the line of this call.
    with pytensor.config.change_flags(traceback__limit=0):
        term = model.logp(vars=[variable], sum=False)[0]
    if not model.check_bounds:
        (term,) = checked_by_value(model, [term])
    f = built(model.value_vars, [term], f"log-density of {title}", "jax", {})
    findings = diagnose_graph(call_of(f, (), point)).findings
    return [_labelled(f, f"the log-density of {title}", origin) for f in findings]


def _parameters(model: pm.Model, variable: Variable) -> Any:
    """Compile the float parameters of a variable as a function of a point; None without parameters."""
    parameters = [variable] if variable in model.potentials else variable.owner.inputs
    parameters = [v for v in parameters if is_float(v) and not isinstance(v, Constant)]
    if not parameters:
        return None
    outputs = model.replace_rvs_by_values(parameters)
    return built(model.value_vars, outputs, f"parameters of '{variable.name}'", "jax", {})


def _labelled(finding: Finding, part: str, origin: Origin) -> Finding:
    """Add the part of the model to a finding, and the line of the variable where it has no own line."""
    part += f" ({origin})" if origin.place else ""
    at: dict[str, Any] = (
        {} if finding.line or finding.op == "input" else {"line": origin.place, "code": origin.code}
    )
    loop = ", in ".join(filter(None, [finding.loop, part]))
    return replace(finding, loop=loop, **at)


def _diagnose_gradient(
    model: pm.Model, name: str, values: Mapping[str, float], point: Mapping[str, Any]
) -> ModelDiagnosis:
    density = logp(model)
    slopes = {n: np.asarray(g) for n, g in density.gradient(point).items()}
    sizes = {n: float(np.max(np.abs(g), initial=0)) for n, g in slopes.items()}
    common: dict[str, Any] = {"terms": values, "gradient": sizes, "point": point}
    if not all(map(np.isfinite, sizes.values())):
        for variable in (*model.basic_RVs, *model.potentials):  # their parameters have users' lines
            f = _parameters(model, variable)
            report = None if f is None else diagnose_graph(call_of(f, (), point), grad=True)
            if report is not None and report.findings:
                bad = ", ".join(n for n, x in sizes.items() if not np.isfinite(x))
                summary = f"the value is finite; the slope by {bad} is not."
                part = f"the parameters of '{variable.name}'"
                findings = tuple(_labelled(x, part, Origin(variable)) for x in report.findings)
                return ModelDiagnosis(name, summary, findings, **common)
        with pytensor.config.change_flags(traceback__limit=0):
            total = model.logp()
        f = built(model.value_vars, checked_by_value(model, [total]), name, "jax", {})
        report = diagnose_graph(call_of(f, (), point), grad=True)
        return ModelDiagnosis(name, report.summary, report.findings, report.notes, **common)
    notes = [
        f"the slope by {n} is 0: nothing in the log-density depends on it here."
        for n, x in sizes.items()
        if x == 0
    ]
    moving = {n: x for n, x in sizes.items() if x > 0}
    if moving and max(moving.values()) > _SCALES * min(moving.values()):
        large, small = max(moving, key=moving.get), min(moving, key=moving.get)  # type: ignore[arg-type]
        notes.append(
            f"the slope by {large} is {number_in_words(moving[large])}, that by {small} "
            f"{number_in_words(moving[small])}: one step size does not fit both. Rescale the variables."
        )
    summary = "every term and every slope is finite."
    return ModelDiagnosis(name, summary, (), tuple(notes), **common)


# -- traces ------------------------------------------------------------------------------------------


def _diagnose_divergences(model: pm.Model, trace: Any) -> ModelDiagnosis:
    """Diagnose the first divergences of a trace."""
    diverging = np.asarray(trace.sample_stats["diverging"])
    points = dataset_to_point_list(trace.posterior, sample_dims=("chain", "draw"))[0]
    where = np.flatnonzero(diverging.ravel())
    name = model.name or "the model"
    if not len(where):
        return ModelDiagnosis(name, "the trace has no divergences.")
    diagnoses = [diagnose(model, _unconstrained(model, points[int(k)])) for k in where[:_POINTS]]
    first = next((d for d in diagnoses if d.findings or d.notes), diagnoses[0])
    notes = (f"{len(where)} draws diverged; this is the draw {int(where[0])} of all.", *first.notes)
    return replace(first, notes=notes)


def _unconstrained(model: pm.Model, draw: Mapping[str, Any]) -> dict[str, Any]:
    """Map a draw, which has all free variables, to the sampler's unconstrained space."""
    placeholders = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    values = {}
    for rv in model.free_RVs:
        transform, x = model.rvs_to_transforms[rv], placeholders[rv]
        values[model.rvs_to_values[rv].name] = (
            x if transform is None else transform.forward(x, *rv.owner.inputs)
        )
    outputs = clone_replace(list(values.values()), placeholders)
    f = pytensor.function(
        list(placeholders.values()), outputs, mode="FAST_COMPILE", on_unused_input="ignore"
    )
    return dict(zip(values, f(*(draw[rv.name] for rv in model.free_RVs)), strict=True))
