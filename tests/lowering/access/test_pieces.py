"""Pieces: what is said of the rows of a tensor, written back as a graph, has the values of the tensor."""

import random
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph

from loopax.ir import evaluate
from loopax.ir.sizes import DimExpr, Dims, Window
from loopax.lowering.access.pieces import Pieces
from loopax.lowering.access.row_pieces import ONE, Fill, Row, backwards
from tests.support.random_loops import RANDOM

x, y = pt.dmatrix("x"), pt.dmatrix("y")
ROWS = x.shape[0]


class _Tensors:
    """Matrices of two columns, each made of those before it by what gradients are made of."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.all: list[Any] = [pt.concatenate([x, x]), pt.concatenate([y, pt.ones((2, 2))])]
        for _ in range(8):
            self.all.append(self.next())

    def next(self) -> Any:
        rng, v, w = self.rng, self.rng.choice(self.all), self.rng.choice(self.all)
        zeros = pt.zeros((v.shape[0] + 2, 2))
        return rng.choice(
            [
                lambda: v[self.bound() : self.bound()],
                lambda: v[self.bound() : self.bound() : -1],
                lambda: v[::-1],
                lambda: pt.concatenate([v, w]),
                lambda: pt.concatenate([v[:1], v]),
                lambda: pt.set_subtensor(zeros[2:], v),
                lambda: pt.set_subtensor(zeros[:-2][::-1], v) if rng.random() < 0.5 else zeros,
                lambda: pt.inc_subtensor(pt.zeros_like(v)[::-1], v),
                lambda: pt.zeros_like(v) + v,
                lambda: v[rng.randint(-1, 1)][None],
            ]
        )()

    def bound(self) -> Any:
        return self.rng.choice([None, self.rng.randint(-3, 3), ROWS, ROWS - 1])


@pytest.mark.slow
@seed(1)
@RANDOM
@given(st.integers(0, 10**9))
def test_written_back(number):
    tensors = [v for k in range(4) for v in _Tensors(random.Random(number + k)).all]
    pieces = Pieces(Dims())
    rows = [pieces.rows(v) for v in tensors]
    again = [pieces.build(r, v) for r, v in zip(rows, tensors, strict=True)]
    turned = [pieces.build(backwards(r), v) for r, v in zip(rows, tensors, strict=True)]
    assert sum(a is not v for a, v in zip(again, tensors, strict=True)) > len(tensors) // 4
    for n, m in ((0, 0), (1, 2), (3, 1), (4, 4)):
        given_values = np.arange(2.0 * n).reshape(n, 2), -np.arange(2.0 * m).reshape(m, 2)
        for group in zip(tensors, again, turned, strict=True):
            graph = FunctionGraph([x, y], list(group), clone=True)
            try:
                wanted = evaluate(FunctionGraph([x, y], [group[0]], clone=True), *given_values)[0]
            except (ValueError, IndexError):
                continue  # of so few rows there is no such row
            for actual, value in zip(
                evaluate(graph, *given_values), (wanted, wanted, wanted[::-1]), strict=True
            ):
                np.testing.assert_array_equal(actual, value)


def test_what_is_joined():
    """Windows that continue one another are one, single rows have no direction, a row twice is a fill."""
    pieces = Pieces(Dims())
    v = pt.concatenate([x, x])
    assert pieces.rows(v[::-1][::-1]) == pieces.rows(v)
    (window,) = pieces.rows(pt.concatenate([x[:0], x]))
    assert window == Window(x, DimExpr(), pieces.dims.length(x))
    row = pt.dvector("row")
    (fill,) = pieces.rows(pt.concatenate([row[None], row[None]]))
    assert fill == Fill(row, ONE + 1)
    assert pieces.rows(row[None]) == (Row(row),)
    assert backwards((Row(row), Fill(row, ONE))) == (Fill(row, ONE + 1),)


def test_the_length_of_parts_that_are_joined_again_and_again():
    """Each of 60 stacks reads the one before twice: one by one, these would be 2**60 lengths."""
    v = pt.dvector("v")
    rows = v
    for _ in range(60):
        rows = pt.stack([rows, rows * 0.5]).sum(0)
    pieces = Pieces(Dims())
    assert pieces.length(pt.stack([rows, rows]), 1) == pieces.length(v, 0)
