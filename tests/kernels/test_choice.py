"""Which programs run as native code in JAX, and what comes of those that do not."""

import functools
import pickle
import threading
import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from jax.experimental import checkify
from numba.core.errors import NumbaError
from pytensor.raise_op import Assert

import loopax
from loopax import jaxify
from loopax.base.errors import UnsupportedOpError
from loopax.kernels import choice
from loopax.kernels.ffi import kernel_code
from tests.support.compare import primitives
from tests.support.ops import SameType

X = np.arange(1.0, 5.0)


def native(inputs, outputs, **options):
    return jaxify(inputs, outputs, loops="native", **options)


def kernels(f, *args):
    return primitives(jax.make_jaxpr(f)(*args))["loopax_kernel"]


@pytest.fixture
def x():
    return pt.dvector("x")


def total_of_steps(x):
    return loopax.scan(lambda s, y: (s + y**2, None), 0.0, x)[0]


def test_the_option_is_checked(x):
    with pytest.raises(ValueError, match="loops must be one of"):
        jaxify([x], x, loops="fast")
    with pytest.raises(ValueError, match="loops must be one of"):
        jaxify([x], x, backend="numba", loops="xla")
    assert jaxify([x], x, backend="numba", loops="native")(X).tolist() == X.tolist()


def test_jax_runs_what_it_is_told_to(x):
    assert kernels(jaxify([x], total_of_steps(x), loops="xla"), X) == 0
    assert kernels(native([x], total_of_steps(x)), X) == 1


def test_beside_an_accelerator_it_is_native_on_a_default_device_that_is_a_cpu(x, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    f, g = (jaxify([x], total_of_steps(x), loops=loops) for loops in ("auto", "native"))
    assert kernels(f, X) == 0 and kernels(g, X) == 1
    assert "there is an accelerator" in str(loopax.explain(f))
    for device in (jax.devices("cpu")[0], "cpu"):
        with jax.default_device(device):
            assert kernels(jaxify([x], total_of_steps(x), loops="auto"), np.ones(2000)) == 1


def test_direct_calls_and_arguments_of_other_kinds(x):
    f = native([x], total_of_steps(x))
    for given in (X, jnp.asarray(X), list(X), X[::2].repeat(2)[:3], np.arange(3)):
        np.testing.assert_allclose(f(given), (np.asarray(given, float) ** 2).sum())


def test_shared_variables_are_read_at_each_call(x):
    w = pytensor.shared(np.array([1.0, 2.0]), name="w")
    f = native([x], total_of_steps(x) * w.sum())
    assert f(X) == 90.0
    w.set_value(np.array([1.0, 0.0, 0.0]))
    assert f(X) == 30.0
    context = f.init_context()
    assert jax.jit(lambda c: f.apply(c, X)[1])(context.set("w", np.array([2.0]))) == 60.0


def test_lengths_that_follow_from_values_make_a_program_for_each(x):
    n = pt.lscalar("n")
    f = native([x, n], total_of_steps(x[:n]))
    assert [float(f(X, k)) for k in (2, 3)] == [5.0, 14.0]
    assert jax.grad(lambda v: f(v, 2))(X).tolist() == [2.0, 4.0, 0.0, 0.0]


def test_a_trace_as_long_as_a_loop_takes_steps_stays_with_jax(x):
    rows = loopax.scan(lambda s, y: (s + y, s + y, s + y > 5.0), pt.constant(0.0), x)[1]
    f = native([x], rows)
    assert kernels(f, X) == 0
    np.testing.assert_allclose(f(X), [1.0, 3.0, 6.0])


def test_draws_without_a_loop_stay_with_jax(x):
    rng = pytensor.shared(np.random.default_rng(1))
    after, draw = pt.random.normal.make_node(rng, None, 0.0, 1.0).outputs
    f = native([x], [x + draw, after])
    assert kernels(f, X) == 0


class BlackBox(SameType):
    """Twice its input, by Python."""

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = 2 * inputs[0]


def test_an_op_without_native_code_keeps_its_program_with_jax(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        f = native([x], BlackBox()(x).sum())
        assert kernels(f, X) == 0
        assert f(X) == 20.0


def test_what_numba_cannot_compile_stays_with_jax_and_says_so(x, monkeypatch):
    def refuse(*args):
        raise NumbaError("no such thing")

    monkeypatch.setattr("loopax.kernels.ffi.kernel_code.handler", refuse)
    f = native([x], total_of_steps(3.0 * x))
    with pytest.warns(UserWarning, match="no such thing"):
        assert f(X) == 270.0


def test_long_code_stays_with_jax_unless_told(x, monkeypatch):
    values = np.linspace(0.0, 1.0, 500)
    final = loopax.scan(lambda s, y: (pt.sin(s) + y, None), 0.0, x)[0]
    assert kernels(jaxify([x], final, loops="auto"), values) == 1
    monkeypatch.setattr(choice, "_MOST_LINES", 3)
    f = jaxify([x], final, loops="auto")
    assert kernels(f, values) == 0
    assert "would take long to compile" in str(loopax.explain(f))
    assert kernels(native([x], final), values) == 1


def test_what_is_exported_has_jax_operations(x):
    f = native([x], total_of_steps(x))
    text = jax.export.export(jax.jit(f), platforms=["cpu", "cuda"])(X).mlir_module()
    assert "@loopax_" not in text and "while" in text
    assert "@loopax_" in jax.jit(f).lower(X).as_text()


def test_part_of_a_mesh(x):
    f = native([x], total_of_steps(x))
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("rows")

    # JAX's own check would have a loop's first state be cast to a part of the mesh.
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(rows,), out_specs=rows, check_vma=False)
    def sums(part):
        return jax.vmap(f)(part)

    np.testing.assert_allclose(jax.jit(sums)(np.stack([X, 2 * X])), [30.0, 120.0])


def test_a_native_function_becomes_one_for_jax(x):
    w = pytensor.shared(np.array(2.0), name="w")
    f = jaxify([x], total_of_steps(x) * w, backend="numba", name="totals").as_jax()
    assert f.__name__ == "totals" and kernels(f, X) == 1
    assert jax.jit(jax.grad(f))(X).tolist() == (4 * X).tolist()
    w.set_value(1.0)
    assert f(X) == 30.0


def test_pickled(x):
    f = native([x], total_of_steps(x))
    again = pickle.loads(pickle.dumps(f))
    assert again(X) == 30.0
    assert kernels(again, X) == 1


def test_first_calls_in_many_threads(x):
    f = native([x], total_of_steps(x))
    actual = {}

    def call(k):
        actual[k] = float(f(k * X)), jax.grad(f)(k * X).tolist()

    threads = [threading.Thread(target=call, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert actual == {k: (30.0 * k**2, (2 * k * X).tolist()) for k in range(8)}


# -- errors ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reading():
    x, k = pt.dvector("x"), pt.lvector("k")
    total, _ = loopax.scan(lambda s, i: (s + x[i], None), 0.0, k)
    return native([x, k], total)


def test_an_index_out_of_range_is_an_error(reading):
    assert reading(X, [0, 3, -1]) == 9.0
    calls = [(reading, [0, 4]), (jax.jit(reading), [0, 4])]
    calls += [(jax.vmap(reading, in_axes=(None, 0)), [[0, 1], [0, 4]])]
    for f, k in calls:
        with pytest.raises(Exception, match="index is out of bounds") as error:
            jax.block_until_ready(f(X, np.array(k)))
        assert f is not reading or isinstance(error.value, IndexError)
    assert reading(X, [0, 3, -1]) == 9.0


def test_in_every_thread(reading):
    actual = []

    def call(k):
        try:
            jax.block_until_ready(jax.jit(reading)(X, np.array([0, 3 + k % 2])))
            actual.append(None)
        except Exception as error:
            actual.append("index is out of bounds" in str(error))

    threads = [threading.Thread(target=call, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(actual, key=bool) == [None] * 4 + [True] * 4


def positive(x):
    return total_of_steps(Assert("x is to be positive")(x, pt.all(x > 0)))


def test_a_check_raises_its_message(x):
    f = native([x], positive(x), checks="raise")
    assert jax.jit(f)(X) == 30.0
    with pytest.raises(Exception, match="x is to be positive"):
        jax.block_until_ready(jax.jit(f)(-X))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f,
        jax.grad,
        lambda f: jax.grad(lambda x: jax.grad(f)(x).sum()),
        lambda f: jax.vmap(f, axis_size=2, in_axes=None),
        lambda f: lambda x: jax.vmap(jax.value_and_grad(f))(jnp.stack([x, x])),
    ],
    ids=["value", "gradient", "second gradient", "rows", "rows of gradients"],
)
def test_checkify_sees_a_check(x, transform):
    with pytest.warns(UserWarning, match="x is to be positive"):
        f = native([x], positive(x))
        jax.block_until_ready(jax.jit(f)(-X))  # nobody looks
    checked = jax.jit(checkify.checkify(transform(f)))
    error, values = checked(X)
    assert error.get() is None
    chex.assert_trees_all_close(values, transform(f)(X))
    assert kernels(transform(f), X) > 0
    error, _ = checked(-X)
    assert "x is to be positive" in error.get()


def test_a_check_beside_what_jax_lowers_late(x):
    """JAX 0.12 keeps a search as a primitive of its own while it traces, in what only checkify reads."""
    with pytest.warns(UserWarning, match="x is to be positive"):
        f = native([x], pt.searchsorted(x, positive(x)))
        assert jax.jit(f)(X) == np.searchsorted(X, 30.0)
    assert kernels(f, X) == 1


def test_a_direct_call_raises_the_error_itself(x):
    f = native([x], positive(x), checks="raise")
    assert f(X) == 30.0
    with pytest.raises(AssertionError, match="^x is to be positive$"):
        f(-X)


def test_a_check_that_is_to_be_ignored(x):
    def step(s, y):
        return s + Assert("y is to be positive")(y, y > 0) ** 2, None

    f = native([x], positive(x) + loopax.scan(step, 0.0, x)[0], checks="ignore")
    assert jax.jit(f)(-X) == 60.0


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 5, 40])
def test_an_inverse_that_is_not_there_is_no_error(n):
    a, b = pt.dmatrix("a"), pt.dtensor3("b")
    in_loop = loopax.scan(lambda s, m: (s + pt.linalg.inv(m).sum(), None), 0.0, b)[0]
    f = native([a, b], [pt.linalg.inv(a), pt.linalg.inv(b), in_loop])
    regular = np.eye(n) + 0.1 * np.arange(n)
    inverse, inverses, total = f(regular, np.stack([regular, 2 * regular]))
    np.testing.assert_allclose(inverse, np.linalg.inv(regular))
    np.testing.assert_allclose(inverses, np.stack([inverse, inverse / 2]))
    np.testing.assert_allclose(total, 1.5 * inverse.sum())
    nothing = f(np.zeros((n, n)), np.zeros((2, n, n)))
    assert not any(np.isfinite(x).any() for x in nothing)


@pytest.fixture
def written(monkeypatch):
    """How many graphs native code was written for."""
    count = []
    make = kernel_code.KernelCode.__init__

    def counted(self, *args, **kwargs):
        count.append(len(args[0]))
        make(self, *args, **kwargs)

    monkeypatch.setattr(kernel_code.KernelCode, "__init__", counted)
    return count


def test_native_code_of_a_program_is_written_where_it_is_run(x, written):
    """A gradient has code of its own, which computes the value as well."""
    f = native([x], total_of_steps(x))
    np.testing.assert_allclose(jax.jit(jax.value_and_grad(f))(X)[1], 2 * X)
    assert len(written) == 1
    assert f(X) == 30.0 and len(written) == 2  # a direct call of another context
    assert jax.jit(f)(X) == 30.0 and len(written) == 3


class Twice(SameType):
    """An op that PyTensor has no native function for, with a rule for JAX's operations."""

    def perform(self, node, inputs, outputs):
        outputs[0][0] = 2 * inputs[0]

    def pullback(self, inputs, outputs, cotangents):
        return [2 * cotangents[0]]


@pytest.mark.filterwarnings("ignore:Twice:UserWarning")  # it runs on the host
def test_an_op_without_native_code_is_seen_before_it_is_compiled(x):
    f = native([x], total_of_steps(Twice()(x)), on_missing="callback")
    assert kernels(f, X) == 0
    np.testing.assert_allclose(f(X), 120.0)


def test_what_turns_out_to_have_no_code_is_jaxs_and_said(x, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise UnsupportedOpError("there is no code today", [])

    monkeypatch.setattr(kernel_code.KernelCode, "__init__", refuse)
    f = native([x], total_of_steps(x))
    np.testing.assert_allclose(jax.jit(jax.grad(f))(X), 2 * X)
    assert "no code today" in str(loopax.explain(f))
    np.testing.assert_allclose(f(X), 30.0)
