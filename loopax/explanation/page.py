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

# Everything is under one class, so that a notebook's own page stays as it is. The browser's own colours and
# hues that one sees through serve in the light and in the dark.
_ME = ".loopax-explanation"
_STYLE = f"""
{_ME}{{color-scheme:light dark;background:Canvas;color:CanvasText;padding:1rem;
font:14px/1.5 system-ui,sans-serif}}
[data-jp-theme-light="true"] {_ME},.vscode-light {_ME}{{color-scheme:light}}
[data-jp-theme-light="false"] {_ME},.vscode-dark {_ME}{{color-scheme:dark}}
{_ME} pre{{font:12px/1.45 ui-monospace,monospace;overflow-x:auto;background:none;color:inherit}}
{_ME} table{{border-collapse:collapse;width:100%;max-width:60rem}}
{_ME} tr{{background:none;border-bottom:1px solid #8886}}
{_ME} th,{_ME} td{{text-align:right;padding:.15rem .6rem;color:inherit}}
{_ME} td:last-child{{width:45%}}
{_ME} .bar{{display:flex;height:.8rem}}
{_ME} .outside{{background:#7b9fd4}}
{_ME} .inside{{background:#e0913a}}
{_ME} summary{{cursor:pointer;font-weight:600}}
{_ME} figure{{margin:.6rem 0;overflow-x:auto}}
{_ME} figure figure{{margin-left:1.5rem;border-left:2px solid #8886;padding-left:.8rem}}
{_ME} svg path{{fill:none;stroke:#888c}}
{_ME} svg rect{{fill:#8883}}
{_ME} svg .in rect{{fill:#e0b03a55}}
{_ME} svg .loop rect{{fill:#7b6fe077;stroke:#7b6fe0}}
{_ME} svg .out rect{{fill:#3fae6a55}}
{_ME} svg text{{fill:CanvasText;font:11px ui-monospace,monospace}}
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
        '<th class="outside">other ops outside</th><th class="inside">inside</th><th></th></tr>'
        "</thead><tbody>"
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
