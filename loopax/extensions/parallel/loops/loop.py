"""A ``Scan`` in parallel over its steps, part by part.

    states that read one another   -> one part: an affine recurrence in blocks, or one that is linear in
                                      a semiring; composed maps of indices; Newton's method; or sequential
                                      steps
    values computed from rows      -> all rows at once, like the coefficients of a part
    values that the loop emits     -> all rows at once, from the states before each step

The parts are solved in topological order: the coefficients of an affine part may read results of a part
that is not affine. The step is traced once, as a jaxpr.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.tensor.type import DenseTensorType

from loopax.base.upstream.jax import ClosedJaxpr, jaxpr_as_fun, partial_eval
from loopax.extensions.parallel.loops.blocks import block_count
from loopax.extensions.parallel.loops.choice import MOST_NUMBERS, is_worth, obstacle
from loopax.extensions.parallel.loops.images import Image, Known, images, state_image
from loopax.extensions.parallel.loops.linear_fractional import LinearFractional
from loopax.extensions.parallel.loops.methods import states_behind, sum_at_the_end
from loopax.extensions.parallel.loops.part import Method, Part
from loopax.extensions.parallel.loops.pointers import row_of_pointers
from loopax.extensions.parallel.loops.recurrence import states_before
from loopax.extensions.parallel.loops.remarks import (
    TRY_NEWTON,
    Why,
    remark_one_by_one,
    remark_parallel,
)
from loopax.extensions.parallel.loops.semirings import InSemiring
from loopax.extensions.parallel.loops.trajectory import Step
from loopax.ir import Scan
from loopax.ir.sequences import with_items
from loopax.jax_backend.control_flow.step import initial_states, rows_of, scan_step
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.symbolic import as_length
from loopax.jax_backend.values.lists import StackedList
from loopax.jax_backend.values.padded_array import PaddedArray
from loopax.lowering.analysis.atoms import Atom, atoms
from loopax.numerics.manual_axes import vary_alike

_LONG = 1000  # steps; a shorter loop need not explain why it is sequential


def loop_in_parallel(site: Site, args: Any, index: Any, kept: Any) -> tuple[Any, list[Any]] | None:
    """Run a loop in parallel: its final states, and the traces at ``kept``; None if it must be sequential.

    ``index`` has the index of each step; it is None if no step reads it.
    """
    op: Scan = site.op
    n, asked = as_length(args.n_steps), site.context.parallel
    if not isinstance(n, int):
        if asked is not False or op.options.parallel is not None:
            remark_one_by_one(site, f"{n} steps", Why("a symbol is no number of steps"))
        return None
    if n < 2 or not op.n_states or (op.options.parallel is None and asked is False):
        return None
    steps = f"{n} steps"
    if why := _obstacle(op, asked):
        if asked is True or n >= _LONG:
            remark_one_by_one(site, steps, why)
        return None
    if any(isinstance(x, StackedList | PaddedArray) for x in (*args.sequences, *args.states)):
        remark_one_by_one(site, steps, Why("a row of it has a length that only a run tells"))
        return None
    loop = _Loop(site, args, index, kept)
    if why := loop.obstacle:
        remark_one_by_one(site, steps, why)
        return None
    remark_parallel(site, steps, loop.in_words)
    for part in loop.parts:
        loop.solve(part)
    return loop.finals, loop.traces()


def _obstacle(op: Scan, asked: Any) -> Why | None:
    """The reason why a loop cannot run in parallel, whatever its step is."""
    if op.options.parallel is None and (why := obstacle(asked)):
        return Why(why)
    if op.options.checkpoint == 1:
        return Why("it keeps few states, with checkpoint")
    args, outs = op.args, op.outs
    if all(isinstance(v.type, DenseTensorType) for v in (*args.rows, *args.states, *outs.ys)):
        return None
    return Why("something in it is no array")


@dataclass(eq=False)
class _Loop:
    site: Site
    args: Any
    index: Any
    kept: Sequence[int]
    behind: dict[int, Any] = field(default_factory=dict)  # traces of the states after each step
    before: dict[int, Any] = field(default_factory=dict)
    last: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.op: Scan = self.site.op
        self.reverse, self.n = self.op.options.reverse, int(self.args.n_steps)
        index = np.zeros(self.n, np.int64) if self.index is None else self.index
        rows = [jnp.asarray(index), *(jnp.asarray(rows_of(x)) for x in self.args.sequences)]
        many, start = len(rows), initial_states(self.args.states, self.op.args.states)
        # On a mesh any of them may vary in a step as soon as another does.
        arrays = vary_alike([*rows, *start, *self.args.consts])
        self.rows, self.start = arrays[:many], tuple(arrays[many : many + len(start)])
        step = scan_step(self.site, arrays[many + len(start) :])

        def whole(*inputs: Any) -> list[Any]:
            nexts, ys, _ = step(inputs[0], inputs[1:many], inputs[many:], self.kept)
            return [*nexts, *ys]

        first = [x[0] for x in self.rows]
        self.step: ClosedJaxpr = jax.make_jaxpr(whole)(*first, *self.start)
        self.all_atoms = atoms(self.site.node)
        self.parts = [self._part(atom) for atom in self.all_atoms if atom.states]

    @property
    def obstacle(self) -> Why | None:
        """The reason why the steps must be sequential; None if there is none."""
        asked = self.site.context.parallel
        if self.op.options.parallel is not None:
            return None
        own = [p for p in self.parts if not (p.is_known or p.is_sum)] or self.parts
        others = [p for p in own if p.method is Method.ONE_BY_ONE]
        if len(others) == len(own) or (asked == "auto" and others):
            obstacles = ", ".join(f"{self._names(p)} {p.obstacle}" for p in others)
            smooth = all(p.is_smooth and p.fits for p in others)
            return Why(obstacles, TRY_NEWTON) if smooth else Why(obstacles)
        if asked == "auto" and not all(is_worth(self.n, p.coordinates.size) for p in own):
            return Why("it is too short, or its states are too many numbers")
        return None

    @property
    def in_words(self) -> str:
        """Describe how each part runs."""
        return ", ".join(f"{self._names(p)} {p.in_words}" for p in self.parts)

    def _names(self, part: Part) -> str:
        names = [self.op.args.states[k].name or f"state {k}" for k in part.atom.states]
        return " and ".join(names)

    def _part(self, atom: Atom) -> Part:
        many = len(self.rows)
        inputs: list[Any] = [Known(varying=True)] * (many + len(self.start))
        for k in atom.states:
            inputs[many + k] = state_image(self.start[k].ndim)
        outputs = images(self.step.jaxpr, inputs)
        following = [
            x if isinstance(x := outputs[k], Image) else Image((None,) * self.start[k].ndim)
            for k in atom.states
        ]
        shapes = [self.start[k].shape for k in atom.states]
        dtypes = {self.start[k].dtype for k in atom.states}
        by_newton = self.op.options.parallel is not None
        is_known = all(isinstance(outputs[k], Known) for k in atom.states)
        part = Part(atom, self.n, by_newton, following, shapes, dtypes, is_known)
        if is_known or part.is_affine or by_newton or self.site.context.parallel is not True:
            return part
        if part.is_smooth and part.fits:
            part.solver = self._solver(part)
        if len(shapes) == 1:
            part.places = self._places(atom.states[0])
        return part

    def _solver(self, part: Part) -> InSemiring | LinearFractional | None:
        at, solver = part.coordinates, None
        start = at.join([self.start[k] for k in part.atom.states])
        row = [x[0] for x in self.rows], [self.start[k] for k in part.atom.before]
        equation, consts = part.equation(self._step_of(part), row, start, self.reverse)
        step = equation, consts, jax.tree.leaves(row), start
        if at.size**3 * at.width * block_count(self.n) <= MOST_NUMBERS:  # a sum has three axes
            solver = InSemiring.of(*step)
        return solver or LinearFractional.of(*step)

    def _places(self, k: int) -> int | None:
        """The length of the rows that state ``k`` indexes; None if there are none, or too many.

        They are also too many for the state's dtype if it does not number them all.
        """
        row = row_of_pointers(self.op, k)
        if row is None:
            return None
        is_row = row in self.op.args.rows
        group = self.op.args.rows if is_row else self.op.args.consts
        arrays = self.rows[1:] if is_row else self.args.consts
        size = int(np.shape(arrays[list(group).index(row)])[-1])
        numbered = size <= np.iinfo(self.op.args.states[k].type.dtype).max
        return size if 0 < size and numbered and size * self.n <= MOST_NUMBERS else None

    # -- one part ------------------------------------------------------------------------------------

    def solve(self, part: Part) -> None:
        """Compute the traces and the final values of the states of ``part``."""
        states = part.atom.states
        start = [self.start[k] for k in states]
        step, rows = self._step_of(part), self._rows_of(part)
        if part.method is Method.AFFINE and part.is_sum and not self._is_read(part.atom):
            (k,) = states
            self.last[k] = sum_at_the_end(part, step, rows, start)
            return
        behind = states_behind(self.site, part, step, rows, start)
        for k, s, x in zip(states, start, behind, strict=True):
            self.behind[k], self.before[k] = x, states_before(x, s, self.reverse)
            self.last[k] = x[0] if self.reverse else x[-1]

    def _function(self, outputs: Sequence[int]) -> Callable[..., list[Any]]:
        """A function ``(rows, states) -> outputs`` of one step, reduced to what these outputs need."""
        used = [k in outputs for k in range(len(self.step.jaxpr.outvars))]
        jaxpr, _ = partial_eval.dce_jaxpr(self.step.jaxpr, used, instantiate=True)
        run = jaxpr_as_fun(ClosedJaxpr(jaxpr, self.step.consts))

        def function(rows: Sequence[Any], states: Sequence[Any]) -> list[Any]:
            return list(run(*rows, *states))

        return function

    def _all_states(self, part: Part, others: Sequence[Any], own: Sequence[Any]) -> list[Any]:
        """The states of a step: the ``own`` ones of a part, and the ``others`` that it reads."""
        return with_items(self.start, [*part.atom.before, *part.atom.states], [*others, *own])

    def _rows_of(self, part: Part) -> tuple[Any, Any]:
        """The rows of all steps, including the states that ``part`` reads."""
        return self.rows, [self.before[k] for k in part.atom.before]

    def _step_of(self, part: Part) -> Step:
        """The step of a part: ``(row, own states) -> next states``."""
        function = self._function(part.atom.states)

        def step(row: Any, own: Sequence[Any]) -> list[Any]:
            rows, others = row
            return function(rows, self._all_states(part, others, own))

        return step

    def _is_read(self, atom: Atom) -> bool:
        """Whether anything reads a state of ``atom`` before or after a step, or the loop emits it."""
        readers = [a for a in self.all_atoms if a is not atom]
        return bool(atom.ys) or any(
            k in (*a.before, *a.after) for a in readers for k in atom.states
        )

    # -- what the loop gives -------------------------------------------------------------------------

    @property
    def finals(self) -> tuple[Any, ...]:
        return tuple(self.last[k] for k in range(self.op.n_states))

    def traces(self) -> list[Any]:
        """The requested traces: the rows that the steps emit."""
        inner, outs = self.op.args.states, self.op.outs
        known = {v: self.behind[k] for k, v in enumerate(outs.states) if k in self.behind}
        known |= {v: self.before[k] for k, v in enumerate(inner) if k in self.before}
        recorded = {k: known[outs.ys[k]] for k in self.kept if outs.ys[k] in known}
        others = [k for k in self.kept if k not in recorded]
        if others:
            first = self.op.n_states
            function = self._function([first + self.kept.index(k) for k in others])
            states = [self.before.get(k, s) for k, s in enumerate(self.start)]
            over = [0 if k in self.before else None for k in range(len(states))]
            ys = jax.vmap(function, in_axes=(0, over))(self.rows, states)
            recorded |= zip(others, ys, strict=True)
        return [recorded[k] for k in self.kept]
