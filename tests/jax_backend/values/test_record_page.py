"""A record of watched values as a page."""

import re
from pathlib import Path
from xml.etree import ElementTree

import jax
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax.jax_backend.values.record import Record, Rows


def record_of(**values: object) -> Record:
    """Values by name, one loop around them."""
    rows = [Rows(np.asarray(v), np.arange(len(v))[:, None], None) for v in values.values()]  # type: ignore[arg-type]
    return Record(tuple(values), rows)


def drawings(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.S)]


def lines(drawing: ElementTree.Element) -> list[str]:
    return [p.attrib["d"] for p in drawing.iter("path") if p.attrib.get("class") != "axis"]


def test_the_step_that_fails_is_marked(tmp_path: Path) -> None:
    r = pt.dvector("r")

    def step(h, x):
        h = loopax.watch(h - x, "h")
        return loopax.watch(pt.sqrt(h) + h, "root"), None

    f = loopax.jaxify([r], loopax.scan(step, 10.0, r)[0])
    _, record = loopax.watched(f)(np.array([1.0, 2.0, 30.0, 1.0]))
    record.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<b>root</b> is the first that is not finite: step 2, nan." in page
    h, root = drawings(page)
    (mark,) = (g for g in root.iter("g") if g.attrib["class"] == "mark")
    assert mark[1].text == "step 2: nan"
    # Rows 0 and 1 are drawn; 2 and 3 are a gap, and the mark stands at the third of four rows.
    (line,) = lines(root)
    assert line.count("M") == 1 and line.count("L") == 1
    left, right = (float(re.findall(r"[\d.]+", lines(h)[0])[k]) for k in (0, -2))
    x = float(mark[0].attrib["x1"])
    assert line.split("L")[1].split(" ")[0] < mark[0].attrib["x1"] and left < x <= right + 1


def test_breakpoints_end_a_record() -> None:
    a = pt.dscalar("a")

    def step(x, _):
        x = loopax.watch(a * x, "x")
        loopax.breakpoint_if(x > 3.0)
        return x, None

    f = loopax.jaxify([a], loopax.scan(step, 1.0, length=9)[0])
    _, record = loopax.watched(f)(2.0)
    assert record.stop == (1,)
    page = record._repr_html_()
    assert "The record ends at a breakpoint: step 1." in page and ">breakpoint<" in page
    assert "Every value is finite." in page
    _, record = loopax.watched(f)(0.5)
    assert record.stop is None and "breakpoint" not in record._repr_html_()


def test_long_values_are_drawn_by_their_extremes() -> None:
    values = np.sin(np.arange(100_000.0))
    values[70_123], values[40_000] = 17.0, np.nan
    (drawing,) = drawings(record_of(s=values)._repr_html_())
    (line,) = lines(drawing)
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", line)]
    assert len(heights) < 1300 and line.count("M") == 2
    assert heights.count(min(heights)) == 1  # the one extreme of 100,000 rows is on the line
    assert "step 40000: nan" in ElementTree.tostring(drawing, encoding="unicode")


def test_entries_axes_and_types() -> None:
    matrix = np.zeros((4, 3, 3))
    matrix[2, 2, 1] = np.inf
    page = record_of(
        m=matrix, k=np.array([1, 5, 9]), flag=np.array([True, False]), z=np.array([1 + 2j, 3 - 1j]),
        wide=np.array([1e-3, 1.0, 1e300]), nothing=np.zeros((0, 2)), one=np.array([np.nan]),
    )._repr_html_()  # fmt: skip
    m, k, flag, z, wide, one = drawings(page)
    assert len(lines(m)) == 5 and "step 2: inf at [2, 1]" in ElementTree.tostring(m, "unicode")
    assert "<b>one</b> is the first that is not finite: step 0, nan." in page
    assert len(lines(k)) == len(lines(flag)) == 1 and len(lines(z)) == 2
    assert page.count("logarithmic axis") == 1
    # The logarithm of 1 is at a hundredth of the way from 1e-3 to 1e300.
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", lines(wide)[0])]
    share = (heights[0] - heights[1]) / (heights[0] - heights[2])
    assert abs(share - 3 / 303) < 2e-3
    assert lines(one) == [""] and "0 rows of float64[2]" in page


@pytest.mark.parametrize("values", [np.full(3, np.inf), np.full(3, 1.7e308), -np.full(3, 1e-310)])
def test_numbers_at_the_ends_of_the_floats(values: np.ndarray) -> None:
    (drawing,) = drawings(record_of(x=values)._repr_html_())
    assert "nan " not in lines(drawing)[0] and "inf " not in lines(drawing)[0]


def test_names_are_escaped_and_batches_say_what_to_do() -> None:
    page = record_of(**{"<b>&": np.ones(3)})._repr_html_()
    assert "<b>&lt;b&gt;&amp;</b>" in page and len(drawings(page)) == 1
    x = pt.dvector("x")
    f = loopax.jaxify([x], loopax.scan(lambda s, x: (loopax.watch(s + x, "s"), None), 0.0, x)[0])
    _, record = jax.vmap(loopax.watched(f))(np.ones((2, 3)))
    assert not record.is_known and "take one row" in record._repr_html_()
    row = jax.tree.map(lambda a: a[1], record)
    assert len(drawings(row._repr_html_())) == 1
    assert "Nothing is watched" in record_of()._repr_html_()
