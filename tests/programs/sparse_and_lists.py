"""Sparse matrices (issue 4; a constant one must run now) and typed lists (issue 3)."""

import numpy as np
import pytensor.sparse as ps
import pytensor.tensor as pt
import scipy.sparse
from pytensor import typed_list as tl

from .record import program, scan

DENSE = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
CSR = scipy.sparse.csr_matrix(DENSE)
CSC = scipy.sparse.csc_matrix(DENSE)
X3 = np.array([0.5, -1.0, 2.0])


@program(X3, thread="pytensor 273", grad_wrt=("x",))
def constant_design_matrix():
    x = pt.vector("x")
    return [x], ps.structured_dot(ps.as_sparse_variable(CSR), x[:, None])[:, 0]


@program(X3, thread="pytensor 273", grad_wrt=("x",))
def constant_in_a_dense_dot():
    x = pt.vector("x")
    return [x], ps.dot(ps.as_sparse_variable(CSC), x[:, None])


@program(CSR, X3, thread="pytensor 278", issue=4, grad_wrt=("x",))
def sparse_input():
    a, x = ps.csr_matrix("a", dtype="float64"), pt.vector("x")
    return [a, x], ps.structured_dot(a, x[:, None])


@program(CSC, thread="pytensor 278", issue=4)
def dense_of_a_sparse_input():
    a = ps.csc_matrix("a", dtype="float64")
    return [a], ps.dense_from_sparse(a.T) * 2.0


@program(DENSE, X3, thread="pytensor 1155", issue=4, grad_wrt=("x",))
def dense_made_sparse():
    d, x = pt.matrix("d"), pt.vector("x")
    return [d, x], ps.structured_dot(ps.csr_from_dense(d), x[:, None])


@program(X3, thread="pytensor 191", issue=3)
def list_made_and_read():
    x = pt.vector("x")
    made = tl.make_list([x, x * 2.0, x + 1.0])
    return [x], [made[1], tl.length(made)]


@program([X3, 2.0 * X3], X3, thread="pytensor 278", issue=3)
def list_as_an_input():
    xs = tl.TypedListType(pt.dvector)("xs")
    x = pt.vector("x")
    longer = tl.append(xs, x)
    return [xs, x], [longer[0] + longer[2], tl.length(longer)]


@program([X3, 2.0 * X3], thread="pytensor 278", issue=3)
def list_of_unequal_lengths_reversed():
    xs = tl.TypedListType(pt.dvector)("xs")
    return [xs], tl.reverse(xs)[0].sum()


@program([X3, 2.0 * X3, X3 - 1.0], thread="pytensor 191", issue=3)
def list_read_in_a_loop():
    xs = tl.TypedListType(pt.dvector)("xs")
    first = scan(
        lambda i, s, x: s + x[i],
        sequences=pt.arange(3),
        outputs_info=pt.zeros(()),
        non_sequences=[xs[1]],
    )
    return [xs], first[-1] + xs[2].sum()
