"""One branch of a conditional runs: for the value, its gradient, both, and each row of a batch."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify
from loopax.base.upstream.pytensor import IfElse, WithShapes
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE
from tests.support.ops import SameType

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*has no JAX conversion"),
    pytest.mark.filterwarnings("ignore:.*run as Python"),
]
C, X = pt.dscalar("c"), pt.dvector("x")
AT = np.array([1.0, 2.0, 3.0])
RAN: list[str] = []


class Says(WithShapes, SameType):
    """The identity, which notes that it has run."""

    __props__ = ("name",)

    def __init__(self, name):
        self.name = name

    def perform(self, node, inputs, output_storage):
        RAN.append(self.name)
        output_storage[0][0] = inputs[0].copy()

    def shapes_of(self, node, shapes):
        return shapes

    def pullback(self, inputs, outputs, cotangents):
        return [cotangents[0] * Says(f"slope of {self.name}")(inputs[0]) / inputs[0]]


def if_else(then, otherwise, condition=C):
    return IfElse(1)(pt.gt(condition, 0), then, otherwise)


def ran(function, *args):
    """The value, and how often each op has run; not while it was compiled."""
    function(*args)
    RAN.clear()
    value = jax.block_until_ready(function(*args))
    return value, {name: RAN.count(name) for name in sorted(set(RAN))}


BACKENDS = pytest.mark.parametrize(
    "options",
    [{"loops": "xla"}, {"loops": "native"}, {"backend": NATIVE}],
    ids=["xla", "native", "numba"],
)
A, B = Says("a"), Says("b")
Y = (if_else(pt.exp(A(X)), pt.log(B(X))) ** 2).sum()
SLOPE = pytensor.grad(Y, X)
ONCE = {1.0: {"a": 1, "slope of a": 1}, -1.0: {"b": 1, "slope of b": 1}}


@pytest.mark.sampled(3)
@BACKENDS
@pytest.mark.parametrize("c", [1.0, -1.0])
def test_the_gradient_of_pytensor_runs_one_branch(options, c):
    expected = 2 * np.exp(2 * AT) if c > 0 else 2 * np.log(AT) / AT
    value, counts = ran(jaxify([C, X], [Y, SLOPE], **options), c, AT)
    np.testing.assert_allclose(value[1], expected)
    assert counts == ONCE[c]
    value, counts = ran(jaxify([C, X], SLOPE, **options), c, AT)
    np.testing.assert_allclose(value, expected)
    assert counts == ONCE[c]


@pytest.mark.parametrize("c", [1.0, -1.0])
def test_so_do_gradients_of_what_jaxify_returns(c):
    for slope in (
        jax.jit(jax.value_and_grad(jaxify([C, X], Y, loops="xla"), argnums=1)),
        loopax.grad(jaxify([C, X], Y, backend=NATIVE), argnums=1),
    ):
        _, counts = ran(slope, c, AT)
        assert set(counts) == set(ONCE[c])


@BACKENDS
def test_in_the_steps_of_a_loop(options):
    signs = pt.constant([1.0, -1.0, 2.0])
    final = loopax.scan(lambda s, e: (if_else(A(s) * e, B(s) - e, e), None), X, signs)[0].sum()
    (value, slope), counts = ran(jaxify([X], [final, pytensor.grad(final, X)], **options), AT)
    np.testing.assert_allclose([value, *slope], [18.0, 2.0, 2.0, 2.0])
    assert counts == {"a": 2, "b": 1, "slope of a": 2, "slope of b": 1}


def test_branches_in_branches():
    d = pt.dscalar("d")
    inner = IfElse(1)(pt.gt(d, 0), pt.exp(A(X)), pt.sin(B(X)))
    y = if_else(inner, pt.log(Says("c")(X))).sum()
    f = jaxify([C, d, X], pytensor.grad(y, X), loops="xla")
    for c, k, name, expected in (
        (1.0, 1.0, "a", np.exp(AT)),
        (1.0, -1.0, "b", np.cos(AT)),
        (-1.0, 1.0, "c", 1 / AT),
    ):
        value, counts = ran(f, c, k, AT)
        np.testing.assert_allclose(value, expected)
        assert set(counts) == {name, f"slope of {name}"}


def test_a_parameter_of_one_branch_alone():
    """Its gradient is zero in the other one, and needs nothing of the first."""
    scale = pt.dvector("scale")
    y = if_else(A(X) * pt.sqrt(scale), B(X)).sum()
    f = jaxify([C, X, scale], pytensor.grad(y, scale), loops="xla")
    value, counts = ran(f, -1.0, AT, AT)
    np.testing.assert_array_equal(value, np.zeros(3))
    assert not counts
    np.testing.assert_allclose(f(1.0, AT, AT), AT / (2 * np.sqrt(AT)))


def test_a_loop_in_a_branch():
    total = loopax.scan(lambda s, x: (s * pt.sin(x) + x, None), pt.ones(()), X)[0]
    y = if_else(total, B(X).sum() * 2) ** 2
    f = jaxify([C, X], [y, pytensor.grad(y, X)], loops="xla")
    (_, slope), counts = ran(f, 1.0, AT)
    assert not counts
    plain = jaxify([X], total**2, loops="xla")
    np.testing.assert_allclose(slope, jax.grad(plain)(AT))
    np.testing.assert_allclose(f(-1.0, AT)[1], 2 * 12 * 2 * np.ones(3))


def test_second_derivatives():
    second = pytensor.grad((SLOPE**2).sum(), X)
    for options in ({"loops": "xla"}, {"backend": NATIVE}):
        value, counts = ran(jaxify([C, X], second, **options), 1.0, AT)
        np.testing.assert_allclose(value, 16 * np.exp(4 * AT))
        assert not any("b" in name for name in counts)


def test_rows_of_a_batch_in_native_code():
    f = loopax.vmap(jaxify([C, X], Y, backend=NATIVE), in_axes=(0, None))
    value, counts = ran(f, np.array([1.0, -1.0, 2.0, 3.0]), AT)
    good, bad = (np.exp(AT) ** 2).sum(), (np.log(AT) ** 2).sum()
    np.testing.assert_allclose(value, [good, bad, good, good])
    assert counts == {"a": 3, "b": 1}
    slopes = loopax.vmap(loopax.grad(jaxify([C, X], Y, backend=NATIVE), argnums=1), in_axes=(0, 0))
    value, counts = ran(slopes, np.array([1.0, -1.0]), np.stack([AT, 2 * AT]))
    np.testing.assert_allclose(value, [2 * np.exp(2 * AT), np.log(2 * AT) / AT])
    assert counts["slope of a"] == counts["slope of b"] == 1


CUT = if_else(X[:2], X**2)
REDUCED = {
    "sum": CUT.sum(),
    "mean": CUT.mean(),
    "largest": CUT.max() + X[0],
    "product": (CUT * pt.exp(CUT)).sum() * C,
    "length": CUT.shape[0] * 1.0,
    "first": CUT[0],
    "last": CUT[-1],
    "sorted": pt.sort(CUT)[-1],
    "two": pt.concatenate([CUT, CUT]).sum() + CUT[0],
    "loop": loopax.reduce(lambda s, x: s * 0.5 + x, pt.zeros(()), CUT),
    "gradient": pytensor.grad((CUT**2).sum(), X).sum(),
    "of cond": loopax.cond(pt.gt(C, 0), lambda x: x[1:], lambda x: x * 2, X).sum(),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", REDUCED)
def test_branches_of_unequal_shape_that_are_reduced(name):
    y = REDUCED[name]
    cs = np.array([1.0, -1.0, 2.0])
    run = pytensor.function([C, X], y, mode=FAST_COMPILE, on_unused_input="ignore")
    expected = [run(c, AT) for c in cs]
    f = jaxify([C, X], y, loops="xla")
    np.testing.assert_allclose([jax.jit(f)(c, AT) for c in cs], expected)
    np.testing.assert_allclose(jax.jit(jax.vmap(f, in_axes=(0, None)))(cs, AT), expected)
    native = jaxify([C, X], y, backend=NATIVE)
    np.testing.assert_allclose([native(c, AT) for c in cs], expected)
    np.testing.assert_allclose(loopax.vmap(native, in_axes=(0, None))(cs, AT), expected)


def test_the_gradient_by_jax_of_branches_of_unequal_shape():
    f = jaxify([C, X], REDUCED["product"], loops="xla")
    native = loopax.grad(jaxify([C, X], REDUCED["product"], backend=NATIVE), argnums=1)
    for c in (1.0, -1.0):
        np.testing.assert_allclose(jax.jit(jax.grad(f, argnums=1))(c, AT), native(c, AT))


def test_inputs_of_lengths_that_nobody_knows_are_taken_to_be_alike():
    other = pt.dvector("other")
    f = jaxify([C, X, other], pt.exp(if_else(X, other)).sum())
    [stage] = loopax.explain(f).stages[-1:]
    assert not any(name == "sink_readers" for name, *_ in loopax.explain(f).stages), stage
    np.testing.assert_allclose(f(-1.0, AT, 2 * AT), np.exp(2 * AT).sum())


@pytest.mark.parametrize("loops", ["xla", "native"])
def test_a_length_that_both_branches_have_is_known_under_jit(loops):
    """Of a vector of unknown length and one of five elements, which ``arange`` counts."""
    x, n = pt.dvector("x"), pt.lvector("n")
    longer, doubled = lambda v: pt.concatenate([n, v]), lambda v: 2 * v[[0, 1, 2, 0, 1]]
    v = loopax.cond(n[0] > 1, longer, doubled, x)
    f = jaxify([x, n], (v * pt.arange(v.size)).sum(), loops=loops)
    at = np.array([0.5, -1.0, 2.0])
    for first in (0, 2):
        counts = np.array([first, 1])
        elements = np.concatenate([counts, at]) if first > 1 else 2 * at[[0, 1, 2, 0, 1]]
        np.testing.assert_allclose(jax.jit(f)(at, counts), elements @ np.arange(5))
        jax.jit(jax.hessian(f))(at, counts)
