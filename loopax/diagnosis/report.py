"""``Diagnosis``: findings as data, as text and as a page for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

_MOST = 20_000  # characters of a report


@dataclass(frozen=True)
class Operand:
    """An operand of an op.

    ``value`` is the number at ``entry``, or the whole value where the op reads more than one number;
    ``origin`` is the user's line that computed it, ``file.py:12: code``, or an empty string.
    """

    expression: str
    value: Any
    text: str
    entry: tuple[int, ...] | None = None
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.expression} = {self.text}"


@dataclass(frozen=True)
class Finding:
    """The origin of a number that is not finite or out of its range, or of an error.

    Parameters
    ----------
    kind
        ``"nan"``, ``"inf"``, ``"-inf"``, ``"error"``, ``"range"``, or ``"differs"`` of
        `loopax.compare`.
    op
        The op that computed it; ``"input"`` where the program received the value.
    expression
        The expression that it computes, with the user's names.
    line, code
        The user's line: ``"file.py:12"`` and its text. Both are empty where the line is unknown, as in
        the steps of `pytensor.scan`.
    steps
        The steps in which it happened, outermost first, counted from 0; a row of a batch of graphs too.
    where
        The steps in words: ``"outer step 3, step 17"``.
    entry
        The index of the number in its array.
    operands
        The operands of the op.
    why, instead
        The reason in words, and a form to write in its place.
    in_gradient
        Whether a derivative is not finite while the value is.
    spread
        The path to the outputs, a line for each value.
    zero
        The origin of the 0 in a logarithm of 0 or a division by 0: for example a probability that
        underflowed.
    """

    kind: str
    op: str
    expression: str
    line: str = ""
    code: str = ""
    steps: tuple[int, ...] = ()
    where: str = ""
    entry: tuple[int, ...] | None = None
    operands: tuple[Operand, ...] = ()
    why: str = ""
    instead: str = ""
    in_gradient: bool = False
    loop: str = ""
    spread: tuple[str, ...] = ()
    zero: str = ""

    def lines(self) -> list[str]:
        """The finding as text."""
        place = [x for x in (f"at {self.where}" if self.where else "", self.line) if x]
        head = {
            "error": f"{self.op} raises",
            "range": f"{self.expression} leaves its range",
            "differs": f"{self.op} differs",
        }.get(self.kind, f"{self.op} gives {self.kind}")
        if self.op == "input":
            is_so = "leaves its range" if self.kind == "range" else f"is {self.kind}"
            head = f"the {self.expression} {is_so}"
        if self.in_gradient:
            is_so = "is wrong" if self.kind == "differs" else f"is {self.kind}"
            head = f"the derivative of {self.op} {is_so}"
        lines = [", ".join([head, *place])]
        if self.op != "input":
            lines.append(f"    {self.expression}")
        if self.code:
            lines.append(f"    {self.line}: {self.code}")
        lines += [
            f"    with {o}" + (f"    ({o.origin})" if o.origin else "") for o in self.operands
        ]
        if self.zero:
            lines.append(f"    which became 0 {self.zero}")
        if self.loop:
            lines.append(f"    in {self.loop}")
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.instead:
            lines.append(f"  instead: {self.instead}")
        if self.spread:
            lines.append("  it spread:")
            lines += [f"    {line}" for line in self.spread]
        return lines


@dataclass(frozen=True)
class Diagnosis:
    """The result of `loopax.diagnose`.

    ``str`` is a report; a notebook shows a page. ``findings`` has the causes by order of computation.
    """

    name: str
    summary: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def first_of(cls, name: str, diagnoses: Sequence[Diagnosis]) -> Diagnosis:
        """Merge several diagnoses into one."""
        findings = tuple(f for d in diagnoses for f in d.findings)
        notes = tuple(dict.fromkeys(note for d in diagnoses for note in d.notes))
        bad_summary = next((d.summary for d in diagnoses if d.findings), None)
        summary = bad_summary or (diagnoses[0].summary if diagnoses else "every value is finite.")
        return cls(name, summary, findings, notes)

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    @property
    def first(self) -> Finding | None:
        return self.findings[0] if self.findings else None

    def __str__(self) -> str:
        text = "\n".join(self._lines())
        if len(text) > _MOST:
            text = text[: _MOST - 40] + "\n… the rest is left out: see findings"
        return text

    def __repr__(self) -> str:
        return str(self)

    def _lines(self) -> Sequence[str]:
        lines = [f"{self.name}: {self.summary}"]
        for k, finding in enumerate(self.findings):
            head, *tail = finding.lines()
            lines += ["", f"{'First' if k == 0 else 'Then'}: {head}", *tail]
        if self.notes:
            lines += ["", *(f"Note: {note}" for note in self.notes)]
        return lines

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(self.name)}</b>: {escape(self.summary)}</p>"]
        for finding in self.findings:
            head, *tail = finding.lines()
            body = escape("\n".join(tail))
            parts.append(
                f"<details open><summary><b>{escape(head)}</b></summary><pre>{body}</pre></details>"
            )
        parts += [f"<p>Note: {escape(note)}</p>" for note in self.notes]
        return "\n".join(parts)
