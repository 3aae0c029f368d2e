"""Jaxprs that detect nonfinite values: ``native(..., checks="nan")``.

    y = f(x)  ->  y, whether any state, row of a trace or output is not finite
    y = f(x)  ->  [code, kind, *entry, *steps] of the first such value

Both evaluate the jaxpr of ``f``, equation by equation, with an additional state in each loop: a `Flag` or a
`Report` on the values so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopax.base.errors import NonFiniteError
from loopax.base.upstream.jax import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    inner_jaxprs,
    jaxpr_as_fun,
    part_of,
    partial_eval,
)
from loopax.kernels.native_call.equations import has_loop, loop_depth, most_axes, n_rows
from loopax.kernels.native_call.finite_states import Flag, Report
from loopax.kernels.native_call.loop_names import loop_name, state_names, trace_names
from loopax.lowering.finiteness.places import Place, error_of_reports
from loopax.numerics.manual_axes import scan, while_loop

# The outputs of a jaxpr with the finding in it, and the names of the loops around an equation.
Inspected: TypeAlias = tuple[list[Any], Any]
Loops: TypeAlias = tuple[str, ...]
_INLINED = {"jit", "pjit", "closed_call", "core_call", "core_closed_call"}


@dataclass(eq=False)
class Inspection:
    """A closed jaxpr, with a flag and a report for its nonfinite values.

    Parameters
    ----------
    jaxpr
        The jaxpr.
    name
        The name of the function.
    output_names
        The name of each output.
    """

    jaxpr: Any
    name: str
    output_names: Sequence[str]
    places: dict[Place, int] = field(default_factory=dict)  # places with their codes in reports

    def __post_init__(self) -> None:
        # Only values that an output needs are computed, and so inspected.
        opened = self.jaxpr.jaxpr
        self._jaxpr, _ = partial_eval.dce_jaxpr(opened, [True] * len(opened.outvars), True)
        self._report = Report(most_axes(self._jaxpr), loop_depth(self._jaxpr.eqns))

    def flagged(self, *args: jax.Array) -> list[Any]:
        """The outputs of the jaxpr, and a flag."""
        outs, flag = self._evaluated(_Evaluation(self, Flag()), args)
        return [*outs, flag]

    def report(self, *args: jax.Array) -> Any:
        """Compute the report of the first nonfinite value, as numbers."""
        return self._evaluated(_Evaluation(self, self._report), args)[1]

    def error(self, reports: np.ndarray) -> NonFiniteError:
        """The error for a `report`, or for the reports of a batch."""
        return error_of_reports(reports, self._report.n_axes, list(self.places), self.name)

    def _evaluated(self, evaluation: _Evaluation, args: Sequence[jax.Array]) -> Inspected:
        outs, finding = evaluation.run(self._jaxpr, self.jaxpr.consts, args, ())
        values = zip(outs, self._jaxpr.outvars, self.output_names, strict=True)
        named = [(x, f"output {name}") for x, v, name in values if not isinstance(v, Literal)]
        return outs, evaluation.with_values(finding, named, ())


class _Evaluation:
    """Evaluates a jaxpr, with a `Flag` or a `Report` on its values."""

    def __init__(self, inspection: Inspection, kind: Flag | Report) -> None:
        self._places = inspection.places
        self._kind = kind

    def with_values(
        self, finding: jax.Array, values: Sequence[tuple[Any, str]], loops: Loops
    ) -> jax.Array:
        """Combine ``finding`` with the finding in these values, each with its name; the first one wins."""
        for x, name in values:
            if _is_inexact(x):
                place = Place(name, jnp.ndim(x), loops)
                code = self._places.setdefault(place, len(self._places) + 1)
                finding = self._kind.first(finding, self._kind.at(x, code))
        return finding

    def run(
        self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[jax.Array], loops: Loops
    ) -> Inspected:
        """Evaluate ``jaxpr``; return its outputs, and the finding inside of its equations."""
        values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

        def read(atom: Var | Literal) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        is_read = {v for eqn in jaxpr.eqns for v in eqn.invars if not isinstance(v, Literal)}
        is_read |= {v for v in jaxpr.outvars if not isinstance(v, Literal)}
        finding = self._kind.none()
        for eqn in jaxpr.eqns:
            if eqn.effects and not eqn.outvars and self._kind.counts_steps:
                continue  # printed by the previous run
            outs, inside = self._equation(jaxpr, eqn, list(map(read, eqn.invars)), is_read, loops)
            values.update(outs)
            finding = finding if inside is None else self._kind.first(finding, inside)
        return list(map(read, jaxpr.outvars)), finding

    def _equation(
        self, jaxpr: Jaxpr, eqn: JaxprEqn, args: list[Any], is_read: set[Any], loops: Loops
    ) -> tuple[dict[Any, Any], Any]:
        """The values of an equation's outputs, and the finding inside of it; None without a loop."""
        rule: Any = _RULES.get(eqn.primitive.name) if has_loop(eqn) else None
        if rule is not None:
            outs, finding = rule(self, eqn, args, loops)
            return dict(zip(eqn.outvars, outs, strict=True)), finding
        outvars = [v for v in eqn.outvars if v in is_read]
        variables = [v for v in eqn.invars if not isinstance(v, Literal)]
        operands = [x for v, x in zip(eqn.invars, args, strict=True) if not isinstance(v, Literal)]
        unique = dict(zip(variables, operands, strict=True))
        part = part_of(jaxpr, list(unique), outvars, [eqn])
        outs = jax.core.eval_jaxpr(part, (), *unique.values())
        finding = None
        if has_loop(eqn):  # a function with its own derivative: only its results are looked at
            named = [(x, f"result {k} of {eqn.primitive.name}") for k, x in enumerate(outs)]
            finding = self.with_values(self._kind.none(), named, loops)
        return dict(zip(outvars, outs, strict=True)), finding

    def _call(self, eqn: JaxprEqn, args: list[Any], loops: Loops) -> Inspected:
        (inner,) = inner_jaxprs(eqn)
        return self.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), args, loops)

    def _checkpoint(self, eqn: JaxprEqn, args: list[Any], loops: Loops) -> Inspected:
        def function(*args: jax.Array) -> Any:
            return self._call(eqn, list(args), loops)

        options = {name: eqn.params[name] for name in ("prevent_cse", "policy")}
        outs, finding = jax.checkpoint(function, **options)(*args)
        return outs, finding

    def _branches(self, eqn: JaxprEqn, args: list[Any], loops: Loops) -> Any:
        def function(branch: ClosedJaxpr) -> Any:
            return lambda *args: self.run(branch.jaxpr, branch.consts, args, loops)

        index, *operands = args
        branches = list(map(function, eqn.params["branches"]))
        return lax.switch(jnp.asarray(index).astype("int32"), branches, *operands)

    def _scan(self, eqn: JaxprEqn, args: list[Any], loops: Loops) -> Inspected:
        body, params = eqn.params["jaxpr"], eqn.params
        invars, outvars = body.jaxpr.invars, body.jaxpr.outvars
        n_xs, n_ys = n_rows(eqn.invars, invars), n_rows(eqn.outvars, outvars)
        n = len(outvars) - n_ys
        n_consts = len(invars) - n - n_xs
        consts, states, rows = args[:n_consts], args[n_consts : n_consts + n], args[n_consts + n :]
        names = state_names(body, range(n_consts, n_consts + n))
        inside = (*loops, loop_name(eqn, body))

        def step(carry: tuple[Any, ...], rows: Sequence[jax.Array]) -> Any:
            k, finding, *states = carry
            outs, inner = self.run(body.jaxpr, body.consts, [*consts, *states, *rows], inside)
            before = invars[n_consts : n_consts + n]
            named = _computed(outs, outvars, before, names, trace_names(body, range(n, n + n_ys)))
            inner = self.with_values(inner, named, inside)
            return self._next(k, finding, inner, len(loops), outs[:n]), outs[n:]

        (_, finding, *finals), ys = scan(
            step,
            (self._start(), self._kind.none(), *states),
            rows,
            length=params["length"],
            reverse=params["reverse"],
            unroll=params["unroll"],
        )
        return [*finals, *ys], finding

    def _while(self, eqn: JaxprEqn, args: list[Any], loops: Loops) -> Inspected:
        condition, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
        n, m = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        before = body.jaxpr.invars[m:]
        names = state_names(body, range(m, m + len(before)))
        inside = (*loops, loop_name(eqn, body))

        def step(carry: tuple[Any, ...]) -> Any:
            k, finding, *states = carry
            outs, inner = self.run(body.jaxpr, body.consts, [*args[n : n + m], *states], inside)
            inner = self.with_values(
                inner, _computed(outs, body.jaxpr.outvars, before, names, []), inside
            )
            return self._next(k, finding, inner, len(loops), outs)

        _, finding, *finals = while_loop(
            lambda carry: jaxpr_as_fun(condition)(*args[:n], *carry[2:])[0],
            step,
            (self._start(), self._kind.none(), *args[n + m :]),
        )
        return finals, finding

    def _start(self) -> Any:
        """The number of the first step, if steps are counted."""
        return jnp.zeros((), "int32") if self._kind.counts_steps else None

    def _next(
        self,
        k: jax.Array | None,
        finding: jax.Array,
        inner: jax.Array,
        depth: int,
        states: Sequence[jax.Array],
    ) -> Any:
        finding = self._kind.first(finding, self._kind.in_step(inner, k, depth))
        return (None if k is None else k + 1, finding, *states)


_RULES: dict[str, Any] = {"scan": _Evaluation._scan, "while": _Evaluation._while}
_RULES |= {"cond": _Evaluation._branches}
_RULES |= dict.fromkeys(_INLINED, _Evaluation._call)
_RULES |= dict.fromkeys(("remat", "remat2", "checkpoint"), _Evaluation._checkpoint)


def _is_inexact(x: jax.Array) -> bool:
    return jnp.issubdtype(jax.typeof(x).dtype, np.inexact)


def _computed(
    outs: Sequence[jax.Array],
    outvars: Sequence[Var],
    before: Sequence[Var],
    states: Sequence[str],
    traces: Sequence[str],
) -> list[tuple[Any, str]]:
    """The distinct values that a step computes, with their names."""
    names = [*(f"state {name}" for name in states), *(f"trace {name}" for name in traces)]
    computed: dict[Any, tuple[Any, str]] = {}
    for x, v, name in zip(outs, outvars, names, strict=True):
        if not isinstance(v, Literal) and v not in before:
            computed.setdefault(v, (x, name))
    return list(computed.values())
