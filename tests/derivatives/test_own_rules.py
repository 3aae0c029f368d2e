"""Ops whose derivative PyTensor has wrong: the right one in every form, in loops, to second order."""

import jax
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor import sparse
from pytensor.gradient import NullTypeGradError
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.loop import ScalarLoop
from pytensor.sparse.basic import CSMGrad
from pytensor.tensor.elemwise import Elemwise

import loopax
from loopax import jaxify
from loopax.ir.derivatives.traversal import pull_back, push_forward
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE
from tests.support.marking import slow_where

RNG = np.random.default_rng(7)
NUMBER = pt.dscalar("number")
V, W, AT, M = pt.dvector("v"), pt.dvector("w"), pt.lvector("i"), pt.dmatrix("m")
BASE, VALUES, REPEATED = RNG.normal(size=5), RNG.normal(size=3), np.array([3, 0, 3])
SQUARE = RNG.normal(size=(3, 3))
FACTOR = np.linalg.cholesky(SQUARE @ SQUARE.T + np.eye(3)) + np.triu(np.full((3, 3), 7.0), 1)
EXCHANGING = np.array([[0.1, 2.0, 1.0], [3.0, 0.4, 1.0], [0.5, 1.0, 0.2]])
TALL = RNG.normal(size=(5, 3))
HOLES = np.where(SQUARE > 0.5, 0.0, SQUARE)


def _parts_of_qr(mode, pivoting):
    parts = pt.linalg.qr(M, mode=mode, pivoting=pivoting)
    parts = parts if isinstance(parts, list) else [parts]
    return pt.concatenate([x.ravel() for x in parts if x.type.dtype == "float64"])


# What is differentiated with respect to the first input, and the inputs with their values.
RULES = {
    "set at an index twice": (pt.set_subtensor(V[AT], W), {W: VALUES, V: BASE, AT: REPEATED}),
    "set at a constant twice": (pt.set_subtensor(V[[3, 0, 3]], W), {W: VALUES, V: BASE}),
    "set at one place by two signs": (pt.set_subtensor(V[[1, -4, 2]], W), {W: VALUES, V: BASE}),
    "set rows twice": (pt.set_subtensor(M[AT % 3], W), {W: VALUES, M: SQUARE, AT: REPEATED}),
    "set elements twice": (pt.set_subtensor(M[[0, 0, 1], [1, 1, 2]], W), {W: VALUES, M: SQUARE}),
    "set one number at all": (pt.set_subtensor(V[AT], W[0]), {W: VALUES, V: BASE, AT: REPEATED}),
    "add at an index twice": (pt.inc_subtensor(V[AT], W), {W: VALUES, V: BASE, AT: REPEATED}),
    "cho_solve, lower": (pt.linalg.cho_solve((M, True), W), {M: FACTOR, W: VALUES}),
    "cho_solve, upper": (pt.linalg.cho_solve((M, False), W), {M: FACTOR.T, W: VALUES}),
    "solve, symmetric": (pt.linalg.solve(M, W, assume_a="sym", b_ndim=1), {M: SQUARE, W: VALUES}),
    "solve, symmetric, lower": (
        pt.linalg.solve(M, W, assume_a="sym", lower=True, b_ndim=1),
        {M: SQUARE, W: VALUES},
    ),
    "solve, positive, lower": (
        pt.linalg.solve(M, W, assume_a="pos", lower=True, b_ndim=1),
        {M: np.tril(FACTOR @ FACTOR.T) + np.triu(SQUARE, 1), W: VALUES},
    ),
    "lu with its rows exchanged": (
        pt.concatenate([x.ravel() for x in pt.linalg.lu(M, permute_l=True)]),
        {M: EXCHANGING},
    ),
    "the first of these": (pt.linalg.lu(M, permute_l=True)[0], {M: EXCHANGING}),
    "lu": (pt.concatenate([x.ravel() for x in pt.linalg.lu(M)[1:]]), {M: EXCHANGING}),
    "lu with indices": (
        pt.concatenate([x.ravel() for x in pt.linalg.lu(M, p_indices=True)[1:]]),
        {M: EXCHANGING},
    ),
    **{
        f"qr of a {shape} matrix, {mode}": (_parts_of_qr(mode, pivoting), {M: value})
        for shape, mode, pivoting, value in [
            ("square", "full", True, SQUARE),
            ("tall", "full", False, TALL),
            ("tall", "economic", True, TALL),
            ("wide", "full", False, TALL.T.copy()),
            ("wide", "r", True, TALL.T.copy()),
            ("wide", "economic", True, TALL.T.copy()),
        ]
    },
    **{
        f"svd of a {shape} matrix": (
            pt.concatenate([x.ravel() for x in pt.linalg.svd(M, full_matrices=False)]),
            {M: value},
        )
        for shape, value in [("square", SQUARE), ("tall", TALL), ("wide", TALL.T.copy())]
    },
    "cumprod with zeros": (pt.cumprod(V), {V: np.array([2.0, 0.0, 3.0, 0.0, -1.0])}),
    "cumprod of columns": (pt.cumprod(M, axis=0), {M: np.where(SQUARE > 0.5, 0.0, SQUARE)}),
    "prod without a zero": (pt.prod(V), {V: BASE}),
    "prod with a zero": (pt.prod(V), {V: np.array([2.0, 0.0, 3.0])}),
    "prod with two zeros": (pt.prod(V), {V: np.array([2.0, 0.0, 0.0, -3.0])}),
    "prod of rows": (
        pt.prod(M, axis=1, keepdims=True),
        {M: np.array([[2.0, 0.0, 1.5], [0.0, 0.0, 3.0], [1.0, -2.0, 0.5]])},
    ),
    "prod of two axes of three": (
        pt.prod(M.reshape((3, 2, 2)), axis=(0, 2)),
        {M: np.array([[2.0, 0.0, 1.5, -1.0], [1.0, 0.3, 3.0, 2.0], [1.0, -2.0, 0.5, 0.0]])},
    ),
    "choose": (pt.choose(AT, M), {M: SQUARE, AT: np.array([2, 0, 2])}),
    "choose, around": (pt.choose(AT, M, mode="wrap"), {M: SQUARE, AT: np.array([-1, 4, 2])}),
    "choose, the nearest": (pt.choose(AT, M, mode="clip"), {M: SQUARE, AT: np.array([-1, 4, 1])}),
    "choose from a column": (
        pt.choose(AT, pt.specify_broadcastable(M[:, :1], 1)),
        {M: SQUARE, AT: np.array([2, 0, 2, 1])},
    ),
    "choose with indices of two axes": (
        pt.choose(AT.reshape((2, 2)), M[:, :2]),
        {M: SQUARE, AT: np.array([2, 0, 2, 1])},
    ),
    "choose from a list": (
        pt.choose(AT, [W**2, V[:3], W[0][None]]),
        {W: VALUES, V: BASE, AT: REPEATED % 2},
    ),
    "powers of 0 by x": (
        pt.concatenate([V**W, V[:1] ** 0.0, V[:1] ** 1.0, V ** np.array([3.0, 1.0, 0.0])]),
        {V: np.zeros(3), W: np.array([0.0, 1.0, 2.0])},
    ),
    "solve, tridiagonal": (
        pt.linalg.solve(M, W, assume_a="tridiagonal", b_ndim=1),
        {M: SQUARE + 3 * np.eye(3), W: VALUES},
    ),
    "pinv, hermitian": (
        pt.linalg.pinv(M, hermitian=True),
        {M: np.tril(SQUARE @ SQUARE.T) + np.triu(SQUARE, 1)},
    ),
    "add once at an index": (
        pt.inc_subtensor(V[AT], W, ignore_duplicates=True),
        {W: VALUES, V: BASE, AT: REPEATED},
    ),
    **{
        f"{product.__name__} where x is 0": (
            product(V[:3], pt.exp(W)),
            {V: np.array([0.0, 2.0, 0.0]), W: VALUES},
        )
        for product in (pt.special.xlogy, pt.special.xlog1py)
    },
    "a batch of xlogy where x is 0": (
        vectorize_graph(pt.special.xlogy(NUMBER, pt.exp(V[0])), {NUMBER: W}),
        {W: np.array([0.0, 2.0, 0.0]), V: BASE},
    ),
    "sorted rows": (
        pt.vectorize(lambda row: pt.sort(row)[:2], signature="(n)->(m)")(M),
        {M: SQUARE},
    ),
    "a sparse matrix of one with zeros": (
        sparse.DenseFromSparse(structured=False)(sparse.csr_from_dense(M)),
        {M: HOLES},
    ),
    **{
        f"{name} of a sparse matrix of one with zeros": (part(sparse.csr_from_dense(M)), {M: HOLES})
        for name, part in {
            "the squares": lambda m: sparse.sp_sum(m * m, axis=0),
            "the elements": sparse.dense_from_sparse,
            "a product, element by element,": lambda m: sparse.sp_sum(m * pt.exp(M), axis=1),
            "the scaled columns": lambda m: sparse.dense_from_sparse(
                sparse.mul_s_v(m, pt.exp(M[0]))
            ),
            "a multiple": lambda m: sparse.dense_from_sparse(m * pt.exp(M[0, 0])),
            "a product": lambda m: sparse.dot(m, pt.exp(M)),
            "a product from the left": lambda m: sparse.dot(pt.exp(M), m),
            "a product with itself": lambda m: sparse.dot(m, m),
            "a sparse product": lambda m: sparse.dense_from_sparse(sparse.true_dot(m, m)),
        }.items()
    },
    **{
        f"a structured product of a sparse matrix of one without zeros, {form}": (
            sparse.structured_dot(matrix(M), pt.exp(M)),
            {M: SQUARE},
        )
        for form, matrix in (("csr", sparse.csr_from_dense), ("csc", sparse.csc_from_dense))
    },
    "a transposed sparse matrix": (
        sparse.dense_from_sparse(sparse.transpose(sparse.csr_from_dense(M))),
        {M: SQUARE},
    ),
}


def cost(part):
    weights = pt.arange(1, part.size + 1).reshape(part.shape, ndim=part.type.ndim)
    return (pt.sin(part) * weights).sum()


def in_a_loop(part, x):
    def step(carry, factor):
        (inside,) = loopax.ir.replace.replaced([cost(part)], {x: x * factor})
        return 0.5 * carry + pt.tanh(0.1 * inside), None

    return loopax.scan(step, 0.0, pt.constant([1.0, 0.6]))[0]


CASES = {
    **{name: (cost(part), values) for name, (part, values) in RULES.items()},
    **{
        f"{name}, in a loop": (in_a_loop(part, next(iter(values))), values)
        for name, (part, values) in RULES.items()
        if "sparse" not in name  # PyTensor's scan has no sparse values
    },
}


def differences(f, x, step=1e-5):
    """``f``'s derivative by central differences, with the axes of ``x`` behind."""
    columns = []
    for k in range(x.size):
        e = np.zeros(x.size)
        e[k] = step
        e = e.reshape(x.shape)
        columns.append((np.asarray(f(x + e)) - np.asarray(f(x - e))) / (2 * step))
    return np.stack(columns, -1).reshape(*np.shape(columns[0]), *x.shape)


QUICK_LOOPS = "set at an index twice", "set elements twice", "cumprod with zeros"


def is_slow(name):
    if name.startswith(("qr of", "svd of")):  # large programs to compile
        return name != "qr of a tall matrix, full"
    if "of a sparse matrix of one" in name:  # Numba compiles SciPy's functions
        return not name.startswith(("the squares", "the elements"))
    return name.endswith(", in a loop") and name.partition(",")[0] not in QUICK_LOOPS


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", slow_where(is_slow, CASES))
def test_native_derivatives(name):
    y, values = CASES[name]
    inputs, (at, *others) = list(values), values.values()
    value = pytensor.function(inputs, [y], mode=FAST_COMPILE)
    f = jaxify(inputs, y, backend=NATIVE)
    gradient = loopax.grad(f)
    slope = differences(lambda x: value(x, *others)[0], at)
    np.testing.assert_allclose(gradient(at, *others), slope, rtol=1e-5, atol=1e-6)
    tangent = RNG.normal(size=at.shape)
    still = [None for _ in others]
    _, pushed = loopax.jvp(f, (at, *others), (tangent, *still))
    np.testing.assert_allclose(pushed, (slope * tangent).sum(), rtol=1e-5, atol=1e-6)
    product = loopax.hvp(f, (at, *others), (tangent, *still))
    product = product[0] if others else product
    curvature = differences(lambda x: gradient(x, *others), at)
    expected = np.tensordot(curvature, tangent, at.ndim)
    np.testing.assert_allclose(product, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_derivative_whatever_the_form(name):
    """`jax.grad` does not change with the form that is chosen, nor do lazy gradients."""
    y, values = CASES[name]
    inputs, arguments = list(values), list(values.values())
    native, xla = (jaxify(inputs, y, loops=loops) for loops in ("native", "xla"))
    for derive in (jax.grad, jax.hessian):
        actual, expected = (derive(f)(*arguments) for f in (native, xla))
        np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-7)
    x = inputs[0]

    def of_x(v):
        return loopax.ir.replace.replaced([y], {x: v})[0]

    lazy = jaxify(inputs, loopax.grad(of_x, lazy=True)(x), loops="xla")
    np.testing.assert_allclose(lazy(*arguments), jax.grad(xla)(*arguments), rtol=1e-7, atol=1e-7)


def test_gradients_of_pytensor_stay_as_they_are():
    y, values = CASES["set at an index twice"]
    inputs, arguments = list(values), list(values.values())
    slope = pytensor.grad(y, W)
    expected = pytensor.function(inputs, [slope], mode=FAST_COMPILE)(*arguments)[0]
    np.testing.assert_allclose(jaxify(inputs, slope, backend=NATIVE)(*arguments), expected)


@pytest.mark.parametrize("form", [{"backend": NATIVE}, {"loops": "xla"}, {"loops": "native"}])
def test_the_gradient_of_a_product_of_one_zero(form):
    """It is the product of nothing. PyTensor has 0."""
    slope = pytensor.grad(pt.prod(V), V)
    np.testing.assert_array_equal(jaxify([V], slope, **form)(np.zeros(1)), [1.0])


@pytest.mark.slow
@pytest.mark.parametrize("form", [{"backend": NATIVE}, {"loops": "xla"}, {"loops": "native"}])
def test_powers_of_zero(form):
    """x**0 is 1 for every x; by the exponent, the derivatives are 0 where x is 0."""
    x, y = pt.dvectors("x", "y")
    f = jaxify([x, y], (x**y).sum(), **form)
    native = form == {"backend": NATIVE}
    zeros, exponents = np.zeros(4), np.array([0.0, 1.0, 2.0, 3.0])
    by_x, by_y = (loopax if native else jax).grad(f, (0, 1))(zeros, exponents)
    np.testing.assert_array_equal(by_x, [0, 1, 0, 0])
    np.testing.assert_array_equal(by_y, 0)
    for k, curvature in enumerate([[0, 0, 2, 0], [0, 0, 0, 0]]):
        if native:
            along = tuple(np.ones(4) if k == j else None for j in (0, 1))
            (product,) = loopax.hvp(f, (zeros, exponents), along)
        else:
            product = jax.hessian(f, k)(zeros, exponents).sum(axis=1)
        np.testing.assert_array_equal(product, curvature)


@pytest.mark.sampled(1)
@pytest.mark.both_stacks  # JAX 0.10 forgets the custom derivative there
@pytest.mark.parametrize("loops", ["xla", "native"])
def test_second_derivatives_of_powers_of_zero_in_a_loop(loops):
    final, _ = loopax.scan(
        lambda c, r: (0.5 * c + ((r * V) ** W).sum(), None), 0.0, np.array([0.5, 1.0])
    )
    f = jaxify([V, W], final, loops=loops)
    curvature = jax.jacfwd(jax.jacrev(f))(np.zeros(4), np.arange(4.0))
    np.testing.assert_allclose(curvature, np.diag([0.0, 0.0, 2.25, 0.0]))


@pytest.mark.slow
@pytest.mark.parametrize("form", [{"backend": NATIVE}, {"loops": "xla"}, {"loops": "native"}])
def test_powers_with_the_exponent_zero(form):
    """The derivative by x is 0, at infinity too; by x and the exponent it is 1 / x."""
    x, y = pt.dvectors("x", "y")
    native = form == {"backend": NATIVE}
    gradient = (loopax if native else jax).grad
    bases, zeros = np.array([0.5, -2.0, 1e10, np.inf, -np.inf]), np.zeros(5)
    for exponent in (y, pt.zeros(()), pt.cast(y, "int64"), pt.cast(y, "uint8")):
        f = jaxify([x, y], (x**exponent + 0 * y).sum(), **form)
        np.testing.assert_array_equal(gradient(f)(bases, zeros), 0)
    f = jaxify([x, y], (x**y).sum(), **form)
    positive, ones = np.array([0.5, 2.0, 1e10]), np.ones(3)
    if native:
        product, _ = loopax.hvp(f, (positive, zeros[:3]), (0 * ones, ones))
    else:
        product = jax.jacobian(jax.grad(f), 1)(positive, zeros[:3]).sum(axis=1)
    np.testing.assert_allclose(product, 1 / positive)


@pytest.mark.parametrize("form", [{"backend": NATIVE}, {"loops": "xla"}, {"loops": "native"}])
def test_log1mexp_at_zero(form):
    """Both derivatives are minus infinity; at -1 they are those of log(1 - exp(x))."""
    f = jaxify([NUMBER], pt.log1mexp(NUMBER), **form)
    native = form == {"backend": NATIVE}
    gradient = (loopax if native else jax).grad(f)
    s = 1 / np.expm1(1.0)
    for x, first, second in (0.0, -np.inf, -np.inf), (-1.0, -s, -s * (1 + s)):
        x = np.array(x)
        np.testing.assert_allclose(gradient(x), first)
        actual = loopax.hvp(f, (x,), (np.ones(()),)) if native else jax.grad(gradient)(x)
        np.testing.assert_allclose(actual, second)


def test_log1mexp_of_large_numbers():
    """Its derivatives vanish, though ``exp(-x)`` overflows in them; above 0 there is no value."""
    f = jaxify([V], pt.log1mexp(V), loops="xla")
    at, ones = np.array([-np.inf, -800.0, 1.0]), np.ones(3)

    def slope(x):
        return jax.jvp(f, (x,), (ones,))[1]

    for actual in jax.jvp(slope, (at,), (ones,)):
        np.testing.assert_array_equal(actual, [0, 0, np.nan])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", [{"backend": NATIVE}, {"loops": "xla"}, {"loops": "native"}])
def test_angles_of_large_numbers(form):
    """Their squares overflow: all derivatives are 0, none is NaN."""
    y, x = pt.dvectors("y", "x")
    f = jaxify([y, x], pt.arctan2(y, x).sum(), **form)
    size = np.array([1e300, 1e200, 1.0])
    point, ones, zeros = (3.0 * size, 4.0 * size), np.ones(3), np.zeros(3)
    native = form == {"backend": NATIVE}
    gradient = (loopax if native else jax).grad(f, (0, 1))
    np.testing.assert_allclose(gradient(*point), [[0, 0, 0.16], [0, 0, -0.12]], atol=1e-180)
    for tangents, expected in (
        ((ones, zeros), (-0.0384, -0.0112)),
        ((zeros, ones), (-0.0112, 0.0384)),
    ):
        if native:
            products = loopax.hvp(f, point, tangents)
        else:
            products = jax.jvp(gradient, point, tangents)[1]
        np.testing.assert_allclose(products, [[0, 0, k] for k in expected], atol=1e-180)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("stops", [False, True])
def test_derivatives_of_a_loop_inside_an_elementwise_function(stops):
    """``s * c**5`` as a `ScalarLoop`, which PyTensor does not differentiate: both modes, second order."""
    s, c, n = ps.float64("s"), ps.float64("c"), ps.int64("n")
    until = ps.ge(n + 1, 5) if stops else None
    loop = Elemwise(ScalarLoop([s, n], [s * c, n + 1], constant=[c], until=until))
    start, factor = pt.dvectors("start", "factor")
    out = loop(9 if stops else 5, start, np.int64(0), factor, return_list=True)[0]
    s, c = np.array([2.0, -0.5]), np.array([1.5, 0.3])
    first = pull_back([start, factor], [out], [pt.ones_like(out)])
    second = pull_back([start, factor], [first[1]], [pt.ones_like(out)])
    (pushed,) = push_forward([start, factor], [out], [pt.full_like(start, 3.0), factor])
    actual = pytensor.function([start, factor], [*first, *second, pushed], mode=FAST_COMPILE)(s, c)
    expected = [c**5, 5 * s * c**4, 5 * c**4, 20 * s * c**3, 3 * c**5 + 5 * s * c**5]
    np.testing.assert_allclose(actual, expected, rtol=1e-13)
    native = jaxify([start, factor], [*first, *second, pushed], backend="numba")
    np.testing.assert_allclose(native(s, c), expected, rtol=1e-13)
    assert "scalar0" not in native.source  # no function of PyTensor's


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda s: s * s * 0.5, lambda z: (z**4 / 8, z**3 / 2, 1.5 * z**2)),
        (lambda s: 1 / (s * s), lambda z: (z**4, 4 * z**3, 12 * z**2)),
    ],
    ids=["square", "reciprocal"],
)
def test_an_elementwise_loop_that_reads_its_state_twice_in_an_op(body, expected):
    s = ps.float64("s")
    loop = Elemwise(ScalarLoop([s], [body(s)]))(np.int64(2), V).sum()
    first = pull_back([V], [loop], [pt.ones_like(loop)])[0]
    second = push_forward([V], [first], [pt.ones_like(V)])[0]
    at = np.array([1.7, 2.4])
    results = pytensor.function([V], [loop, first, second], mode=FAST_COMPILE)(at)
    total, slope, curvature = expected(at)
    for result, numbers in zip(results, (total.sum(), slope, curvature), strict=True):
        np.testing.assert_allclose(result, numbers, rtol=1e-13)


def test_a_tangent_adds_one_state_to_an_elementwise_loop_for_each_that_moves():
    s, a, b, n = ps.float64("s"), ps.float64("a"), ps.float64("b"), ps.float64("n")
    loop = Elemwise(ScalarLoop([s, n], [s * a + b, n + 1], constant=[a, b]))
    inputs = pt.dvectors("start", "a", "b")
    out = loop(3, inputs[0], pt.zeros(()), *inputs[1:], return_list=True)[0]
    (pushed,) = push_forward(inputs, [out], [2 * inputs[0], inputs[2], pt.ones_like(inputs[0])])
    (derivative,) = [
        node.op.scalar_op
        for node in toposort([pushed])
        if isinstance(getattr(node.op, "scalar_op", None), ScalarLoop)
    ]
    assert len(derivative.outputs) == 3
    s, a, b = np.array([2.0, -0.5]), np.array([1.5, 0.3]), np.array([1.0, -1.0])
    actual = pytensor.function(inputs, pushed, mode=FAST_COMPILE)(s, a, b)
    slope = 3 * s * a**2 + b * (2 * a + 1)
    np.testing.assert_allclose(actual, 2 * s * a**3 + slope * b + a**2 + a + 1, rtol=1e-13)


@pytest.mark.both_stacks  # PyTensor 3.0 and 3.3 sum other series
@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:Numba will use object mode:UserWarning"
)  # `tri_gamma`, PyTensor 3.0
@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_second_derivatives_of_the_incomplete_gamma_functions(name):
    """By the shape, natively, they are those of JAX's operations: PyTensor sums the first ones in loops."""
    shape, x = pt.dvectors("shape", "x")
    cost = pt.sin(getattr(pt, name)(shape, x)).sum()
    point, ones = (np.array([0.5, 2.0, 7.0]), np.array([0.7, 1.5, 9.0])), np.ones(3)
    by_shape, by_x = loopax.hvp(jaxify([shape, x], cost, backend=NATIVE), point, (ones, 0.5 * ones))
    gradient = jax.grad(jaxify([shape, x], cost, loops="xla"), (0, 1))
    _, expected = jax.jvp(gradient, point, (ones, 0.5 * ones))
    np.testing.assert_allclose([by_shape, by_x], expected, rtol=1e-5)


def test_a_missing_second_derivative_is_refused():
    """PyTensor has none of its own gradient of a product, and says so by the type of a variable."""
    f = jaxify([V], pytensor.grad(pt.prod(V), V).sum(), backend=NATIVE)
    with pytest.raises(NullTypeGradError, match="ProdWithoutZeros"):
        loopax.grad(f)(BASE)


def test_entries_of_a_sparse_matrix_have_the_length_of_their_matrix():
    data, other = pt.vector("data", shape=(4,)), pt.vector("other", shape=(3,))
    shape = np.array([3, 3], "int32")
    matrix = sparse.CSC(data, np.int32([0, 2, 1, 2]), np.int32([0, 2, 3, 4]), shape)
    factor = sparse.CSC(other, np.int32([1, 0, 2]), np.int32([0, 1, 2, 3]), shape)
    product = sparse.dense_from_sparse(matrix * factor)
    (gradient,) = pull_back([data], [product], [pt.ones((3, 3))])
    (cotangent,) = pull_back([other], [gradient], [pt.constant([1.0, 2.0, 3.0, 4.0])])
    f = pytensor.function([data, other], cotangent, mode=FAST_COMPILE, on_unused_input="ignore")
    np.testing.assert_array_equal(f(BASE[:4], VALUES), [0, 0, 4])  # one entry in common
    types = [v.type for v in ancestors([cotangent]) if v.owner and isinstance(v.owner.op, CSMGrad)]
    assert [t.shape for t in types] == [(None,)] * 2


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_the_product_of_an_empty_array(shape, axis):
    """The other axes say how many products there are, not how many factors each has."""
    gradient = loopax.grad(jaxify([M], pt.prod(M, axis=axis).sum(), backend=NATIVE))
    empty = np.ones(shape)
    np.testing.assert_array_equal(gradient(empty), empty, strict=True)
