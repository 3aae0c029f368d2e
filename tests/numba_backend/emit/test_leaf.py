"""Ops without a rule: PyTensor's conversions, Python where there is none, shapes that depend on values."""

import importlib
import re

import numba
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
import scipy.linalg
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch import numba_funcify
from pytensor.printing import Print
from pytensor.raise_op import Assert
from pytensor.tensor.elemwise import Elemwise
from pytensor.typed_list import TypedListType

import loopax
from loopax import jaxify
from loopax.base.errors import UnsupportedOpError
from loopax.numba_backend.callable.program import compile_program
from tests.numba_backend.agreement import assert_agrees
from tests.support.ops import SameType

x, s, n = pt.dvector("x"), pt.dscalar("s"), pt.lscalar("n")


class Destroys(SameType):
    destroy_map = {0: [0]}

    def perform(self, node, inputs, outputs):
        inputs[0][...] += 1
        outputs[0][0] = inputs[0]


class Reversed(SameType):
    view_map = {0: [0]}

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0][::-1]


class Fails(SameType):
    def perform(self, node, inputs, outputs):
        raise KeyError("no such thing")


class Beginnings(Op):
    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [TypedListType(pt.dvector)(), pt.lscalar()])

    def perform(self, node, inputs, outputs):
        (x,) = inputs
        outputs[0][0] = [x[:k].copy() for k in range(len(x))]
        outputs[1][0] = np.array(len(x))


class Odd(ps.UnaryScalarOp):
    def impl(self, x):
        return 2.0 * x + 1.0


odd = Elemwise(Odd(ps.upgrade_to_float, name="odd"))


@pytest.mark.slow
def test_what_runs_as_python_is_named():
    """Views and destroyed inputs leave the rest of the program as it is; also inside of a loop."""
    back = Reversed()(x)
    final, _ = loopax.scan(lambda c, e: (odd(c) + e, c), s, x)
    outputs = [Destroys()(x), x * 2, back, pt.set_subtensor(back[0], 7.0), *Beginnings()(x), final]
    with pytest.warns(UserWarning) as said:
        assert_agrees([x, s], outputs, [np.arange(3.0), 1.0], [np.zeros(1), 2.0])
    assert len(said) == 1
    message = str(said[0].message)
    assert all(f"class {c.__name__}" in message for c in (Destroys, Reversed, Beginnings, Elemwise))


def test_missing_conversions_are_refused_all_at_once():
    graph = FunctionGraph([x], [Destroys()(x), odd(Reversed()(x))])
    with pytest.raises(UnsupportedOpError, match="(?s)Destroys.*Reversed.*on_missing") as caught:
        compile_program(graph, on_missing="raise")
    assert len(caught.value.ops) == 3
    with pytest.raises(ValueError, match="'callback' or 'raise'"):
        compile_program(graph, on_missing="ignore")


def test_errors_in_python_and_native_ones_come_through():
    with pytest.warns(UserWarning, match="Fails"):
        run = compile_program(FunctionGraph([x], [Fails()(x)]))
    with pytest.raises(KeyError, match="no such thing"):
        run([1.0])
    run = compile_program(FunctionGraph([x], [Assert("x starts below 0")(x, x[0] >= 0) * 2]))
    np.testing.assert_array_equal(run([1.0])[0], [2.0])
    with pytest.raises(AssertionError, match="x starts below 0"):
        run([-1.0])


def test_printing(capfd):
    with pytest.warns(UserWarning, match="Print"):
        assert_agrees([x], [Print("look")(x) * 2], [np.ones(2)])
    assert "look" in capfd.readouterr().out


def test_a_graph_as_an_op():
    a, b = pt.dvector(), pt.dvector()
    product, total = OpFromGraph([a, b], [a * b, (a + b).sum()])(x, x + 1)
    assert_agrees([x], [product, total, pytensor.grad(product.sum(), x)], [np.arange(3.0)])


# -- shapes that depend on values ------------------------------------------------------------------


@pytest.mark.slow
def test_lengths_from_values():
    m, where = pt.dmatrix("m"), pt.matrix("where", dtype="bool")
    some, times = x[x > 1], pt.lvector("times")
    outputs = [
        pt.nonzero(x)[0], some, pt.set_subtensor(some, 0.0), pt.inc_subtensor(some, 2.0),
        pt.arange(n), pt.arange(x[0], x.max(), 0.5), pt.unique(x), pt.repeat(x, n), pt.repeat(x, times),
        pt.zeros((n, 2)), x[:n], pytensor.grad((some**2).sum(), x), m[where], pt.nonzero(where)[1],
        pt.set_subtensor(m[where], 1.0), m[where.nonzero()].sum(),
    ]  # fmt: skip
    case = [
        np.array([0.0, 1.0, 2.0, 2.0]),
        3,
        [1, 0, 2, 1],
        np.arange(9.0).reshape(3, 3),
        np.eye(3) > 0,
    ]
    assert_agrees([x, n, times, m, where], outputs, case)


@pytest.mark.slow
def test_traces_of_unknown_length():
    """Newton's method until it has converged; its steps are sorted, joined, summed, differentiated."""

    def newton(c, _):
        following = c - (c**2 - s) / (2 * c)
        return following, following, pt.abs(following - c) < 1e-8

    _, steps, _ = loopax.scan(newton, pt.constant(10.0, dtype="float64"), None, length=100)
    total, _ = loopax.scan(lambda c, e: (c * 0.5 + e, c), pt.constant(0.0, dtype="float64"), steps)
    outputs = [
        pt.sort(steps), pt.outer(steps, steps), pt.concatenate([steps, steps[::-1]]), total,
        pt.cumsum(steps), steps.mean(), steps.shape[0], steps[steps > 3], pt.argmax(steps),
        pytensor.grad(steps.sum(), s), pytensor.grad(total, s),
    ]  # fmt: skip
    assert_agrees([s], outputs, [2.0], [30.0])


@pytest.mark.parametrize("on_missing", ["callback", "raise"])
def test_the_advice_for_an_op_without_a_conversion_works(on_missing):
    class Tripled(ps.UnaryScalarOp):
        """Without even the name of a function of NumPy."""

        nfunc_spec = None

        def impl(self, x):
            return 3.0 * x

    class Turned(Reversed):
        pass

    tripled = Elemwise(Tripled(ps.upgrade_to_float, name="tripled"))
    y = tripled(2 * x) + Turned()(x)

    def f():
        return jaxify([x], y, backend="numba", on_missing=on_missing)(np.arange(3.0))

    said = UserWarning if on_missing == "callback" else UnsupportedOpError
    raises = pytest.warns if on_missing == "callback" else pytest.raises
    with raises(said, match=r"(?s)tripled.*Turned.*Register one with (\S+)\(OpClass\)") as caught:
        f()
    text = str(caught[0].message if on_missing == "callback" else caught.value)
    module, _, name = re.search(r"Register one with (\S+)\(", text)[1].rpartition(".")
    register = getattr(importlib.import_module(module), name)
    register(Tripled)(lambda op, **kwargs: (numba.njit(lambda x: 3.0 * x), None))
    register(Turned)(lambda op, **kwargs: (numba.njit(lambda x: x[::-1]), None))
    np.testing.assert_allclose(f(), [2.0, 7.0, 12.0])


def test_a_scalar_op_registered_where_it_is_not_asked_for_runs_as_python():
    class Halved(ps.UnaryScalarOp):
        nfunc_spec = None

        def impl(self, x):
            return x / 2

    numba_funcify.register(Halved)(lambda op, **kwargs: numba.njit(lambda x: x / 2))
    halved = Elemwise(Halved(ps.upgrade_to_float, name="halved"))
    with pytest.warns(UserWarning, match="register_funcify_and_cache_key"):
        f = jaxify([x], halved(x), backend="numba")
        np.testing.assert_allclose(f(np.arange(3.0)), [0.0, 0.5, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3), (3, 2)])
def test_factors_of_empty_matrices(shape):
    """LAPACK refuses them; NumPy's and SciPy's factors are identities of the right shapes."""
    m = pt.dmatrix("m")
    outputs = [*pt.linalg.svd(m), *pt.linalg.svd(m, full_matrices=False)]
    outputs += [pt.linalg.svd(m, compute_uv=False), *pt.linalg.qr(m, mode="full")]
    outputs += [*pt.linalg.qr(m, mode="economic"), pt.linalg.qr(m, mode="r")]
    at = np.arange(1.0, 1 + np.prod(shape)).reshape(shape) ** 2
    expected = [*np.linalg.svd(at), *np.linalg.svd(at, full_matrices=False)]
    expected += [np.linalg.svd(at, compute_uv=False), *scipy.linalg.qr(at)]
    expected += [*scipy.linalg.qr(at, mode="economic"), *scipy.linalg.qr(at, mode="r")]
    if shape[0] == shape[1]:
        outputs += [*pt.linalg.eigh(m), pt.linalg.eigvalsh(m)]
        expected += [*np.linalg.eigh(at), np.linalg.eigvalsh(at)]
    actual = jaxify([m], outputs, backend="numba")(at)
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(np.abs(x), np.abs(y), rtol=1e-12, atol=1e-12, strict=True)


@pytest.mark.slow
def test_eigenvalues_of_a_batch_of_empty_matrices():
    m = pt.dtensor3("m")
    f = jaxify([m], [*pt.linalg.eigh(m), pt.linalg.eigvalsh(m).sum()], backend="numba")
    for n_matrices, n in ((2, 0), (0, 3), (0, 0)):
        values, vectors, total = f(np.zeros((n_matrices, n, n)))
        assert values.shape == (n_matrices, n) and vectors.shape == (n_matrices, n, n)
        assert total == 0
    slope = loopax.grad(jaxify([m], pt.linalg.eigh(m)[0].sum(), backend="numba"))
    assert slope(np.zeros((2, 0, 0))).shape == (2, 0, 0)
