"""``Explanation``: a program before and after each pass that changed something."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pytensor.graph.fg import FunctionGraph

from loopax.base.upstream.pytensor import thaw
from loopax.explanation import page
from loopax.explanation.summary import is_large, summary
from loopax.ir.pformat import pformat
from loopax.ir.program import EarlyPart
from loopax.lowering.notes import collected
from loopax.lowering.record import Counts, Stage, stages
from loopax.lowering.record import counts as counts_of


@dataclass(frozen=True, eq=False)
class Explanation:
    """A report on the passes over a program, made by `loopax.explain`.

    ``str`` gives the program as text, before the first pass and after each pass that changed it;
    `to_html` writes a page with drawings of the loops, which a notebook shows. For a program of more
    than 150 ops ``str`` is the `summary` with a line for each pass, and `full` is the text of all
    stages; the page opens with the summary and folds everything else.

    Parameters
    ----------
    name
        The name of the program.
    read
        The program in the IR, before the first pass.
    stages
        ``(name, before, after, counts)`` for each pass that changed the program, in order: two graphs,
        and the numbers of loops and other ops in the second.
    part
        The program in two parts, if one depends on shared variables alone: ``part.early`` runs once for
        each of their values, ``part.residual`` at each call.
    notes
        Notes of the passes: the rules that ``optimize="egraph"`` used, a line each.
    remarks
        Remarks of the backend on the calls so far: which programs ran natively inside JAX, and why.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax import explain
    >>> x = pt.dscalar("x")
    >>> report = explain([x], x + 0 * pt.exp(x))
    >>> [stage.name for stage in report.stages], report.counts_read, report.counts_lowered
    (['stabilize'], Counts(loops=0, outside=3, inside=0), Counts(loops=0, outside=0, inside=0))
    """

    name: str
    read: FunctionGraph
    stages: tuple[Stage, ...]
    part: EarlyPart | None = None
    remarks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, graph: FunctionGraph, name: str = "program", passes: Sequence[Any] | None = None
    ) -> Explanation:
        """Run the passes on ``graph``, a program in the IR, in place, and record their changes.

        The default passes are the passes of `lower`.
        """
        as_read = thaw(graph)
        with collected() as notes:
            changes = tuple(stages(graph, passes))
        return cls(name, as_read, changes, notes=tuple(notes))

    @property
    def lowered(self) -> FunctionGraph:
        """The program after the last pass, which a backend receives."""
        return self.stages[-1].after if self.stages else self.read

    @property
    def counts_read(self) -> Counts:
        """The numbers of loops, and of other ops outside and inside of them, before the first pass."""
        return counts_of(self.read)

    @property
    def counts_lowered(self) -> Counts:
        """The counts after the last pass."""
        return self.stages[-1].counts if self.stages else self.counts_read

    def text(self, graph: FunctionGraph) -> str:
        return pformat(graph, self.name)

    @property
    def is_large(self) -> bool:
        """Whether ``str`` and the page open with the `summary`."""
        return is_large([self.counts_read, *(stage.counts for stage in self.stages)])

    @property
    def summary(self) -> str:
        """The program after the last pass in one screen: its loops, its ops, estimated shares of its
        time, accurate to a factor of about two, and the choices made in the calls so far.
        """
        return summary(self.lowered, self.remarks)

    @property
    def full(self) -> str:
        """The text of all stages, at any length."""
        return "\n\n".join(self._parts())

    def __str__(self) -> str:
        return "\n\n".join(self._folded()) if self.is_large else self.full

    def _folded(self) -> Iterator[str]:
        """Yield the summary, and a line for each section left out."""
        counts = _line(self.counts_lowered, self.counts_read)
        yield f"== {self.name}: {counts} ==\n{self.summary}"
        rows = [("as read", self.counts_read), *((s.name, s.counts) for s in self.stages)]
        lines = [f"{rows[0][0]}: {_line(rows[0][1], rows[0][1])}"]
        lines += [f"{name}: {_line(now, last)}" for (_, last), (name, now) in pairwise(rows)]
        yield "\n".join(["== passes that changed it ==", *lines])
        if self.notes:
            yield "\n".join(["== said by passes ==", *self.notes])
        if self.part is not None:
            names = ", ".join(v.name or "a shared variable" for v in self.part.early.inputs)
            early, residual = counts_of(self.part.early), counts_of(self.part.residual)
            yield (
                f"== in two parts ==\nonce for each value of {names}: {_line(early, early)}\n"
                f"at each call: {_line(residual, residual)}"
            )
        yield (
            "== folded ==\nThe program as text, as the passes left it: e.text(e.lowered), where e is what "
            "explain returns; at every\nstage: e.full; as a page with drawings: e.to_html('page.html')."
        )

    def _parts(self) -> Iterator[str]:
        last = self.counts_read
        yield f"== as read: {_line(last, last)} ==\n{self.text(self.read)}"
        for stage in self.stages:
            yield f"== {stage.name}: {_line(stage.counts, last)} ==\n{self.text(stage.after)}"
            last = stage.counts
        if not self.stages:
            yield "== no pass changed it =="
        if self.notes:
            yield "\n".join(["== said by passes ==", *self.notes])
        if self.part is not None:
            names = ", ".join(v.name or "a shared variable" for v in self.part.early.inputs)
            yield f"== once for each value of {names} ==\n{self.text(self.part.early)}"
            yield f"== at each call ==\n{self.text(self.part.residual)}"
        if self.remarks:
            yield "\n".join(["== so far it ran as ==", *self.remarks])

    def __repr__(self) -> str:
        names = ", ".join(stage.name for stage in self.stages) or "no pass"
        return f"<Explanation of {self.name}, changed by {names}>"

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page to ``path``: one file without references to others or to the network."""
        Path(path).write_text(
            page.page(self.name, self._sections(), self._opening()), encoding="utf-8"
        )

    def _repr_html_(self) -> str:
        """The page for a notebook: the body without the document around it."""
        return page.body(self.name, self._sections(), self._opening())

    def _opening(self) -> str | None:
        return self.summary if self.is_large else None

    def _sections(self) -> list[page.Section]:
        as_read = page.Section("as read", self.read, self.counts_read)
        return [as_read, *(page.Section(s.name, s.after, s.counts) for s in self.stages)]


def _line(now: Counts, last: Counts) -> str:
    """Format counts with changes: ``2 loops (-1), 5 other ops outside of loops, 3 (+1) inside``."""
    change = [f" ({n - m:+d})" if n != m else "" for n, m in zip(now, last, strict=True)]
    loops, outside = [
        f"{n} {noun if n == 1 else noun + 's'}{by}"
        for n, noun, by in zip(now, ("loop", "other op"), change[:2], strict=False)
    ]
    return f"{loops}, {outside} outside of loops, {now.inside}{change[2]} inside"
