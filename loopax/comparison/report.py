"""``Comparison``: a table of relative differences, and the first op that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from loopax.diagnosis import Finding


@dataclass(frozen=True)
class Row:
    """A comparison of two ways to compute one thing.

    Parameters
    ----------
    what
        ``"value"``, ``"gradient"`` or ``"second derivative"``.
    one, other
        The two ways.
    difference
        The largest difference, relative to the largest number; infinite where one way alone gives a
        number that is not finite; nan where it was not computed.
    tolerance
        The largest difference that counts as agreement.
    remark
        The reason why it was not computed, or the place of the largest difference.
    """

    what: str
    one: str
    other: str
    difference: float
    tolerance: float
    remark: str = ""

    @property
    def ok(self) -> bool:
        """Whether the two agree, or could not be compared."""
        return not self.difference > self.tolerance


@dataclass(frozen=True)
class Comparison:
    """The result of `loopax.compare`: ``print`` it, or let a notebook show it.

    ``rows`` has each comparison, ``first`` the first op that differs, if it is known; ``notes`` are the
    warnings during compilation.
    """

    name: str
    rows: tuple[Row, ...]
    first: Finding | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all comparisons agree."""
        return all(row.ok for row in self.rows)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return str(self)

    def _lines(self) -> Sequence[str]:
        verdict = "everything agrees" if self.ok else "there are disagreements"
        table = [("what", "", "", "difference", "allowed", "")]
        for r in self.rows:
            is_known = r.difference == r.difference
            number = f"{r.difference:.1e}" if is_known else "not computed"
            mark = "" if r.ok else "DIFFERS"
            end = "; ".join(filter(None, [mark, r.remark]))
            table.append((r.what, r.one, r.other, number, f"{r.tolerance:.0e}", end))
        widths = [max(len(line[k]) for line in table) for k in range(5)]
        lines = [f"{self.name}: {verdict}", ""]
        lines += [
            "  ".join([*(x.ljust(w) for x, w in zip(line, widths, strict=False)), line[5]]).rstrip()
            for line in table
        ]
        if self.first is not None:
            head, *tail = self.first.lines()
            lines += ["", f"First: {head}", *tail]
        if self.notes:
            lines += ["", *(f"Note: {note}" for note in self.notes)]
        return lines

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
