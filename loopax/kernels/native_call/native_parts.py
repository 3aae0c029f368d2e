"""Choose the parts of a jaxpr that run as kernels, native on the CPU.

A part is a run of consecutive equations that can all be read into the IR, so that its inputs are
computed before it and its outputs read after it. It contains a loop, and is faster as native code. A
loop that cannot be read stays in JAX, and its step, or the branches of a conditional, are divided in
the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from pytensor.graph.basic import Variable

from loopax.base.errors import unexpected
from loopax.base.gc_pause import gc_paused
from loopax.base.lock import TRACING
from loopax.base.upstream.jax import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    jaxpr_as_fun,
    low_jaxpr,
    part_of,
    without_dead_code,
)
from loopax.cache.facts import Fact
from loopax.cache.graph_key import content_key
from loopax.kernels.cost import cost_of
from loopax.kernels.kernel import Kernel, too_long
from loopax.kernels.measurement import Times, conditions, is_possible, measured
from loopax.kernels.native_call.equations import (
    CUSTOM_DERIVATIVES,
    has_loop,
    in_words,
    inner_equations,
    inputs_of,
    is_loop,
    outermost_loops,
    outputs_of,
    with_jaxprs,
)
from loopax.kernels.native_call.opened_kernels import with_kernels_opened
from loopax.kernels.native_call.part_kernels import kernel_call, no_code, part_kernel, reader
from loopax.numerics.manual_axes import Axes, all_axes


@dataclass(eq=False)
class Plan:
    """The form in which the loops of a function run, native or not.

    Parameters
    ----------
    loops
        One of `LOOPS`.
    cache
        Whether native code is read from the disk, and kept there.
    remarks
        The form of each loop compiled so far, and why.
    """

    loops: str
    cache: bool = True
    remarks: dict[str, None] = field(default_factory=dict)

    def __repr__(self) -> str:  # in a jaxpr
        return self.loops

    def __post_init__(self) -> None:
        self._replaced: dict[Any, Any] = {}

    def say(self, loop: JaxprEqn, remark: str) -> None:
        """Record a remark on the form of a loop."""
        self.remarks[f"{in_words(loop)}: {remark}"] = None

    def with_native_parts(self, jaxpr: ClosedJaxpr) -> Any:
        """Replace the loops of a closed jaxpr by kernels, where that pays."""
        if self.loops == "xla":
            return jaxpr
        with TRACING, gc_paused():
            if jaxpr not in self._replaced:
                self._replaced[jaxpr] = self._in_faster_form(without_dead_code(low_jaxpr(jaxpr)))
            return self._replaced[jaxpr]

    def _in_faster_form(self, jaxpr: ClosedJaxpr) -> Any:
        """The jaxpr with kernels or without; a measurement of the whole decides where costs are close."""
        is_measured = self.loops == "auto" and is_possible() and _runs_on_any_values(jaxpr.jaxpr)
        parts = _Parts(self, jaxpr.jaxpr, is_measured)
        native, times = ClosedJaxpr(parts.replaced(), jaxpr.consts), None
        if any(choice.is_native and choice.is_close for choice in parts.choices):
            times = _times(native, jaxpr)
            if times is None:
                parts = _Parts(self, jaxpr.jaxpr)
                native = ClosedJaxpr(parts.replaced(), jaxpr.consts)
        for choice in parts.choices:
            self.remarks[choice.in_words(times)] = None
        return native if times is None or times.is_native_faster else jaxpr


@dataclass(frozen=True)
class _Choice:
    """The form of a loop by its costs, and the reason; ``is_close`` if the costs are too close to tell."""

    loop: str
    is_native: bool
    why: str
    is_close: bool = False

    def in_words(self, times: Times | None) -> str:
        """A remark; ``times`` of the whole jaxpr decide, if they were measured."""
        is_native, why = self.is_native, self.why
        if is_native and times is not None:
            is_native, why = times.is_native_faster, f"measured, {times.in_words()}"
        form = "native," if is_native else "JAX's:"
        return f"{self.loop}: {form} {why}"


# For the loops of `benchmarks.jax_functions` and their derivatives, 99 in all: 0.51 to 11.
_LEAST_LINES_A_NODE = 0.4


class _Parts:
    """The equations of one jaxpr, divided into parts that are read into the IR together.

    ``is_measured``: whether a part whose costs are close becomes a kernel, because a measurement decides
    later. ``lines_a_node``: the least number of lines of native code for each node.
    """

    def __init__(
        self,
        plan: Plan,
        jaxpr: Jaxpr,
        is_measured: bool = False,
        lines_a_node: float = _LEAST_LINES_A_NODE,
    ) -> None:
        self.plan = plan
        self.jaxpr = jaxpr
        self.is_measured = is_measured
        self.choices: list[_Choice] = []
        # By identity, as equations have no hash: what is read into the IR, and priced. A loop around a
        # program that takes long gains little, and the program may be slower in the loop (1.2 and 1.4
        # times the time for a Kalman filter and an AR model), so that the user has to ask for it.
        opens = plan.loops == "native"
        self._opened = {id(e): with_kernels_opened(e) if opens else e for e in jaxpr.eqns}
        self._least_lines_a_node = lines_a_node
        self._lines_a_node = lines_a_node  # the measured ratio of a run that is too long

    def replaced(self) -> Jaxpr:
        equations: list[Any] = []
        for values, run in self._runs():
            if values is None:
                equations += map(self._with_inner_kernels, run)
                continue
            for part in _by_axes(run):
                self._lines_a_node = self._least_lines_a_node
                kernel = self._kernel(part, values)
                if kernel is not None:
                    equations.append(kernel)
                elif len(part) > 1 and any(map(has_loop, part)):
                    equations += map(self._with_own_kernel, part)
                else:
                    equations += map(self._with_inner_kernels, part)
        return self.jaxpr.replace(eqns=equations)

    def _runs(self) -> Iterator[tuple[dict[Any, Variable] | None, list[Any]]]:
        """Split the equations into runs that can be read into the IR, and runs that cannot.

        The former come with the IR's variables for all that they read and compute, the latter with None.
        Each equation is read once, in order.
        """
        values: dict[Any, Variable] | None = None
        run: list[Any] = []
        for eqn in self.jaxpr.eqns:
            eqn_values = self._read(eqn, values or {})
            if run and (eqn_values is None) != (values is None):
                yield values, run
                run, values = [], None
            run.append(eqn)
            if eqn_values is not None:
                values = {} if values is None else values
                values.update(eqn_values)
        if run:
            yield values, run

    def _with_own_kernel(self, eqn: JaxprEqn) -> Any:
        """A loop as a kernel by itself, if that is faster; other equations unchanged."""
        values = self._read(eqn, {}) if has_loop(eqn) else None
        kernel = None if values is None else self._kernel([eqn], values)
        return self._with_inner_kernels(eqn) if kernel is None else kernel

    def _read(self, eqn: JaxprEqn, values: Mapping[Any, Variable]) -> dict[Any, Variable] | None:
        """The IR's variables for an equation's inputs and outputs; None where it cannot be read."""
        jaxpr_reader = reader()
        try:
            inputs = {
                v: values[v] if v in values else jaxpr_reader.type_of(v.aval)()
                for v in inputs_of([eqn])
            }
            return jaxpr_reader.read([self._opened[id(eqn)]], inputs)
        except jaxpr_reader.refused as refused:
            why = f"there is no native form of {refused}"
        except Exception as error:  # a function that JAX runs is never refused
            why = f"it cannot be read, {unexpected(error)}"
        if is_loop(eqn):
            self.choices.append(_Choice(in_words(eqn), False, why))
        return None

    def _kernel(self, run: Sequence[JaxprEqn], values: Mapping[Any, Variable]) -> Any:
        """An equation that computes a run natively; None if that is slower, or impossible."""
        if not any(map(has_loop, run)):
            return None
        inputs = inputs_of(run)
        outputs = outputs_of(self.jaxpr, run)
        opened = [self._opened[id(eqn)] for eqn in run]
        part = part_of(self.jaxpr, inputs, outputs, opened)
        cost = cost_of(part)
        is_close = self.is_measured and cost.is_close(1)
        kernel = None
        obstacle: str | None = f"about {cost.in_words()}"
        if self.plan.loops == "native" or cost.saved(1) > 0 or is_close:
            kernel = part_kernel(part, values, self.plan.loops == "auto")
            obstacle = self._expected_obstacle(kernel) or no_code(kernel)
            if obstacle is not None and kernel.n_lines:
                self._lines_a_node = kernel.n_lines / kernel.n_nodes
        self.choices += [
            _Choice(
                in_words(loop), obstacle is None, obstacle or f"about {cost.in_words()}", is_close
            )
            for eqn in run
            for loop in outermost_loops(eqn)
        ]
        if kernel is None or obstacle is not None:
            return None
        source = next(filter(has_loop, run)).source_info  # with the user's named scopes in it
        equation = kernel_call(kernel, inputs, outputs)
        return equation.replace(source_info=source)

    def _expected_obstacle(self, kernel: Kernel) -> str | None:
        """The reason why a loop of a run, or a nested one, has no native code, if that is already known.

        A loop by itself has more lines per node than the program around it, in which repeated statements
        become functions. To write and refuse the code of the Hessian of a filter loop by loop takes half of
        JAX's own time; for BFGS, four loops deep, four times as long as for its outermost loop.
        """
        n_lines = int(self._lines_a_node * kernel.n_nodes)
        return too_long(f"some {n_lines}") if n_lines > kernel.policy.most_lines else None

    def _with_inner_kernels(self, eqn: JaxprEqn) -> Any:
        """Replace the loops in the jaxprs among an equation's parameters by kernels."""
        if not has_loop(eqn) or eqn.primitive.name in CUSTOM_DERIVATIVES:
            return eqn
        return with_jaxprs(eqn, self._inner)

    def _inner(self, jaxpr: Jaxpr) -> Jaxpr:
        # Inner loops may have fewer lines for each node than the whole, but hardly ever less than 0.7: of
        # seven refused loops in BFGS, filters and matrix exponentials, 0.77 to 1.55.
        least = max(_LEAST_LINES_A_NODE, 0.7 * self._lines_a_node)
        parts = _Parts(self.plan, jaxpr, self.is_measured, least)
        inner = parts.replaced()
        self.choices += parts.choices
        return inner


def _by_axes(run: list[JaxprEqn]) -> list[list[JaxprEqn]]:
    """Divide a run by the mesh axes along which results vary: all results of a kernel vary alike.

    What varies along fewer axes comes first: it never depends on what varies along more, since no
    collective can be read into the IR.
    """
    parts: dict[Axes, list[JaxprEqn]] = {}
    for eqn in run:
        parts.setdefault(all_axes([v.aval for v in eqn.outvars]), []).append(eqn)
    return [parts[axes] for axes in sorted(parts, key=len)]


def _runs_on_any_values(jaxpr: Jaxpr) -> bool:
    """Whether a run on made-up values ends, soon, and calls nothing of the user's."""
    return cost_of(jaxpr).is_measurable(1) and not any(map(_calls_back, jaxpr.eqns))


def _calls_back(eqn: JaxprEqn) -> bool:
    is_callback = "callback" in eqn.primitive.name or bool(eqn.effects)
    return is_callback or any(map(_calls_back, inner_equations(eqn)))


def _times(native: ClosedJaxpr, jaxpr: ClosedJaxpr) -> Times | None:
    """The measured times of a jaxpr with kernels and without; see `measured`."""
    in_jax = jaxpr_as_fun(jaxpr)

    def fact() -> Fact:
        if (parts := conditions()) is None:
            return Fact(None)
        return Fact(content_key("times", parts, jax.jit(in_jax).lower(*jaxpr.in_avals).as_text()))

    return measured(fact, jaxpr_as_fun(native), in_jax, jaxpr.in_avals)
