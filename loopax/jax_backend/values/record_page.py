"""A record of watched values as a page: each value over the steps, with the failing step marked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple, Protocol

import numpy as np

from loopax.base.html import document, theme

_PAGE = "loopax-record"
_ME = f".{_PAGE}"
# Okabe and Ito's colours, which colour-blind readers tell apart; the red one is for marks.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")
_STYLE = f"""{theme(_PAGE)}
{_ME} svg path{{fill:none;stroke-width:1.4}}
{_ME} svg .axis{{stroke:#888c;stroke-width:1}}
{_ME} svg .mark line{{stroke:#d55e00;stroke-width:1.5}}
{_ME} svg .mark text{{fill:#d55e00;font-weight:600}}
{_ME} figcaption b{{font-family:ui-monospace,monospace}}
"""

_WIDTH, _HEIGHT = 620.0, 130.0  # of the space inside the axes
_LEFT, _TOP, _BOTTOM = 70.0, 18.0, 22.0
_MOST_POINTS = 1200  # of a line; a longer one is drawn by the minimum and maximum of each stretch
_ENTRY_LETTERS = 24
_LOG_FROM = (
    1e4  # ratio of the largest to the least positive value from which the axis is logarithmic
)


class WatchedValues(Protocol):
    """The rows of each watched value, by name: `loopax.jax_backend.values.record.Record`."""

    @property
    def is_known(self) -> bool: ...
    @property
    def stop(self) -> tuple[int, ...] | None: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, name: str) -> tuple[Any, Any]: ...


class _Curves(NamedTuple):
    """A watched value as rows of real numbers, with a column for each entry that is drawn."""

    name: str
    columns: np.ndarray
    labels: list[str]
    steps: np.ndarray  # (rows, loops)
    caption: str
    failing_row: int | None  # the first that is not finite
    failure: str  # the value there, and its entry


def page(record: WatchedValues) -> str:
    return document("watched values", _PAGE, body(record))


def body(record: WatchedValues) -> str:
    """The contents of the document, with their style."""
    parts = [f'<div class="{_PAGE}"><style>{_STYLE}</style>']
    if not record.is_known:
        parts.append(
            "<p>A record of a batch, or one that is traced: take one row to draw it, "
            "<code>jax.tree.map(lambda x: x[6], record)</code>.</p>"
        )
    else:
        curves = [_curves(name, *record[name]) for name in record]
        parts += _opening(curves, record.stop)
        parts += [_figure(one, record.stop) for one in curves]
    return "\n".join([*parts, "</div>"])


def _opening(curves: Sequence[_Curves], stop: tuple[int, ...] | None) -> Iterator[str]:
    failing = [c for c in curves if c.failing_row is not None]
    if failing:
        first = min(failing, key=lambda c: (*c.steps[c.failing_row], np.inf))
        yield (
            f"<p><b>{escape(first.name)}</b> is the first that is not finite: "
            f"{escape(_step_in_words(first.steps[first.failing_row]))}, {escape(first.failure)}.</p>"
        )
    elif curves:
        yield "<p>Every value is finite.</p>"
    else:
        yield "<p>Nothing is watched.</p>"
    if stop is not None:
        yield f"<p>The record ends at a breakpoint: {escape(_step_in_words(stop))}.</p>"


def _curves(name: str, values: np.ndarray, steps: np.ndarray) -> _Curves:
    values, steps = np.asarray(values), np.asarray(steps)
    steps = steps.reshape(len(values), -1) if len(values) else np.zeros((0, 0), "int64")
    shape = values.shape[1:]
    flat = values.reshape(len(values), math.prod(shape))
    is_inexact = values.dtype.kind in "fc"
    failing = np.argwhere(~np.isfinite(flat)) if is_inexact else np.zeros((0, 2), "int64")
    failing_row, failure = None, ""
    entries = list(range(min(flat.shape[1], len(_COLOURS))))
    if len(failing):
        failing_row, k = (int(j) for j in failing[0])
        failure = f"{flat[failing_row, k]}{_index_in_words(k, shape)}"
        entries = [k, *(j for j in entries if j != k)][: len(_COLOURS)]
    columns, labels = [], []
    for k in entries:
        label = f"{name}{_bracketed(k, shape)}"[:_ENTRY_LETTERS]
        if values.dtype.kind == "c":
            columns += [flat[:, k].real, flat[:, k].imag]
            labels += [f"{label}, real", f"{label}, imaginary"]
        else:
            columns.append(flat[:, k].astype("float64"))
            labels.append(label)
    caption = f"{len(values)} rows of {values.dtype}{list(shape) if shape else ''}"
    if flat.shape[1] > len(entries):
        caption += f", {len(entries)} of {flat.shape[1]} entries drawn"
    stacked = np.stack(columns, axis=1) if columns else np.zeros((len(values), 0))
    return _Curves(name, stacked, labels, steps, caption, failing_row, failure)


def _figure(curves: _Curves, stop: tuple[int, ...] | None) -> str:
    caption = curves.caption
    if not curves.columns.size:
        return _captioned(curves.name, caption, [])
    n, columns = len(curves.columns), curves.columns
    finite = columns[np.isfinite(columns)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    ends = low, high
    if low > 0 and high / low > _LOG_FROM:
        with np.errstate(invalid="ignore"):
            columns = np.log10(columns)
        low, high = math.log10(low), math.log10(high)
        caption += ", logarithmic axis"
    low, high = _apart(low, high)
    width, height = _LEFT + _WIDTH + 10, _TOP + _HEIGHT + _BOTTOM
    parts = [
        f'<svg role="img" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><title>{escape(curves.name)} over the steps</title>'
    ]
    parts += _axes(curves.steps, n, ends)
    for k, label in enumerate(curves.labels):
        colour = _COLOURS[k % len(_COLOURS)]
        path = _path(columns[:, k], low, high)
        parts.append(f'<path d="{path}" stroke="{colour}"><title>{escape(label)}</title></path>')
    if len(curves.labels) > 1:
        at = _LEFT
        for k, label in enumerate(curves.labels):
            colour = _COLOURS[k % len(_COLOURS)]
            parts.append(f'<text x="{at:.0f}" y="11" style="fill:{colour}">{escape(label)}</text>')
            at += 7.0 * len(label) + 14
    if curves.failing_row is not None:
        words = f"{_step_in_words(curves.steps[curves.failing_row])}: {curves.failure}"
        parts.append(_mark(curves.failing_row, n, words))
    elif stop is not None:
        parts.append(_mark(n - 1, n, "breakpoint"))
    return _captioned(curves.name, caption, [*parts, "</svg>"])


def _captioned(name: str, caption: str, parts: Sequence[str]) -> str:
    head = f"<figcaption><b>{escape(name)}</b>: {escape(caption)}</figcaption>"
    return f"<figure>{head}{''.join(parts)}</figure>"


def _axes(steps: np.ndarray, n: int, ends: tuple[float, float]) -> Iterator[str]:
    bottom, (low, high) = _TOP + _HEIGHT, ends
    yield (
        f'<path class="axis" d="M{_LEFT:.0f} {_TOP:.0f}V{bottom:.0f}H{_LEFT + _WIDTH:.0f}"/>'
        f'<text x="{_LEFT - 6:.0f}" y="{_TOP + 9:.0f}" text-anchor="end">{high:.4g}</text>'
        f'<text x="{_LEFT - 6:.0f}" y="{bottom:.0f}" text-anchor="end">{low:.4g}</text>'
    )
    if not steps.shape[1]:
        return
    for k in dict.fromkeys(int(k) for k in np.linspace(0, n - 1, 5)):
        anchor = "start" if k == 0 else "end" if k == n - 1 else "middle"
        label = ", ".join(str(int(j)) for j in steps[k])
        word = "step " if k == 0 else ""
        yield (
            f'<text x="{_x(k, n):.1f}" y="{bottom + 15:.0f}" text-anchor="{anchor}">{word}{label}</text>'
        )


def _path(column: np.ndarray, low: float, high: float) -> str:
    """A line through the rows, with gaps where they are not finite."""
    n = len(column)
    rows = _few(column)
    parts, pen_is_down = [], False
    for k in rows:
        y = column[k]
        if not np.isfinite(y):
            pen_is_down = False
            continue
        height = _TOP + _HEIGHT * (1 - (y - low) / (high - low))
        parts.append(f"{'L' if pen_is_down else 'M'}{_x(k, n):.1f} {height:.1f}")
        if not pen_is_down:
            parts.append("h1")  # a row without neighbours is a dot
        pen_is_down = True
    return "".join(parts)


def _few(column: np.ndarray) -> list[int]:
    """The rows to draw: all; of a long column, the least, the greatest and a gap of each stretch."""
    n = len(column)
    if n <= _MOST_POINTS:
        return list(range(n))
    rows: list[int] = []
    for stretch in np.array_split(np.arange(n), _MOST_POINTS // 3):
        values = column[stretch]
        is_finite = np.isfinite(values)
        kept = {int(stretch[k]) for k in np.flatnonzero(~is_finite)[:1]}
        if is_finite.any():
            kept.add(int(stretch[np.argmin(np.where(is_finite, values, np.inf))]))
            kept.add(int(stretch[np.argmax(np.where(is_finite, values, -np.inf))]))
        rows += sorted(kept)
    return rows


def _mark(k: int, n: int, words: str) -> str:
    x = _x(k, n)
    anchor = "end" if x > _LEFT + _WIDTH / 2 else "start"
    shift = -5 if anchor == "end" else 5
    return (
        f'<g class="mark"><line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP:.0f}" y2="{_TOP + _HEIGHT:.0f}"/>'
        f'<text x="{x + shift:.1f}" y="{_TOP + 12:.0f}" text-anchor="{anchor}">{escape(words)}</text></g>'
    )


def _x(k: int, n: int) -> float:
    return _LEFT + _WIDTH * k / max(1, n - 1)


def _apart(low: float, high: float) -> tuple[float, float]:
    """Unequal bounds for an axis; numbers near the largest float do not overflow their difference."""
    most = np.finfo("float64").max / 4
    low, high = max(low, -most), min(high, most)
    if high > low:
        return low, high
    margin = 0.5 * abs(low) or 0.5
    return low - margin, low + margin


def _step_in_words(steps: Sequence[int] | np.ndarray) -> str:
    numbers = [int(k) for k in steps]
    if not numbers:
        return "outside of loops"
    outer = [f"outer step {k}" for k in numbers[:-1]]
    return ", ".join([*outer, f"step {numbers[-1]}"])


def _bracketed(k: int, shape: tuple[int, ...]) -> str:
    return f"[{', '.join(str(int(j)) for j in np.unravel_index(k, shape))}]" if shape else ""


def _index_in_words(k: int, shape: tuple[int, ...]) -> str:
    return f" at {_bracketed(k, shape)}" if shape else ""
