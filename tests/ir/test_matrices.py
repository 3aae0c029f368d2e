"""The shapes of results of matrix ops: what signatures say is what the ops compute."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor import linalg
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.lu import LU, LUFactor
from pytensor.tensor.linalg.decomposition.qr import QR
from pytensor.tensor.linalg.decomposition.svd import SVD
from pytensor.tensor.linalg.inverse import MatrixPinv

import loopax
from loopax import jaxify
from loopax.ir.matrices import sources_of_length
from loopax.ir.sizes import Dims
from tests.support.both_backends import NATIVE
from tests.support.forms import without_numba

PLAIN = Mode("py", None)
A, B, V = pt.dtensor3("a"), pt.dmatrix("b"), pt.dvector("v")
OF_ANY_SHAPE = {
    **{
        f"qr {mode} {pivoting}": QR(mode=mode, pivoting=pivoting)
        for mode in ("full", "economic", "r", "raw")
        for pivoting in (False, True)
    },
    "lu": LU(),
    "lu of rows": LU(permute_l=True),
    "lu with an order": LU(p_indices=True),
    "lu_factor": LUFactor(),
    "svd": SVD(full_matrices=True),
    "thin svd": SVD(full_matrices=False),
    "singular values": SVD(compute_uv=False),
    "pinv": MatrixPinv(hermitian=False),
}


@pytest.mark.both_stacks
@pytest.mark.parametrize("name", OF_ANY_SHAPE)
def test_a_signature_is_true_of_tall_and_wide_matrices(name):
    op, x = OF_ANY_SHAPE[name], pt.dmatrix("x")
    node = op.make_node(x)
    for shape in [(3, 5), (5, 3), (4, 4), (1, 3), (3, 1)]:
        cells = [[None] for _ in node.outputs]
        op.perform(node, [np.random.default_rng(0).normal(size=shape)], cells)
        for v, (value,) in zip(node.outputs, cells, strict=True):
            for axis, length in enumerate(value.shape):
                sources = sources_of_length(v, axis)
                assert sources
                assert length == min(shape[k] for _, k in sources)


def test_lengths_of_a_batch():
    factors, pivots = Blockwise(LUFactor())(A)
    dims = Dims()
    assert [dims.length(factors, k) for k in range(3)] == [dims.length(A, k) for k in range(3)]
    assert dims.length(pivots, 0) == dims.length(A, 0)
    assert dims.length(pivots, 1) == dims.clipped(False, dims.length(A, 1), dims.length(A, 2))


class Transposed(Op):
    gufunc_signature = "(m,n)->(n,m),(k)"

    def make_node(self, x):
        return Apply(self, [x], [pt.dmatrix(), pt.dvector()])

    def perform(self, node, inputs, outputs):
        raise NotImplementedError


def test_lengths_of_an_op_of_a_user():
    matrix, vector = Transposed()(B)
    dims = Dims()
    assert [dims.length(matrix, k) for k in (0, 1)] == [dims.length(B, k) for k in (1, 0)]
    assert sources_of_length(vector, 0) == []


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 5, 3), (2, 3, 3)])
@pytest.mark.parametrize("name", ["lu_factor", "qr raw True"])
def test_native_batches_of_tall_and_wide_matrices(name, shape):
    """PyTensor's signatures of both are of square matrices."""
    x = pt.dmatrix("x")
    value = np.random.default_rng(0).normal(size=shape)
    f = jaxify([x], OF_ANY_SHAPE[name].make_node(x).outputs, backend=NATIVE)
    actual = loopax.vmap(f)(value)
    for rows in zip(value, *actual, strict=True):
        for one, expected in zip(rows[1:], f(rows[0]), strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-12)


STEPS = {
    "solve": lambda a, b, v: linalg.solve(a, b),
    "lu_solve": lambda a, b, v: linalg.lu_solve(linalg.lu_factor(a), b),
    "lu": lambda a, b, v: linalg.lu(a)[1],
    "qr": lambda a, b, v: linalg.qr(a, mode="economic")[0],
    "svd": lambda a, b, v: linalg.svd(a, compute_uv=False),
    "kron": lambda a, b, v: linalg.kron(a, b),
    "block_diag": lambda a, b, v: linalg.block_diag(a, b),
    "expm": lambda a, b, v: linalg.expm(a),
    "sort": lambda a, b, v: pt.sort(a, axis=0),
    "searchsorted": lambda a, b, v: pt.searchsorted(v, a),
    "a gather": lambda a, b, v: a[:, [2, 0]],
    "repeat": lambda a, b, v: pt.repeat(v, 3),
}


@without_numba
@pytest.mark.parametrize("name", STEPS)
def test_a_loop_without_steps(name, form):
    """Its trace has no rows, of the shape that a row would have; so have gradients."""
    out = pytensor.scan(STEPS[name], A, non_sequences=[B, V], return_updates=False)
    values = [np.stack([2 * np.eye(3), 3 * np.eye(3)]), np.eye(3), np.arange(3.0)]
    plain = pytensor.function([A, B, V], out, mode=PLAIN, on_unused_input="ignore")
    empty = [values[0][:0], *values[1:]]
    assert jaxify([A, B, V], out, **form)(*empty).shape == (0, *plain(*values).shape[1:])
    if out.type.dtype == "float64":
        slopes = loopax.grad(jaxify([A, B, V], out.sum(), **form), argnums=(0, 1, 2))(*empty)
        assert [x.shape for x in slopes] == [x.shape for x in empty]


ROWS = {
    "sort": lambda m: pt.sort(m, axis=1),
    "argsort": lambda m: pt.argsort(m, axis=0),
    "searchsorted": lambda m: pt.searchsorted(pt.arange(3.0), m),
    "lu": lambda m: linalg.lu(m)[2],
    "svd": lambda m: linalg.svd(m, compute_uv=False),
    "block_diag": lambda m: linalg.block_diag(m, m),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_native_batch_without_rows(name):
    out = ROWS[name](B)
    f = loopax.vmap(jaxify([B], out, backend=NATIVE))
    assert f(np.zeros((0, 3, 4))).shape == (
        0,
        *jaxify([B], out, loops="xla")(np.zeros((3, 4))).shape,
    )


def test_a_native_batch_without_rows_of_a_count_that_rows_share():
    """The pullback of a truncated loop fills up as many rows as the sequence has."""
    start = pt.dscalar("start")
    last = pytensor.scan(
        lambda x, state: pt.sin(state) + x * start,
        V,
        outputs_info=start,
        truncate_gradient=2,
        return_updates=False,
    )[-1]
    f = loopax.vmap(jaxify([V, start], pytensor.grad(last, [V, start]), backend=NATIVE))
    assert [x.shape for x in f(np.zeros((0, 5)), np.zeros(0))] == [(0, 5), (0,)]
