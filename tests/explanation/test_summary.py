"""A large program opens with a summary: what is in it, and where its time is expected to go."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import explain, jaxify, scan
from loopax.explanation.expected_time import expected_times
from loopax.explanation.summary import MOST_OPS, summary
from tests.support.compare import imported

x, y, m = pt.dvector("x"), pt.dvector("y"), pt.dmatrix("m")
n = pt.lscalar("n")


def long(n=MOST_OPS):
    """A loop and so many ops outside of it, which no pass takes away."""
    out = scan(lambda c, r: (pt.sin(c * r), None), pt.ones(()), x, name="step")[0]
    for k in range(n // 2 + 1):
        out = pt.cos(out) + (k + 2.0)
    return out


def test_a_large_program_opens_with_its_summary_and_folds_the_rest():
    actual = explain([x], long(), name="mine")
    text = str(actual)
    assert actual.is_large and actual.summary in text
    first, *_, last = text.split("\n\n")
    assert first.startswith("== mine: 1 loop, ") and "1 Scan{step}: length of x steps" in first
    assert "(test_summary.py:" in first
    assert last.startswith("== folded ==")
    assert "return cos" not in text and text.count("\n") < 40 < actual.full.count("\n")
    # A line for each pass, and nothing else is lost: the whole text is as it is of small programs.
    for name in ["as read", *(stage.name for stage in actual.stages)]:
        assert f"\n{name}: 1 loop, " in text
    assert actual.full.startswith("== as read: 1 loop, ")
    assert actual.text(actual.lowered) in actual.full


def test_a_small_program_is_shown_whole():
    actual = explain([x], long(10))
    assert not actual.is_large and str(actual) == actual.full


@pytest.mark.slow
def test_what_was_chosen_is_in_the_summary():
    f = jaxify([x], long(), loops="auto")
    assert "nothing so far" in explain(f).summary
    f(np.ones(300))
    assert "so far it ran as" not in str(explain(f))
    (line,) = explain(f).summary.partition("what was chosen:\n")[2].splitlines()
    assert line.strip() == explain(f).remarks[0] and "for shapes (300,)" in line


def test_the_parts_of_a_program_with_shared_variables_are_lines():
    data = pytensor.shared(np.linspace(0.0, 1.0, 500), name="data")
    followed = data
    for _ in range(6):
        followed = pt.exp(pt.sin(followed) * 0.5)
    said = str(explain(jaxify([x], long() + (x[0] * followed).sum())))
    _, _, part = said.partition("== in two parts ==\n")
    assert part.startswith("once for each value of data: 0 loops, ")
    assert "\nat each call: 1 loop, " in part


def test_the_page_opens_with_it_and_folds_the_drawings():
    page = explain([x], long())._repr_html_()
    before, actual, after = page.partition('<pre class="summary">')
    assert actual and "<table" not in before
    assert "where time is expected" in after.partition("</pre>")[0]
    lowered = page.partition('<section class="lowered">')[2].partition("</section>")[0]
    assert lowered.strip().startswith("<details><summary>") and lowered.count("<svg") == 1
    assert (
        "summary"
        not in explain([x], long(10))
        ._repr_html_()
        .partition("<details>")[0]
        .partition("<h2>")[2]
        .partition("<h3>")[0]
    )


# -- where time is expected --------------------------------------------------------------------------


def shares(graph):
    times = expected_times(graph)
    total = sum(times.values())
    return {str(node.op): time / total for node, time in times.items()}


@pytest.mark.parametrize("n", [10, 100_000])
def test_steps_count(n):
    rows = pt.tensor("rows", dtype="float64", shape=(n,))
    loop = scan(lambda c, r: (pt.sin(c * r), None), pt.ones(()), rows, name="step")[0]
    graph = imported([rows, m], [loop, pt.tanh(pt.specify_shape(m, (100, 100)))]).graph
    actual = shares(graph)
    assert (actual["Scan{step}"] > 0.9) == (n > 10)
    assert (actual["Tanh"] > 0.8) == (n == 10)


def test_rows_have_the_lengths_of_what_a_loop_is_given():
    def matrix(k):
        rows = pt.tensor("rows", dtype="float64", shape=(7, k))
        loop = scan(lambda c, r: (c + pt.exp(r).sum(), None), pt.zeros(()), rows, name="step")[0]
        times = expected_times(imported([rows], [loop]).graph)
        return sum(times.values())

    assert 500 < matrix(100_000) / matrix(100) < 1000  # the ops of a step cost something besides


def test_factorizations_cost_the_cube():
    def times(n):
        square = pt.tensor("square", dtype="float64", shape=(n, n))
        return sum(expected_times(imported([square], [pt.linalg.det(square)]).graph).values())

    assert 900 < times(1000) / times(100) <= 1000


def test_steps_in_words():
    loops = [
        scan(lambda c, _: (c * 0.3, None), pt.ones(()), length=n - 2, name="some")[0],
        scan(lambda c, r: (c * r, None), pt.ones(()), x[x > 0], name="masked")[0],
        scan(lambda c, _: (c * 0.5, None), pt.ones(()), length=7, name="seven")[0],
        scan(lambda c, _: (c * 0.5, c, c < 1e-3), pt.ones(()), length=90, name="stopping")[0],
    ]
    said = summary(imported([x, n], loops).graph, ["native"])
    assert "Scan{some}: n - 2 steps, " in said
    assert "Scan{masked}: steps known when it runs, " in said
    assert "Scan{seven}: 7 steps, " in said
    assert "Scan{stopping, stops}: at most 90 steps, " in said
    assert said.endswith("what was chosen:\n  native")


def test_loops_inside_of_loops_are_numbered():
    def step(c, r):
        inner = scan(lambda d, s: (d + s * r, None), pt.zeros(()), y, name="inner")[0]
        return c + inner, None

    said = summary(imported([x, y], [scan(step, pt.zeros(()), x, name="outer")[0]]).graph, [])
    lines = said.splitlines()
    assert lines[1].startswith("  1 Scan{outer}: length of x steps, ")
    assert lines[2].startswith("    1.1 Scan{inner}: ")
