"""The form that ``loops="auto"`` runs where the costs are close: the one that a measurement favours.

No clock decides a test: the times are made up.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify
from loopax.kernels import choice, measurement
from loopax.kernels.cost import Cost

ROWS = jnp.linspace(0.5, 1.5, 8)


@pytest.fixture
def times(tmp_path, monkeypatch):
    """The times that every measurement gives, native first, and the number of measurements."""

    class Clock:
        numbers = 1_000, 2_000
        n_measured = 0

        def least_times(self, *calls):
            self.n_measured += 1
            for call in calls:
                call()
            return self.numbers

    clock = Clock()
    monkeypatch.setattr(measurement, "_least_times", clock.least_times)
    monkeypatch.setenv("LOOPAX_CACHE_DIR", str(tmp_path / "times"))
    return clock


def path(a):
    """Steps with so much to do in each that neither cost is far below the other."""

    def step(s, _):
        return jnp.tanh(a * s + jnp.sin(s)), s.sum()

    return jax.lax.scan(step, jnp.ones(30), None, length=50)[1].sum()


def path_graph():
    a = pt.dscalar("a")

    def step(s, _):
        return pt.tanh(a * s + pt.sin(s)), s.sum()

    rows = loopax.scan(step, pt.ones(30), None, length=50)[1]
    return [a], rows.sum()


def by_native(transform=lambda f: f):
    return transform(loopax.native(path, loops="auto"))


def by_jaxify(transform=lambda f: f):
    return transform(jaxify(*path_graph(), loops="auto"))


DOORS = pytest.mark.parametrize("door", [by_native, by_jaxify])
FORMS = pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.vmap(jax.grad(f)),
        pytest.param(lambda f: jax.vmap(jax.hessian(f)), marks=pytest.mark.slow),
    ],
    ids=["gradient", "hessian"],
)


def is_native(f, *args):
    return "@loopax_" in jax.jit(f).lower(*args).as_text()


@pytest.mark.sampled(1)
@DOORS
@pytest.mark.parametrize("numbers", [(1_000, 2_000), (2_000, 1_000)], ids=["native", "xla"])
def test_the_faster_form_runs(door, numbers, times):
    times.numbers = numbers
    batch = door(jax.vmap)
    assert is_native(batch, ROWS) == (numbers[0] < numbers[1])
    assert times.n_measured
    np.testing.assert_allclose(batch(ROWS), jax.vmap(path)(ROWS), rtol=1e-12)


@pytest.mark.slow
@DOORS
@FORMS
def test_derivatives_are_right_in_either_form(door, transform, times):
    expected = transform(path)(ROWS)
    for times.numbers in ((1_000, 2_000), (2_000, 1_000)):
        loopax.clear_cache()
        jax.clear_caches()
        np.testing.assert_allclose(door(transform)(ROWS), expected, rtol=1e-9)


@pytest.mark.slow
@DOORS
def test_a_program_is_measured_once_for_all_processes(door, times):
    assert is_native(door(jax.vmap), ROWS)
    times.n_measured, times.numbers = 0, (2_000, 1_000)
    jax.clear_caches()
    assert is_native(door(jax.vmap), ROWS)
    assert not times.n_measured
    assert not is_native(door(jax.vmap), ROWS[:7])  # other shapes are another program
    assert times.n_measured


@DOORS
def test_explain_says_what_was_measured(door, times):
    times.numbers = 3_210, 1_230
    f = door()
    jax.jit(jax.vmap(f)).lower(ROWS)
    text = str(loopax.explain(f))
    assert "measured, 3.21 us native, 1.23 us as JAX's operations" in text
    assert "JAX's" in next(line for line in text.splitlines() if "measured" in line)


@DOORS
def test_without_a_folder_the_costs_decide(door, times, monkeypatch):
    monkeypatch.setenv("LOOPAX_CACHE_DIR", "")
    is_native(door(jax.vmap), ROWS)
    assert not times.n_measured


@DOORS
def test_processes_that_run_one_program_do_not_measure(door, times, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    is_native(door(jax.vmap), ROWS)
    assert not times.n_measured


@DOORS
def test_a_form_that_fails_on_made_up_values_is_not_measured(door, times, monkeypatch):
    def fail(*calls):
        raise FloatingPointError("made up")

    monkeypatch.setattr(measurement, "_least_times", fail)
    np.testing.assert_allclose(door(jax.vmap)(ROWS), jax.vmap(path)(ROWS), rtol=1e-12)


def called_back(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), x.dtype), x)


def until_large(x):
    """With an operation that divides the program: the close loop is in another part."""
    x = jax.lax.while_loop(lambda t: t < 100, lambda t: t + x, x)
    return jnp.fft.rfft(x[None])[0].real


def of_many(x):
    return jnp.linalg.eigvalsh(x * jnp.ones((3000, 3000)))[0]


@pytest.mark.parametrize(
    ("before", "is_measured"),
    [(called_back, False), (until_large, False), (of_many, False), (jnp.cos, True)],
)
def test_what_made_up_values_may_not_run_is_not_measured(before, is_measured, times):
    """A measurement runs the whole program, which may call back, not end, or take long."""

    def f(x, xs):
        return jax.lax.scan(lambda c, v: (jnp.tanh(0.5 * c + v), c), before(x), xs)[1].sum()

    jax.jit(loopax.native(f, loops="auto")).lower(3.0, jnp.arange(64.0))
    assert bool(times.n_measured) == is_measured


@pytest.mark.sampled(1)
@DOORS
def test_a_part_of_a_mesh_is_not_measured(door, times):
    mesh = jax.make_mesh((2,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("rows")
    f = jax.shard_map(door(jax.vmap), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    np.testing.assert_allclose(jax.jit(f)(ROWS), jax.vmap(path)(ROWS), rtol=1e-12)
    assert not times.n_measured


@DOORS
def test_costs_decide_where_a_measurement_fails(door, times, monkeypatch):
    monkeypatch.setattr(measurement, "_times", lambda *args: 1 / 0)
    for xla, is_faster in (0.5, False), (2.0, True):
        monkeypatch.setattr(
            Cost, "_xla", lambda cost, *args, xla=xla: xla * cost._native(*args[:1])
        )
        assert is_native(door(jax.vmap), ROWS) == is_faster


def test_hessians_are_measured_only_where_costs_are_very_close(times, monkeypatch):
    """To compile both forms would double the time to the first result."""
    for share, is_measured in (0.5, False), (0.8, True):
        monkeypatch.setattr(
            Cost, "_xla", lambda cost, *args, share=share: cost._native(*args[:1]) / share
        )
        times.n_measured = 0
        assert is_native(jax.hessian(by_jaxify()), 0.5)
        assert bool(times.n_measured) == is_measured


def test_a_program_that_is_too_long_for_native_code_is_not_measured(times, monkeypatch):
    monkeypatch.setattr(choice, "_MOST_LINES", 1)
    batch = by_jaxify(jax.vmap)
    assert not is_native(batch, ROWS)
    assert not times.n_measured
    np.testing.assert_allclose(batch(ROWS), jax.vmap(path)(ROWS), rtol=1e-12)


def test_a_loop_that_a_value_ends_is_not_measured(times):
    def root(a):
        return jax.lax.while_loop(
            lambda s: (s > 1.0).any(), lambda s: jnp.tanh(a * s) * s, jnp.full(30, 5.0)
        ).sum()

    is_native(jax.vmap(loopax.native(root, loops="auto")), ROWS)
    assert not times.n_measured


def test_far_costs_are_not_measured(times):
    def total(a):
        return jax.lax.scan(lambda s, _: (a * s + 1.0, None), 0.0, None, length=1000)[0]

    assert is_native(loopax.native(total, loops="auto"), 0.5)
    assert not times.n_measured


def test_long_batches_without_a_loop_are_measured(times):
    y = x = pt.vector("x", shape=(40,))
    for _ in range(40):
        y = y * y.sum() + x
    batch = jax.vmap(jax.grad(jaxify([x], y.sum(), loops="auto")))
    for n_rows, is_measured in (4, False), (256, True):
        assert is_native(batch, jnp.ones((n_rows, 40)))
        assert bool(times.n_measured) == is_measured


@DOORS
def test_a_measurement_leaves_the_settings_of_jax_alone(door, times):
    with jax.debug_nans(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(door(jax.vmap)(ROWS), jax.vmap(path)(ROWS), rtol=1e-12)
        assert jax.config.jax_debug_nans
    assert times.n_measured


def test_the_least_of_some_times_counts():
    calls = []

    def call(name):
        return lambda: calls.append(name)

    times = measurement._least_times(call("a"), call("b"))
    assert len(times) == 2 and min(times) >= 1
    assert {*calls} == {"a", "b"}


def test_a_long_run_is_timed_once(monkeypatch):
    seconds = iter([0.001, 3.0])
    monkeypatch.setattr(measurement, "_seconds", lambda call, repeats: next(seconds))
    assert measurement._least_times(None, None) == (1_000_000, 3_000_000_000)


@pytest.mark.parametrize(
    "aval",
    [
        jax.ShapeDtypeStruct((2, 3), np.float32),
        jax.ShapeDtypeStruct((), np.complex128),
        jax.ShapeDtypeStruct((4,), np.uint8),
        jax.ShapeDtypeStruct((0, 2), np.bool_),
        jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3)),
    ],
    ids=str,
)
def test_made_up_arguments_have_their_types(aval):
    value = measurement._value(aval)
    assert value.shape == aval.shape and value.dtype == aval.dtype
