"""The page is well-formed, loads nothing, and has a drawing of each loop."""

import re
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import cond, explain, fori_loop, scan
from loopax.base.upstream.pytensor import thaw
from loopax.explanation import Explanation, drawing
from loopax.explanation.drawing import bodies
from loopax.ir import Cond, Scan
from loopax.lowering.record import stages
from tests.support.assorted_loops import CASES, a, s, x
from tests.support.bare_loops import While

VOID = {"meta"}


class Page(HTMLParser):
    """A page as a list of what was in it; fails where tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, attrs)
        self.tags.append((tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        self.texts.append((data, tuple(self.open)))

    def handle_decl(self, decl):
        assert decl == "DOCTYPE html"

    def unknown_decl(self, data):
        raise AssertionError(data)

    def all(self, tag):
        return [attrs for one, attrs, _ in self.tags if one == tag]


@cache
def explained(name):
    case = CASES[name]()
    return explain(case.inputs, [case.cost, *pytensor.grad(case.cost, case.inputs)])


def lowered_part(text):
    """What is drawn of the program behind the last pass."""
    return text.partition('<section class="lowered">')[2].partition("</section>")[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["nested", "branching", "stopping"])
def test_one_drawing_for_each_body(name, tmp_path):
    actual = explained(name)
    actual.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    Page(text)
    part = Page(lowered_part(text))
    expected = [one for top in bodies(actual.lowered) for one in top.flat()]
    assert len(part.all("svg")) == len(part.all("figure")) == len(expected)
    assert [f["data-number"] for f in part.all("figure")] == [one.number for one in expected]
    n_loops = sum(isinstance(one.op, Scan) for one in expected)
    assert n_loops == actual.counts_lowered.loops > 0
    if name == "nested":
        assert "1.1" in [one.number for one in expected]
    if name == "branching":
        assert any(isinstance(one.op, Cond) for one in expected)


def test_it_loads_nothing(tmp_path):
    text = tmp_path / "page.html"
    explained("nested").to_html(str(text))
    text = text.read_text(encoding="utf-8")
    page = Page(text)
    assert "http" not in text and "//" not in text and "@import" not in text and "url(" not in text
    assert not {tag for tag, _, _ in page.tags} & {"script", "link", "img", "iframe", "object"}
    assert not any({"src", "href"} & attrs.keys() for _, attrs, _ in page.tags)
    assert not any(name.startswith("on") for _, attrs, _ in page.tags for name in attrs)


def test_text_is_escaped():
    evil = "<b>&\"'</b><script>"
    v = pt.dvector(evil)
    final, _ = scan(lambda c, r: (c * r, c), pt.ones(()), v, name=evil)
    actual = explain([v], final, name=evil)
    page = Page(actual._repr_html_())
    assert not page.all("b") and not page.all("script")
    assert sum(evil in text for text, _ in page.texts) >= 3  # the title, the figure, the program


def test_the_notebook_shows_the_body_of_the_page(tmp_path):
    actual = explained("recurrence")
    actual.to_html(tmp_path / "page.html")
    body = actual._repr_html_()
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"<body>{body}</body>" in page
    # Its style reaches nothing else in the notebook.
    style = body.partition("<style>")[2].partition("</style>")[0]
    rules = [rule.rpartition("}")[2].strip() for rule in style.split("{")[:-1]]
    selectors = [one for rule in rules if not rule.startswith("@") for one in rule.split(",")]
    assert len(selectors) > 10 and all(".loopax-explanation" in one for one in selectors)


def test_bars_are_as_long_as_the_counts():
    actual = explained("nested")
    page = Page(actual._repr_html_())
    rows = [actual.counts_read, *(stage.counts for stage in actual.stages)]
    most = max(c.outside + c.inside for c in rows)
    widths = [attrs["style"] for attrs in page.all("span") if "style" in attrs]
    expected = [f"width:{100 * n / most:.1f}%" for c in rows for n in (c.outside, c.inside)]
    assert widths == expected
    cells = [text for text, at in page.texts if at[-2:] == ("tr", "td")]
    assert cells == [str(n) for c in rows for n in c]


def test_texts_of_all_stages_are_there():
    actual = explained("stopping")
    texts = [text for text, at in Page(actual._repr_html_()).texts if at[-1:] == ("pre",)]
    graphs = [actual.read, *(stage.after for stage in actual.stages)]
    assert texts == [actual.text(graph) for graph in graphs] and len(texts) > 1


def test_a_stage_draws_what_it_changed():
    loops = [scan(lambda c, r, f=f: (f(c * r), None), s, x)[0] for f in (pt.sin, pt.tanh)]
    graph = FunctionGraph([x, s], loops, clone=True)
    read = thaw(graph)

    def second_squared(graph):
        node = graph.outputs[1].owner
        body = thaw(node.op.fgraph)
        body.replace(body.outputs[0], body.outputs[0] ** 2)
        graph.replace(node.outputs[0], node.op.with_body(body.freeze())(*node.inputs))

    actual = Explanation("program", read, tuple(stages(graph, [second_squared])))
    before, after = actual._repr_html_().split("</summary>")[1:]
    assert before.count("<svg") == 2
    page = Page(after.partition("</details>")[0])
    (title,) = [text for text, at in page.texts if at[-1:] == ("figcaption",)]
    assert title.endswith("3 ops") and len(page.all("svg")) == 1


def test_a_body_of_too_many_ops_is_not_drawn(monkeypatch):
    monkeypatch.setattr(drawing, "MOST_BOXES", 3)
    actual = explained("recurrence")
    page = Page(lowered_part(actual._repr_html_()))
    assert not page.all("svg") and len(page.all("figure")) == actual.counts_lowered.loops
    assert any("Too many ops" in text for text, _ in page.texts)


# -- drawings ----------------------------------------------------------------------------------------


def boxes(op):
    """The labels of a drawing's boxes, by kind, and the number of its edges."""
    page = Page(drawing.drawing(op))
    actual = {}
    kinds = [attrs["class"] for attrs in page.all("g")]
    labels = [text for text, at in page.texts if at[-1:] == ("text",)]
    for kind, label in zip(kinds, labels, strict=True):
        actual.setdefault(kind, []).append(label)
    return actual, len(page.all("path"))


def op_of(inputs, output):
    graph = FunctionGraph(inputs, [output], clone=True)
    (node,) = [node for node in graph.apply_nodes if isinstance(node.op, Scan | Cond)]
    return node.op


def test_a_step():
    actual, n_edges = boxes(op_of([x, s, a], scan(lambda c, r: (pt.sin(c * a), r), s, x)[0]))
    assert actual == {
        "in": ["x0", "s0", "c0"],  # nobody reads the index
        "op": ["mul", "sin"],
        "out": ["next s0", "trace 0"],
    }
    assert n_edges == 5


def test_boxes_stand_below_one_another_and_arcs_go_down_to_their_readers():
    page = Page(drawing.drawing(op_of([x, s, a], scan(lambda c, r: (pt.sin(c * a), r), s, x)[0])))
    (svg,) = page.all("svg")
    boxes = [{k: float(v) for k, v in attrs.items()} for attrs in page.all("rect")]
    for upper, lower in pairwise(boxes):
        assert upper["y"] + upper["height"] < lower["y"] and upper["x"] == lower["x"]
    for box in boxes:
        assert box["x"] + box["width"] <= float(svg["width"])
        assert box["y"] + box["height"] <= float(svg["height"])
    middles = [box["y"] + box["height"] / 2 for box in boxes]
    arcs = [
        (middles.index(float(start)), middles.index(float(end)))
        for path in page.all("path")
        for start, end in re.findall(r"^M\S+ (\d+)A.* (\d+)$", path["d"])
    ]
    # x0, s0, c0, mul, sin, next s0, trace 0
    assert sorted(arcs) == [(0, 6), (1, 3), (2, 3), (3, 4), (4, 5)]


def test_constants_are_written_into_ops_and_outputs():
    flags = scan(lambda c, r: (c - 2.0, r, np.bool_(False)), s, x)[0]
    actual, _ = boxes(op_of([x, s], flags))
    assert actual["op"] == ["sub(·, 2.0)"]
    assert actual["out"] == ["next s0", "trace 0", "stop = False"]


def test_branches():
    op = op_of([a, s], cond(a > 0, lambda: pt.sin(s), lambda: s))
    actual, _ = boxes(op)
    assert actual == {"in": ["in 0"], "op": ["sin"], "out": ["then 0", "else 0"]}


def test_a_loop_in_a_loop_is_marked_with_its_number():
    def outer(c, r):
        return fori_loop(0, 2, lambda i, d: d * r, c), None

    op = op_of([x, s], scan(outer, s, x)[0])
    actual, _ = boxes(op)
    (label,) = actual["loop"]
    assert label.startswith("#1 Scan")
    graph = FunctionGraph([x, s], [scan(outer, s, x)[0]], clone=True)
    assert [one.number for top in bodies(graph) for one in top.flat()] == ["1", "1.1"]


def test_a_node_of_a_step_is_drawn_once():
    # In PyTensor 3.0 a frozen graph has one node for two equal ones, and lists it twice.
    loop = While.from_body([s], [], [pt.sin(s) + pt.sin(s)], s > 3.0).op
    actual, _ = boxes(loop)
    assert len(actual["op"]) == len(loop.fgraph.apply_nodes)
