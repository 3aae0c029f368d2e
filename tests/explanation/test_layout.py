"""Boxes that do not overlap, in layers that every edge goes down."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopax.explanation.layout import layout

HEIGHT = 20.0


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 12))
    firsts = draw(st.integers(0, n - 1))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
    edges = [(a, b) for a, b in edges if a < b and b >= firsts]
    lasts = {k for k in range(firsts, n) if k % 2 and all(a != k for a, _ in edges)}
    widths = draw(st.lists(st.floats(5, 200), min_size=n, max_size=n))
    return widths, edges, set(range(firsts)), lasts


@settings(max_examples=60)
@given(graphs())
def test_any_graph(graph):
    widths, edges, first, last = graph
    found = layout(widths, HEIGHT, edges, first, last)
    assert found == layout(widths, HEIGHT, edges, first, last)
    layers = {}
    for k, (x, y) in enumerate(found.places):
        assert widths[k] / 2 <= x <= found.width - widths[k] / 2
        assert HEIGHT / 2 <= y <= found.height - HEIGHT / 2
        layers.setdefault(y, []).append((x, widths[k]))
    for layer in layers.values():
        for (x, w), (u, v) in pairwise(sorted(layer)):
            assert x + w / 2 < u - v / 2, "boxes overlap"
    for (a, b), route in zip(edges, found.routes, strict=True):
        ys = [found.places[a][1], *(y for _, y in route), found.places[b][1]]
        assert all(y + HEIGHT < z for y, z in pairwise(ys)), "an edge does not go down"
        assert all(0 <= x <= found.width for x, _ in route)
    tops, bottoms = {found.places[k][1] for k in first}, {found.places[k][1] for k in last}
    assert tops <= {min(layers)} and bottoms <= {max(layers)}


def test_the_first_are_on_top_and_the_last_at_the_bottom():
    #  0   1
    #  2   |      1 passes the layers of 2 and 3
    #  3   |
    #  4   5
    found = layout([30.0] * 6, HEIGHT, [(0, 2), (2, 3), (3, 4), (1, 5)], {0, 1}, {4, 5})
    ys = [y for _, y in found.places]
    assert ys[0] == ys[1] < ys[2] < ys[3] < ys[4] == ys[5]
    assert [len(route) for route in found.routes] == [0, 0, 0, 2]


def test_crossings_go():
    # 0-5, 1-4, 2-3 cross each other as they are given.
    found = layout([30.0] * 6, HEIGHT, [(0, 5), (1, 4), (2, 3)], {0, 1, 2}, {3, 4, 5})
    xs = [x for x, _ in found.places]
    assert sorted(range(3), key=lambda k: xs[k]) == sorted(range(3), key=lambda k: xs[5 - k])
    assert all(abs(xs[a] - xs[b]) < 1 for a, b in [(0, 5), (1, 4), (2, 3)])


def test_edges_of_one_box_share_their_way():
    found = layout([30.0] * 4, HEIGHT, [(0, 1), (1, 2), (2, 3), (0, 2), (0, 3)], {0})
    short, long = found.routes[3:]
    assert len(short) == 1 and long[:1] == short


def test_what_reads_nothing_stands_above_its_reader():
    found = layout([30.0] * 5, HEIGHT, [(0, 1), (1, 2), (2, 4), (3, 4)], {0}, ())
    ys = [y for _, y in found.places]
    assert ys[3] == ys[2]


def test_a_box_that_comes_before_what_it_reads():
    with pytest.raises(AssertionError, match="comes after"):
        layout([1.0, 1.0], HEIGHT, [(1, 0)])


def test_nothing():
    assert layout([], HEIGHT, []).places == []


def test_a_deep_graph_with_a_constant_that_all_read_takes_no_second():
    n = 400
    edges = [(k, k + 1) for k in range(n - 1)] + [(0, k) for k in range(2, n)]
    assert len(layout([30.0] * n, HEIGHT, edges, {0}).places) == n
