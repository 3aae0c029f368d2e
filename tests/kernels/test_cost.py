"""What ``loops="auto"`` chooses: by what a program is made of, its shapes, and the rows of a batch."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

import loopax
from loopax import jaxify
from loopax.kernels.cost import Cost, cost_of
from loopax.kernels.ffi.kernel_code import KernelCode
from tests.support.compare import primitives


def cost(f, *args):
    return cost_of(jax.make_jaxpr(f)(*args).jaxpr)


def test_a_scan_costs_its_steps():
    def f(n):
        return lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=n)[0]

    one, ten = cost(f(10), 1.0), cost(f(100), 1.0)
    assert ten.native == pytest.approx(10 * one.native)
    assert ten.thunks == pytest.approx(10 * one.thunks)


def test_a_native_step_waits_for_the_step_before():
    def f(step):
        return cost(
            lambda c, x: jax.lax.scan(lambda c, x: (step(c, x), None), c, x)[0], 1.0, jnp.ones(100)
        )

    waiting = f(lambda c, x: ((c * x + 1.0) * x + 1.0) * x + 1.0)
    ahead = f(lambda c, x: c + ((x * x + 1.0) * x + 1.0) * x)
    assert waiting.native > 2 * ahead.native and waiting.thunks == ahead.thunks


def test_native_code_reads_a_transpose_in_place():
    x = jnp.ones((2, 3))
    assert cost(jnp.transpose, x).native == 0 < cost(jnp.transpose, x).narrow


def test_operations_that_are_fused_are_one_thunk():
    assert cost(lambda x: jnp.sin(x) + x * x - 1.0, 1.0).thunks == cost(jnp.sin, 1.0).thunks


def test_wide_operations_are_vector_code_in_xla():
    narrow, wide = cost(jnp.tan, jnp.ones(2)), cost(jnp.tan, jnp.ones(2000))
    assert narrow.narrow > 0 == narrow.wide
    assert wide.narrow == 0 and wide.wide < wide.native


@pytest.mark.parametrize("f", [jnp.exp, jnp.cos, jax.lax.erf, jax.lax.lgamma])
def test_functions_of_many_elements_are_vector_code_in_native_form(f):
    narrow, wide = cost(f, jnp.ones(2)), cost(f, jnp.ones(2000))
    assert wide.native < 1000 * narrow.native and wide.native < wide.wide


def test_products_cost_their_multiplications():
    small, large = ((jnp.ones((n, 5)), jnp.ones((5, 6))) for n in (2, 8))
    assert cost(jnp.matmul, *large).native == pytest.approx(4 * cost(jnp.matmul, *small).native)


def test_more_rows_are_for_vector_code():
    steps = Cost(thunks=100.0, narrow=50.0, vectorized=10.0, native=50.0).times(100)
    assert steps.saved(1) > 0 > steps.saved(1000)


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr("loopax.kernels.cost._cores", lambda: 2)


@pytest.mark.usefixtures("two_cores")
def test_many_rows_of_plain_arithmetic_are_for_vector_code():
    def steps(c):
        return jax.lax.fori_loop(0, 500, lambda i, c: c + 0.1 * (c - c * c * c * c), c)

    assert cost(steps, 1.0).saved(4) > 0 > cost(steps, 1.0).saved(64)


@pytest.mark.usefixtures("two_cores")
def test_rows_of_a_derivative_come_from_memory():
    def steps(c):
        return jax.lax.fori_loop(0, 500, lambda i, c: c + 0.1 * (c - c * c * c * c), c)

    assert cost(steps, 1.0).saved(64, is_backward=True) > 0


def test_short_integers_are_for_vector_code():
    def steps(c):
        return jax.lax.fori_loop(0, 20, lambda i, c: jnp.roll(c, 1, 0) + jnp.roll(c, -1, 1), c)

    board = np.ones((256, 256))
    assert cost(steps, board.astype("int8")).saved(1) < 0 < cost(steps, board).saved(1)


def test_products_in_a_loop_are_left_to_blas():
    def steps(n):
        h = jnp.ones((n, n))
        return cost(lambda h: jax.lax.fori_loop(0, 1, lambda i, s: s @ h, h), h).native

    small, medium, large = (steps(n) / n**3 for n in (10, 28, 48))
    assert medium < small and small == pytest.approx(large, rel=0.01)
    h = jnp.ones((28, 28))
    integers = cost(lambda h: jax.lax.fori_loop(0, 1, lambda i, s: s @ h, h), h.astype(int))
    assert integers.native / 28**3 > medium


def test_products_outside_of_loops_are_left_to_blas():
    h, x = jnp.ones((600, 26)), jnp.ones(26)
    assert cost(jnp.matmul, h, x).native < cost(jnp.matmul, h.astype(int), x.astype(int)).native


def test_many_rows_of_elementary_functions_are_for_vector_code():
    def steps(c):
        return jax.lax.fori_loop(0, 500, lambda i, c: jnp.tanh(0.9 * c), c)

    for is_backward in (False, True):
        assert cost(steps, 1.0).saved(64, is_backward) < 0


def test_a_derivative_and_the_program_itself_are_chosen_apart(monkeypatch):
    asked = []
    monkeypatch.setattr(Cost, "saved", lambda self, *args: asked.append(args) or 1.0)
    x = pt.dvector("x")
    f = jaxify([x], smoothed(x), loops="auto")
    jax.jit(f)(X)
    asked.clear()
    jax.jit(jax.vmap(jax.grad(f)))(np.ones((3, 200)))
    assert (3, True) in asked and (3, False) not in asked
    asked.clear()
    jax.jit(jax.vmap(f))(np.ones((3, 200)))
    assert (3, False) in asked and (3, True) not in asked


def choice(inputs, outputs, *args, **options):
    f = jaxify(inputs, outputs, loops="auto", **options)
    return primitives(jax.make_jaxpr(f)(*args))["loopax_kernel"]


@pytest.fixture
def x():
    return pt.dvector("x")


X = np.ones(200)


def smoothed(x):
    return loopax.scan(lambda s, y: (0.9 * s + 0.1 * y, None), 0.0, x)[0]


def test_loops_of_small_steps_are_native(x):
    assert choice([x], smoothed(x), X) == 1


def test_a_program_without_loops_is_native_where_it_has_many_operations(x):
    assert choice([x], pt.exp(x).sum(), X) == 0
    many = sum(pt.exp(k * x).sum() * pt.log(k + x).max() for k in range(1, 8))
    assert choice([x], many, X) == 1


def test_large_matrices_are_xlas():
    a = pt.dmatrix("a")
    many = sum(pt.linalg.slogdet(a @ a.T + k * pt.eye(a.shape[0]))[1] ** k for k in range(1, 8))
    assert choice([a], many, np.eye(3)) == 1
    assert choice([a], many, np.eye(100)) == 0


@pytest.mark.parametrize(
    "op", [jnp.linalg.cholesky, jnp.linalg.qr, jnp.linalg.eigh, jnp.linalg.inv]
)
def test_factorizations_cost_the_third_power(op):
    small, large = (cost(op, jnp.ones((n, n))).native for n in (120, 240))
    assert 5 < large / small < 9


def test_wide_steps_are_xlas():
    h, xs = pt.dmatrix("h"), pt.dtensor3("xs")
    last, _ = loopax.scan(lambda s, x: (pt.tanh(s @ s + x), None), h, xs)
    assert choice([h, xs], last, np.ones((128, 128)), np.ones((20, 128, 128))) == 0


def test_checks_keep_nothing_from_native_code(x):
    positive = Assert("x is to be positive")(x, pt.all(x > 0))
    with pytest.warns(UserWarning, match="x is to be positive"):
        assert choice([x], smoothed(positive), X) == 1
    assert choice([x], smoothed(positive), X, checks="raise") == 1
    assert choice([x], smoothed(positive), X, checks="ignore") == 1


ON_TWO_DEVICES = """
import jax, numpy as np, pytensor.tensor as pt
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import loopax

x = pt.dvector("x")
many = sum(pt.exp(k * x / 9).sum() * pt.log(k + x).max() for k in range(1, 8))
f = loopax.jaxify([x], many, loops="auto")
assert jax.device_count() == 2
X = np.ones(200)
meshes = jax.make_mesh((2,), ("i",)), Mesh(np.array(jax.devices()), ("i",))
for mesh in meshes:
    divided = jax.device_put(X, NamedSharding(mesh, PartitionSpec("i")))
    with jax.set_mesh(mesh):
        np.testing.assert_allclose(jax.jit(f)(divided), jax.jit(f)(X))
    assert "loopax_kernel" not in str(jax.make_jaxpr(f)(divided))
assert "loopax_kernel" in str(jax.make_jaxpr(f)(X))
"""


@pytest.mark.slow
def test_an_array_that_is_divided_over_devices_is_xlas():
    """That there are several devices says nothing: PyMC's samplers of JAX make a hundred of one CPU."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-c", ON_TWO_DEVICES]
    done = subprocess.run(command, env=os.environ | flags, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_would_compile_for_long_is_xlas(x, monkeypatch):
    monkeypatch.setattr("loopax.kernels.choice._MOST_LINES", 3)
    f = jaxify([x], smoothed(x), loops="auto")
    f(X)
    assert "would take long to compile" in f.remarks[0]


def test_without_jit_it_is_jax_operations(x):
    assert choice([x], smoothed(x), X, jit=False) == 0
    with jax.disable_jit():
        assert float(jaxify([x], smoothed(x), loops="native")(X)) == pytest.approx(1.0)


def test_rows_that_take_long_are_shared_by_threads(monkeypatch):
    steps = Cost(thunks=100.0, narrow=50.0, vectorized=50.0, native=60.0).times(100)
    monkeypatch.setattr("loopax.kernels.cost._cores", lambda: 4)
    assert steps.is_divided(64) and not steps.is_divided(1) and not Cost(native=60.0).is_divided(64)
    shared = steps.saved(64)
    monkeypatch.setattr("loopax.kernels.cost._cores", lambda: 1)
    assert not steps.is_divided(64) and steps.saved(64) < shared


def test_threads_share_the_rows_of_a_program(monkeypatch, x):
    """With the values, gradients and errors of one row after the other."""
    monkeypatch.setattr("loopax.kernels.cost._cores", lambda: 2)
    monkeypatch.setattr("loopax.kernels.cost._DIVIDED", 0.0)
    divided = []
    handler = KernelCode.handler
    monkeypatch.setattr(
        KernelCode, "handler", lambda *args: (divided.append(args[-1]), handler(*args))[1]
    )
    positive = Assert("x is to be positive")(x, pt.all(x > 0))
    out = smoothed(pt.tanh(positive) * x)
    native, xla = (
        jaxify([x], out, loops=loops, checks="raise" if loops == "native" else "ignore")
        for loops in ("native", "xla")
    )
    rows = np.random.default_rng(2).normal(size=(37, 20)) ** 2
    for transform in (jax.vmap, lambda f: jax.vmap(jax.value_and_grad(f))):
        actual, wanted = (jax.jit(transform(f))(rows) for f in (native, xla))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), actual, wanted)
    assert divided and all(divided)
    with pytest.raises(Exception, match="x is to be positive"):
        jax.block_until_ready(jax.jit(jax.vmap(native))(-rows))
