"""An explanation as one HTML page: counts with bars, the loops drawn, the program's text at each stage.

The page needs nothing else: no script, no font, no other file. It follows the reader's light or dark
setting, and in a notebook the notebook's theme.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from pytensor.graph.fg import FunctionGraph

from loopax.explanation.drawing import Body, bodies, caption, drawing
from loopax.ir.pformat import pformat
from loopax.lowering.record import Counts

_LIGHT = (
    "--paper:#ffffff;--ink:#1d2330;--faint:#667085;--line:#d5dae3;--edge:#8a94a6;--box:#eef2f8;"
    "--given:#fdf3d8;--loop:#e3e0fa;--result:#dcf3e4;--outside:#7b9fd4;--inside:#e0913a"
)
_DARK = (
    "--paper:#15181e;--ink:#e6e9ef;--faint:#98a2b3;--line:#343b48;--edge:#778196;--box:#252b36;"
    "--given:#453a1c;--loop:#37315c;--result:#1e4130;--outside:#5b83bf;--inside:#c27a2c"
)
# Everything is under one class, so that a notebook's own page stays as it is.
_ME = ".loopax-explanation"
_STYLE = f"""
{_ME}{{{_LIGHT};color-scheme:light;background:var(--paper);color:var(--ink);padding:1rem;
font:14px/1.5 system-ui,sans-serif}}
@media (prefers-color-scheme:dark){{{_ME}{{{_DARK};color-scheme:dark}}}}
[data-jp-theme-light="true"] {_ME},.vscode-light {_ME}{{{_LIGHT};color-scheme:light}}
[data-jp-theme-light="false"] {_ME},.vscode-dark {_ME}{{{_DARK};color-scheme:dark}}
{_ME} h2{{font-size:1.3em;margin:0 0 .5rem}}
{_ME} h3{{font-size:1.05em;margin:1.4rem 0 .4rem}}
{_ME} pre{{font:12px/1.45 ui-monospace,monospace;overflow-x:auto;background:none;color:inherit;
margin:.5rem 0}}
{_ME} table{{border-collapse:collapse;width:100%;max-width:60rem;margin:0}}
{_ME} th,{_ME} td{{text-align:right;padding:.15rem .6rem;border-bottom:1px solid var(--line);
background:none;color:inherit}}
{_ME} th:first-child,{_ME} td:last-child,{_ME} th:last-child{{text-align:left}}
{_ME} th{{font-weight:600}}
{_ME} td:last-child{{width:45%}}
{_ME} .bar{{display:flex;height:.8rem}}
{_ME} .bar span{{display:block;height:100%}}
{_ME} .outside{{background:var(--outside)}}
{_ME} .inside{{background:var(--inside)}}
{_ME} .key{{display:inline-block;width:.8em;height:.8em}}
{_ME} summary{{cursor:pointer;font-weight:600}}
{_ME} details{{border-top:1px solid var(--line);padding:.4rem 0}}
{_ME} figure{{margin:.6rem 0;overflow-x:auto}}
{_ME} figure figure{{margin-left:1.5rem;border-left:2px solid var(--line);padding-left:.8rem}}
{_ME} figcaption{{color:var(--faint)}}
{_ME} svg.body{{display:block;max-width:none}}
{_ME} svg.body path{{fill:none;stroke:var(--edge);stroke-width:1.2}}
{_ME} svg.body rect{{fill:var(--box);stroke:var(--edge)}}
{_ME} svg.body .in rect{{fill:var(--given)}}
{_ME} svg.body .out rect{{fill:var(--result)}}
{_ME} svg.body .loop rect{{fill:var(--loop);stroke-width:2}}
{_ME} svg.body text{{fill:var(--ink);font:11px ui-monospace,monospace;text-anchor:middle}}
"""

_FOLD = "<details><summary>The loops, lowered</summary>"


class Section(NamedTuple):
    """The program at one stage: as it was read, or after a pass that changed something."""

    title: str
    graph: FunctionGraph
    counts: Counts


def page(name: str, sections: Sequence[Section], summary: str | None = None) -> str:
    """The whole document, about the program ``name``; what there is beside a ``summary`` is folded."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(name)}: passes</title>"
        f"<style>body{{margin:0}} {_ME}{{min-height:100vh;box-sizing:border-box}}</style></head>\n"
        f"<body>{body(name, sections, summary)}</body></html>\n"
    )


def body(name: str, sections: Sequence[Section], summary: str | None = None) -> str:
    """What is in the document, with the style that it needs."""
    return "\n".join(
        [
            f'<div class="loopax-explanation"><style>{_STYLE}</style>',
            f"<h2>{escape(name)}</h2>",
            *([] if summary is None else [f'<pre class="summary">{escape(summary)}</pre>']),
            *_table(sections),
            '<section class="lowered">',
            "<h3>The loops, lowered</h3>" if summary is None else _FOLD,
            *_figures(bodies(sections[-1].graph)),
            *([] if summary is None else ["</details>"]),
            "</section>",
            "<h3>The program, stage by stage</h3>",
            *_stages(name, sections),
            "</div>",
        ]
    )


def _table(sections: Sequence[Section]) -> Iterator[str]:
    """A row for each stage: its counts, and a bar of them."""
    most = max(1, *(c.outside + c.inside for _, _, c in sections))
    yield (
        "<table><thead><tr><th>stage</th><th>loops</th>"
        '<th><span class="key outside"></span> other ops outside</th>'
        '<th><span class="key inside"></span> inside</th><th></th></tr></thead><tbody>'
    )
    for title, _, c in sections:
        bars = "".join(
            f'<span class="{what}" style="width:{100 * n / most:.1f}%"></span>'
            for what, n in (("outside", c.outside), ("inside", c.inside))
        )
        yield (
            f"<tr><th>{escape(title)}</th><td>{c.loops}</td><td>{c.outside}</td>"
            f'<td>{c.inside}</td><td><div class="bar">{bars}</div></td></tr>'
        )
    yield "</tbody></table>"
    if len(sections) == 1:
        yield "<p>No pass changed it.</p>"


def _stages(name: str, sections: Sequence[Section]) -> Iterator[str]:
    """The text of each stage, and drawings of those bodies that the stage before did not have."""
    known: set[Any] = set()
    for title, graph, _ in sections:
        yield f"<details><summary>{escape(title)}</summary>"
        yield f"<pre>{escape(pformat(graph, name))}</pre>"
        found = bodies(graph)
        yield from _figures(found, known)
        yield "</details>"
        known = {one.op for top in found for one in top.flat()}


def _figures(found: Iterable[Body], known: Collection[Any] = ()) -> Iterator[str]:
    """A figure for each body that is not known, those inside it in it."""
    for one in found:
        if one.op in known:
            continue  # and so are those inside it
        drawn = drawing(one.op) or "<p>Too many ops to draw.</p>"
        yield f'<figure data-number="{one.number}">'
        yield f"<figcaption>{one.number} {escape(caption(one.op))}</figcaption>{drawn}"
        yield from _figures(one.inside, known)
        yield "</figure>"
