"""``Profile``: measured and expected times of the parts of a program, as text, page and trace."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path


@dataclass(frozen=True)
class Part:
    """A loop of a program, or all its ops of one kind.

    Parameters
    ----------
    title
        ``"Scan{loop}: 500 steps"``, or the kind of the ops: ``"12 elementwise ops"``.
    line
        The user's line of a loop, ``"file.py:12"``; empty where it is unknown.
    seconds
        The time of the part alone, as a program of its own, by form.
    expected
        The share of the whole that `loopax.explain` estimates.
    """

    title: str
    line: str
    seconds: Mapping[str, float]
    expected: float


@dataclass(frozen=True)
class Profile:
    """The result of `loopax.profile`.

    ``seconds`` has the time of a whole call by form, ``parts`` the times of its parts. Each form fuses
    ops across parts, so the parts together may take longer than the whole. The time of each part includes
    the overhead of a call, a few microseconds in JAX.
    """

    name: str
    seconds: Mapping[str, float]
    parts: Sequence[Part]
    remarks: Sequence[str] = ()

    def __str__(self) -> str:
        forms = list(self.seconds)
        rows = [["", *forms, "expected", ""]]
        rows.append(["a whole call", *(time_in_words(self.seconds[f]) for f in forms), "", ""])
        for part in self.parts:
            times = [time_in_words(part.seconds[f]) if f in part.seconds else "-" for f in forms]
            rows.append([part.title, *times, f"{part.expected:.0%}", part.line])
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines = [
            "  ".join(
                x.ljust(w) if k == 0 else x.rjust(w)
                for k, (x, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        lines += [f"it ran as: {line}" for line in self.remarks]
        return "\n".join([self.name, *(line.rstrip() for line in lines)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        forms = list(self.seconds)
        head = "".join(f"<th>{escape(x)}</th>" for x in ["", *forms, "expected", "line"])
        whole = "".join(f"<td>{time_in_words(self.seconds[f])}</td>" for f in forms)
        rows = [f"<tr><td>a whole call</td>{whole}<td></td><td></td></tr>"]
        for part in self.parts:
            times = "".join(
                f"<td>{time_in_words(part.seconds[f]) if f in part.seconds else '-'}</td>"
                for f in forms
            )
            rows.append(
                f"<tr><td>{escape(part.title)}</td>{times}<td>{part.expected:.0%}</td>"
                f"<td>{escape(part.line)}</td></tr>"
            )
        return f"<p><b>{escape(self.name)}</b></p><table><tr>{head}</tr>{''.join(rows)}</table>"

    def to_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a trace for Perfetto or chrome://tracing: a track for each form, with its parts."""
        events = []
        for track, form in enumerate(self.seconds):
            events.append(
                {"ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": {"name": form}}
            )
            begin = 0.0
            for part in self.parts:
                if form not in part.seconds:
                    continue
                length = part.seconds[form] * 1e6
                events.append(
                    {"ph": "X", "pid": 1, "tid": track, "name": part.title, "ts": begin, "dur": length,
                     "args": {"line": part.line, "expected": part.expected}}
                )  # fmt: skip
                begin += length
        Path(path).write_text(json.dumps({"traceEvents": events}), encoding="utf-8")


def time_in_words(seconds: float) -> str:
    """A time with three digits, in the unit in which it is at least 1: ``2.5 us``."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
