"""What PyTensor infers about random matrix expressions, by our inference, against their values."""

import random
import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import explicit_graph_inputs

from loopax.lowering.canonical.matrix_properties import infer_sound_properties
from tests.every_op.record import PLAIN

assumptions = pytest.importorskip("pytensor.assumptions")  # PyTensor 3.0.1 infers nothing

X, V, T, Z = pt.dmatrix("x"), pt.dvector("v"), pt.dtensor3("t"), pt.zmatrix("z")
I3, ORDER = pt.arange(3), pt.as_tensor([2, 0, 1])
_DRAWN = np.random.default_rng(7)
VALUES = {
    X: _DRAWN.normal(size=(3, 3)),
    V: _DRAWN.normal(size=3),
    T: _DRAWN.normal(size=(3, 3, 3)),
    Z: _DRAWN.normal(size=(3, 3)) + 1j * _DRAWN.normal(size=(3, 3)),
}
EYE, ZEROS, CUBE = pt.eye(3), pt.zeros((3, 3)), pt.zeros((3, 3, 3))
MATRICES = [X, T, Z, EYE, pt.eye(2, 3), pt.eye(3, 2), pt.eye(3, k=1), pt.diag(V), ZEROS, CUBE]
MATRICES += [X @ X.T, Z @ Z.conj().T, Z @ Z.T, pt.tril(X), pt.triu(T), pt.tril(X, -1), V[:, None]]
MATRICES += [EYE[ORDER], pt.linalg.cholesky(X @ X.T + EYE), V[:, None] * EYE, pt.alloc(V[0], 3, 3)]
UNARY = [
    lambda a: -a,
    lambda a: pt.exp(a),
    lambda a: pt.sqr(a),
    lambda a: a * V,
    lambda a: a + 1,
    lambda a: a.mT,
    lambda a: a.T,
    lambda a: a.real,
    lambda a: a.imag,
    lambda a: a[::-1],
    lambda a: a[:2],
    lambda a: a[..., 1:, :2],
    lambda a: a[..., ORDER],
    lambda a: a[0],
    lambda a: pt.expand_dims(a, 1),
    lambda a: pt.stack([a, a], axis=-1),
    lambda a: a.reshape((-1, 3)),
    lambda a: pt.broadcast_to(a, (3,) + (3,) * a.ndim),
    lambda a: pt.linalg.inv(a),
    lambda a: pt.linalg.pinv(a),
    lambda a: a @ a.mT,
    lambda a: a + a.mT,
    lambda a: pt.set_subtensor(a[I3, I3], V),
    lambda a: pt.set_subtensor(a[..., I3, I3], V),
    lambda a: pt.set_subtensor(a[I3, :, I3], V),
    lambda a: pt.set_subtensor(a[:, 0], 2.0),
    lambda a: pt.inc_subtensor(a[..., :1, 1:], 2.0),
    lambda a: pt.inc_subtensor(a[1, 1], V[0]),
]
BINARY = [
    lambda a, b: a @ b,
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: pt.linalg.kron(a, b),
    lambda a, b: pt.linalg.block_diag(a, b),
    lambda a, b: pt.concatenate([a, b]),
    lambda a, b: pt.linalg.solve(a, b),
]


PROPERTIES = ["diagonal", "lower_triangular", "upper_triangular", "symmetric"]
PROPERTIES += ["positive_definite", "orthogonal"]


def expressions(seed, count):
    """``count`` expressions of matrices, with their values; those that PyTensor refuses are left out."""
    rng = random.Random(seed)
    while count:
        y = rng.choice(MATRICES)
        try:
            for _ in range(rng.randint(1, 3)):
                is_unary = rng.random() < 0.7
                y = (
                    rng.choice(UNARY)(y)
                    if is_unary
                    else rng.choice(BINARY)(y, rng.choice(MATRICES))
                )
            inputs = [v for v in explicit_graph_inputs([y]) if v in VALUES]
            f = pytensor.function(inputs, y, mode=PLAIN)
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of singular systems, which are left out
                value = np.asarray(f(*(VALUES[v] for v in inputs)))
        except (TypeError, ValueError, IndexError, NotImplementedError, AssertionError):
            continue  # LinAlgError is a ValueError
        if y.ndim >= 2 and value.size and np.isfinite(value).all():
            count -= 1
            yield y, value


def is_zero(a, value):
    return np.abs(a).max(initial=0) <= 1e-9 * max(1, np.abs(value).max())


def has_property(name, value):
    """Whether all matrices in ``value`` have the property of this name, by their entries."""
    off_diagonal = value * (1 - np.eye(*value.shape[-2:]))
    square = value.shape[-1] == value.shape[-2]
    adjoint = value.conj().mT
    match name:
        case "diagonal":
            return is_zero(off_diagonal, value)
        case "lower_triangular":
            return is_zero(np.triu(value, 1), value)
        case "upper_triangular":
            return is_zero(np.tril(value, -1), value)
        case "symmetric":
            if not square:  # a diagonal that is not square, of which nobody asks this
                return is_zero(off_diagonal, value)
            return is_zero(value - value.mT, value)
        case "positive_definite":
            return (
                square
                and is_zero(value - adjoint, value)
                and np.linalg.eigvalsh(value).min() > -1e-9
            )
        case "orthogonal":
            return square and np.allclose(adjoint @ value, np.eye(len(value.T)))
    return True


@pytest.mark.parametrize(
    ("seed", "count"), [(20261129, 150), pytest.param(20261130, 4_000, marks=pytest.mark.slow)]
)
def test_inferred_properties_hold(seed, count):
    n_inferred = 0
    for y, value in expressions(seed, count):
        graph = FunctionGraph(outputs=[y], clone=False)
        infer_sound_properties(graph)
        for name in PROPERTIES:
            key = getattr(assumptions, name.upper())
            if graph.assumption_feature.check(y, key):
                n_inferred += 1
                assert has_property(name, value), f"{name}: {pytensor.printing.pprint(y)}"
    assert n_inferred > count / 10
