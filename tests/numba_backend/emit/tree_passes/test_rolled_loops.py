"""The lengths of short inner loops are hidden from LLVM, which would unroll them into scalar code."""

import re

import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import scan
from tests.numba_backend.agreement import assert_agrees

RNG = np.random.default_rng(0)

# For a matrix ``a`` of n x n; the lengths 0 to 99 whose innermost loop is hidden.
PROGRAMS = {
    "a sum in each row": (lambda a: a.sum(axis=1), range(9, 64)),
    "a product": (lambda a: a * a[0], range(9, 48)),
    "a quotient": (lambda a: a / a[:, :1], range(9, 64)),
    "roots": (lambda a: pt.sqrt(abs(a)).sum(axis=1), range(9, 64)),
    "functions": (lambda a: abs(a) ** a[:, :1], ()),
    "a sum alone": (lambda a: a[0].sum(), range(16, 80)),
    "a running sum": (lambda a: pt.cumsum(a[0]), ()),
    "a product alone": (lambda a: a[0] * a[1], ()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lengths_are_hidden_where_that_is_faster(name):
    build, hidden = PROGRAMS[name]
    for n in (8, 9, 15, 16, 47, 48, 63, 64, 79, 80):
        a = pt.matrix("a", shape=(n, n))
        run = assert_agrees([a], [build(a)], [RNG.normal(size=(n, n))], native=False)
        assert (f"range(hidden({n}))" in run.source) == (n in hidden), (n, run.source)


def test_the_loop_over_steps_is_not_hidden():
    """Nor is a loop around another one; a loop in the function of a repeated region is."""
    a, s = pt.matrix("a", shape=(20, 20)), pt.matrix("s", shape=(20, 20))
    out, _ = scan(lambda s, _: (s / (1.0 + (a * s**2).sum(axis=1) ** 2), None), s, length=20)
    run = assert_agrees([a, s], [out], [RNG.normal(size=(20, 20)), RNG.normal(size=(20, 20))])
    loops = re.findall(r"^( *)for \w+ in range\((\w+)", run.source, re.MULTILINE)
    assert loops[0] == ("    ", "20")
    assert {text for indent, text in loops if len(indent) == 12} == {"hidden"}
    assert {text for indent, text in loops if len(indent) == 8} == {"20"}


@pytest.mark.parametrize(("n_products", "is_hidden"), [(1, False), (2, False), (5, True)])
def test_many_loops_around_hidden_ones_are_hidden_too(n_products, is_hidden):
    """LLVM would copy the inner loop for each of the eight rows, and take 10 ms for each copy."""
    s = pt.tensor3("s", shape=(n_products, 8, 12))
    a = pt.matrix("a", shape=(8, 12))

    def step(s, _):
        return pt.stack([pt.tanh(s[k].sum()) * a + s[k] for k in range(n_products)]), None

    out, _ = scan(step, s, length=20)
    values = [RNG.normal(size=v.type.shape) for v in (a, s)]
    source = assert_agrees([a, s], [out], values, native=False).source
    assert "range(hidden(12))" in source
    assert ("range(hidden(8))" in source) == is_hidden, source


def test_functions_of_a_matrix_of_unknown_shape_have_one_loop():
    """Rows of 20 elements would end with four that fill no vector."""
    a = pt.matrix("a")
    run = assert_agrees([a], [pt.exp(-a)], *[[RNG.normal(size=(n, n))] for n in (0, 1, 3, 20)])
    assert run.source.count("for ") == 1


@pytest.mark.parametrize("n", [8, 9, 31, 32])
def test_functions_of_short_rows_have_a_loop_of_their_own(n):
    """A sum of exponentials over rows of 20 would compute four of each row without vectors."""
    a = pt.matrix("a", shape=(n + 1, n))
    out = pt.exp(a - a[:, :1]).sum(axis=1)
    run = assert_agrees([a], [out], [RNG.normal(size=(n + 1, n))], native=False)
    assert (f"in range({n * (n + 1)})" in run.source) == (8 < n < 32), run.source


def test_the_index_of_a_backward_loop_is_hidden():
    """LLVM would take the negative stride of the rows that it reads for an overlap with what it writes."""
    x, s = pt.matrix("x"), pt.vector("s")
    for reverse in (False, True):
        out, _ = scan(lambda s, x: (pt.exp(-s) * x, None), s, x, reverse=reverse)
        run = assert_agrees(
            [x, s], [out], *[[RNG.normal(size=(k, 3)), RNG.normal(size=3)] for k in (0, 1, 4)]
        )
        assert ("hidden_step(" in run.source) == reverse


def test_the_index_of_a_backward_loop_of_scalars_is_not_hidden():
    """Its step has no loop that would gain, and to hide the index costs 5 % of a GARCH gradient."""
    x, s = pt.vector("x"), pt.scalar("s")
    out, _ = scan(lambda s, x: (pt.exp(-s) * x, None), s, x, reverse=True)
    run = assert_agrees([x, s], [out], [RNG.normal(size=4), 0.3])
    assert "hidden_step(" not in run.source and "- i" in run.source
