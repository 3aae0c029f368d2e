"""Colourings: products from which every entry of the matrix can be read, and few of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from loopax.extensions.sparse_jacobians.colouring import by_columns, by_rows, symmetric


def band(n, half):
    i, j = np.indices((n, n))
    return np.abs(i - j) <= half


def arrow(n):
    actual = np.eye(n, dtype=bool)
    actual[-1] = actual[:, -1] = True
    return actual


def read(of, products):
    """The dense matrix that the entries say."""
    data = products[of.colours, of.elements]
    return sparse.csr_matrix((data, of.indices, of.indptr), shape=of.shape).toarray()


@st.composite
def patterns(draw, square=False):
    seed, density = draw(st.integers(0, 2**31)), draw(st.floats(0.0, 0.6))
    n, m = draw(st.integers(0, 12)), draw(st.integers(0, 12))
    return np.random.default_rng(seed).random((n, n if square else m)) < density


@settings(max_examples=60)
@given(patterns())
def test_every_entry_is_read(pattern):
    a = np.where(pattern, np.random.default_rng(1).normal(size=pattern.shape), 0.0)
    columns, rows = by_columns(sparse.csr_matrix(pattern)), by_rows(sparse.csr_matrix(pattern))
    np.testing.assert_array_equal(read(columns, columns.seeds @ a.T), a)
    np.testing.assert_array_equal(read(rows, rows.seeds @ a), a)
    densest = pattern.sum(axis=1).max(initial=0)
    assert densest <= columns.passes <= pattern.shape[1]


@settings(max_examples=100)
@given(patterns(square=True))
def test_every_entry_of_a_symmetric_matrix_is_read(pattern):
    pattern = pattern | pattern.T
    a = np.where(pattern, np.random.default_rng(1).normal(size=pattern.shape), 0.0)
    a = a + a.T
    actual = symmetric(sparse.csr_matrix(pattern))
    np.testing.assert_array_equal(read(actual, actual.seeds @ a), a)
    assert actual.passes <= by_columns(sparse.csr_matrix(pattern)).passes


@pytest.mark.parametrize("half", [0, 1, 2, 5])
def test_a_band_of_any_length_needs_its_width(half):
    pattern = sparse.csr_matrix(band(60, half))
    assert symmetric(pattern).passes == by_columns(pattern).passes == 2 * half + 1


def test_an_arrow_needs_two_where_columns_alone_need_all():
    pattern = sparse.csr_matrix(arrow(30))
    assert by_columns(pattern).passes == 30
    assert symmetric(pattern).passes == 2


def test_a_full_matrix_needs_all():
    full = sparse.csr_matrix(np.ones((300, 300), dtype=bool))
    assert by_columns(full).passes == symmetric(full).passes == 300
