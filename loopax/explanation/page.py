"""An explanation as one HTML page: bars of counts, drawings of loops, and the text of each stage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from pytensor.graph.fg import FunctionGraph

from loopax.base.html import document, theme
from loopax.explanation.drawing import Body, bodies, caption, drawing
from loopax.ir.pformat import pformat
from loopax.lowering.record import Counts

if TYPE_CHECKING:
    from loopax.ir.ops.inner_graph_op import InnerGraphOp

_PAGE = "loopax-explanation"
_ME = f".{_PAGE}"
_STYLE = f"""{theme(_PAGE)}
{_ME} table{{border-collapse:collapse;width:100%;max-width:60rem}}
{_ME} tr{{background:none;border-bottom:1px solid #8886}}
{_ME} th,{_ME} td{{text-align:right;padding:.15rem .6rem;color:inherit}}
{_ME} tbody th{{overflow-wrap:anywhere;min-width:5rem}}
{_ME} td:last-child{{width:45%}}
{_ME} .bar{{display:flex;height:.8rem}}
{_ME} .outside{{background:#7b9fd4}}
{_ME} .inside{{background:#e0913a}}
{_ME} thead .outside,{_ME} thead .inside{{color:#111}}
{_ME} summary{{cursor:pointer;font-weight:600}}
{_ME} figure figure{{margin-left:1.5rem;border-left:2px solid #8886;padding-left:.8rem}}
{_ME} svg path{{fill:none;stroke:#888c}}
{_ME} svg rect{{fill:#8883}}
{_ME} svg .in rect{{fill:#e0b03a55}}
{_ME} svg .loop rect{{fill:#7b6fe077;stroke:#7b6fe0}}
{_ME} svg .out rect{{fill:#3fae6a55}}
"""

_FOLD = "<details><summary>The loops, lowered</summary>"


class Section(NamedTuple):
    """The program at one stage: as read, or after a pass that changed it."""

    title: str
    graph: FunctionGraph
    counts: Counts


def page(name: str, sections: Sequence[Section], summary: str | None = None) -> str:
    """Write the document for the program ``name``; after a ``summary`` all else is folded."""
    return document(f"{name}: passes", _PAGE, body(name, sections, summary))


def body(name: str, sections: Sequence[Section], summary: str | None = None) -> str:
    """Write the content of the document, with its style."""
    return "\n".join(
        [
            f'<div class="{_PAGE}"><style>{_STYLE}</style>',
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
    """Write a row for each stage, with its counts and a bar of them."""
    most = max(1, *(c.outside + c.inside for _, _, c in sections))
    yield (
        "<table><thead><tr><th>stage</th><th>loops</th>"
        '<th class="outside">other ops outside</th><th class="inside">inside</th><th></th></tr>'
        "</thead><tbody>"
    )
    for title, _, c in sections:
        bars = "".join(
            f'<span class="{css_class}" style="width:{100 * n / most:.1f}%"></span>'
            for css_class, n in (("outside", c.outside), ("inside", c.inside))
        )
        yield (
            f"<tr><th>{escape(title)}</th><td>{c.loops}</td><td>{c.outside}</td>"
            f'<td>{c.inside}</td><td><div class="bar">{bars}</div></td></tr>'
        )
    yield "</tbody></table>"
    if len(sections) == 1:
        yield "<p>No pass changed it.</p>"


def _stages(name: str, sections: Sequence[Section]) -> Iterator[str]:
    """Write the text of each stage, with drawings of the bodies that are new in it."""
    drawn_before: set[Any] = set()
    for title, graph, _ in sections:
        yield f"<details><summary>{escape(title)}</summary>"
        yield f"<pre>{escape(pformat(graph, name))}</pre>"
        top_bodies = bodies(graph)
        yield from _figures(top_bodies, drawn_before)
        yield "</details>"
        drawn_before = {inner.op for top in top_bodies for inner in top.flat()}


def _figures(items: Iterable[Body], drawn_before: Collection[InnerGraphOp] = ()) -> Iterator[str]:
    """Write a figure for each body that is not in ``drawn_before``, with nested figures inside."""
    for item in items:
        if item.op in drawn_before:
            continue  # nested bodies are known too
        drawn = drawing(item.op) or "<p>Too many ops to draw.</p>"
        yield f'<figure data-number="{item.number}">'
        yield f"<figcaption>{item.number} {escape(caption(item.op))}</figcaption>{drawn}"
        yield from _figures(item.inside, drawn_before)
        yield "</figure>"
