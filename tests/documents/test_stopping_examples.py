"""The examples whose loops stop early, against known answers; their derivatives against differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from examples import collatz, mixture, newton, pendulum, power_iteration
from tests.support.marking import slow_where

DIFFERENTIABLE = ("newton", "power_iteration", "pendulum", "mixture")
GRAVITY, TIME = 9.81, 3.0
STARTS = np.array([-1.0, 1.0])
TIMES = np.array([0.05, 0.3, 0.8])


@functools.cache
def program(name):
    modules = (newton, power_iteration, pendulum, collatz, mixture)
    (module,) = [m for m in modules if m.__name__.endswith(name)]
    return module.build()


@functools.cache
def of_parameters(name):
    """An example as a smooth function of a vector to a number, where to look, and its next neighbours."""
    f = program(name)
    if name == "newton":
        weights = np.arange(6.0).reshape(3, 2) + 1.0

        def value(p):
            return (f(TIMES, p[0], p[1], p[2])["position"] * weights).sum()

        return value, np.array([0.6, 1.1, 1.3]), np.array([[0.1, 1.0, 1.0], [0.9, 1.2, 2.0]])
    if name == "power_iteration":
        places = np.nonzero(power_iteration.LESLIE)

        def value(p):
            actual = f(jnp.zeros((3, 3)).at[places].set(p))
            return actual["growth"] + actual["distribution"][0] ** 2

        at = power_iteration.LESLIE[places]
        return value, at, np.stack([0.5 * at, at + 0.1])
    if name == "pendulum":

        def value(p):
            return f(p[0], p[1], GRAVITY, TIME)["angle"]

        return value, np.array([2.0, 1.1]), np.array([[0.5, 1.0], [2.9, 0.7]])
    data = mixture.sample(first=8, second=10)

    def value(p):
        actual = f(data * p[0] + p[1] * np.sin(data), STARTS)
        return actual["means"][0] * actual["deviations"][1] + actual["weight"]

    return value, np.array([1.0, 0.1]), np.array([[1.2, 0.0], [0.8, 0.3]])


def derivatives(value):
    def of(p, direction):
        return {
            "value": value(p),
            "grad": jax.grad(value)(p),
            "jvp": jax.jvp(value, (p,), (direction,))[1],
            "hessian": jax.hessian(value)(p),
        }

    return of


def differences(f, p, directions, h):
    """Central ones, of a function that takes one point."""
    pairs = [(np.asarray(f(p + h * d)), np.asarray(f(p - h * d))) for d in directions]
    return np.stack([(up - down) / (2 * h) for up, down in pairs])


@pytest.mark.slow  # of the same programs known derivatives and each row of a batch are below
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_against_differences_in_one_batch(name):
    """Rows are the point, its neighbours and others: each row stops on its own, so each is checked."""
    value, at, more = of_parameters(name)
    direction, units = np.cos(np.arange(len(at))), np.eye(len(at))
    # The pendulum's own error hangs on where its steps end, which changes by leaps of some 1e-9.
    h, rtol = (1e-3, 2e-5) if name == "pendulum" else (1e-4, 1e-6)
    ways = np.concatenate([units, direction[None]])
    rows = np.concatenate([at + h * ways, at - h * ways, at[None], more])
    batch = jax.jit(jax.vmap(derivatives(value), in_axes=(0, None)))(rows, direction)
    batch = {key: np.asarray(x) for key, x in batch.items()}
    n = len(ways)
    slopes = {key: (x[:n] - x[n : 2 * n]) / (2 * h) for key, x in batch.items()}
    actual = {key: x[2 * n] for key, x in batch.items()}

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())

    assert_close(actual["grad"], slopes["value"][:-1])
    assert_close(actual["jvp"], slopes["value"][-1])
    assert_close(actual["hessian"], slopes["grad"][:-1])
    assert_close(actual["hessian"] @ direction, slopes["grad"][-1])
    one = jax.jit(jax.value_and_grad(value))
    for k in range(2 * n, len(rows)):
        alone, slope = one(rows[k])
        np.testing.assert_allclose(batch["value"][k], alone, rtol=1e-9)
        np.testing.assert_allclose(
            batch["grad"][k], slope, rtol=1e-7, atol=1e-9 * np.abs(slope).max()
        )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", slow_where("pendulum".__eq__, [*DIFFERENTIABLE, "collatz"]))
def test_rows_of_a_batch_stop_at_different_steps(name):
    f = program(name)
    args, axes, key = {
        "newton": ([TIMES, np.array([0.0, 0.9]), 1.0, 1.0], (None, 0, None, None), "steps"),
        "power_iteration": ([np.stack([np.eye(3) + 0.1, power_iteration.LESLIE])], (0,), "steps"),
        "pendulum": ([np.array([0.1, 3.0]), 1.0, GRAVITY, TIME], (0, None, None, None), "taken"),
        "mixture": ([np.stack([mixture.sample(k) for k in (0, 1)]), STARTS], (0, None), "rounds"),
        "collatz": ([np.array([27, 16])], (0,), "steps"),
    }[name]
    steps = np.asarray(jax.jit(jax.vmap(f, in_axes=axes))(*args)[key])
    one = jax.jit(f)
    for k in (0, 1):
        row = [x[k] if axis == 0 else x for x, axis in zip(args, axes, strict=True)]
        np.testing.assert_array_equal(steps[k], one(*row)[key])
    assert (steps[0] != steps[1]).any()


# -- known answers ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_keplers_equation_and_its_derivatives():
    f, e, period = program("newton"), 0.6, 1.1
    actual = f(TIMES, e, period, 1.0)
    anomaly = np.asarray(actual["anomaly"])
    residual = anomaly - e * np.sin(anomaly) - 2 * np.pi * TIMES / period
    np.testing.assert_allclose(residual, 0, atol=1e-14)
    assert (actual["steps"] < newton.MAX_STEPS).all()
    x, y = np.asarray(actual["position"]).T
    np.testing.assert_allclose((x + e) ** 2 + y**2 / (1 - e**2), 1.0, rtol=1e-13)  # an ellipse
    cos, sin = np.cos(anomaly), np.sin(anomaly)
    first = sin / (1 - e * cos)
    second = first * (2 * cos - e * sin * first) / (1 - e * cos)

    def of(e):
        return f(TIMES, e, period, 1.0)["anomaly"]

    np.testing.assert_allclose(jax.jacrev(of)(e), first, rtol=1e-12)
    np.testing.assert_allclose(jax.jacfwd(jax.jacrev(of))(e), second, rtol=1e-10)


def test_growth_is_the_greatest_eigenvalue():
    f, a = program("power_iteration"), power_iteration.LESLIE
    actual = f(a)
    values, right = np.linalg.eig(a)
    k = np.argmax(values.real)
    w = right[:, k].real
    turned, left = np.linalg.eig(a.T)
    v = left[:, np.argmax(turned.real)].real
    np.testing.assert_allclose(actual["growth"], values[k].real, rtol=1e-12)
    np.testing.assert_allclose(actual["distribution"], w / w.sum(), rtol=1e-11)
    assert actual["settled"]
    sensitivity = jax.jit(jax.grad(lambda a: f(a)["growth"]))(a)
    np.testing.assert_allclose(sensitivity, np.outer(v, w) / (v @ w), rtol=1e-9)
    assert not power_iteration.build(max_steps=5)(a)["settled"]


@pytest.mark.slow
def test_the_pendulum_swings_as_elliptic_functions_say():
    f, p = program("pendulum"), np.array([2.0, 1.1])
    actual = f(*p, GRAVITY, TIME)
    assert actual["time"] == TIME and actual["taken"] > actual["kept"]

    def exact(p):
        return pendulum.exact(*p, GRAVITY, TIME)

    np.testing.assert_allclose(actual["angle"], exact(p), rtol=1e-6)
    slope = jax.jit(jax.grad(of_parameters("pendulum")[0]))(p)
    np.testing.assert_allclose(slope, differences(exact, p, np.eye(2), 1e-5), rtol=1e-6)


def test_the_energy_of_the_pendulum_stays():
    actual = program("pendulum")(2.0, 1.1, GRAVITY, TIME)
    energy = actual["velocity"] ** 2 / 2 - GRAVITY / 1.1 * np.cos(actual["angle"])
    np.testing.assert_allclose(energy, -GRAVITY / 1.1 * np.cos(2.0), atol=1e-6)


def test_the_tableau_has_the_order_that_it_says():
    """Of an equation with constant slope a step is exact; weights and times of slopes fit together."""
    b5, b4 = np.array(pendulum.FIFTH), np.array(pendulum.FOURTH)
    a = np.array([[*row, *[0.0] * (6 - len(row))] for row in pendulum.STAGES])
    c = a.sum(axis=1)
    np.testing.assert_allclose(c, [0, 1 / 4, 3 / 8, 12 / 13, 1, 1 / 2], atol=1e-15)
    for b, order in ((b4, 4), (b5, 5)):
        for k in range(1, order + 1):
            np.testing.assert_allclose((b * c ** (k - 1)).sum(), 1 / k, rtol=1e-14)
        np.testing.assert_allclose(b @ a @ c, 1 / 6, rtol=1e-14)
        np.testing.assert_allclose(b @ a @ a @ c, 1 / 24, rtol=1e-14)
    np.testing.assert_allclose(b5 @ a @ a @ a @ c, 1 / 120, rtol=1e-14)


def test_the_table_of_collatz():
    table = jax.jit(jax.vmap(program("collatz")))(np.arange(1, 10_000))
    steps, peak = np.asarray(table["steps"]), np.asarray(table["peak"])
    # A006577 and A025586.
    assert steps[:12].tolist() == [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14, 9]
    assert peak[:7].tolist() == [1, 2, 16, 4, 16, 16, 52]
    assert (steps[26], peak[26]) == (111, 9232)
    assert (steps.argmax() + 1, steps.max()) == (6171, 261)
    assert table["arrived"].all()
    batch = jax.jit(jax.vmap(program("collatz"))).lower(np.arange(1, 10))
    assert batch.as_text().count("stablehlo.while") == 1


def log_likelihood(p, data):
    weight, means, deviations = p[0], p[1:3], p[3:]
    densities = stats.norm.pdf(data[:, None], means, deviations)
    return np.log(densities @ [weight, 1 - weight]).sum()


def test_the_mixture_is_most_likely():
    data = mixture.sample()
    actual = program("mixture")(data, STARTS)
    assert actual["settled"]
    p = np.concatenate([np.ravel(actual[k]) for k in ("weight", "means", "deviations")])
    np.testing.assert_allclose(actual["log_likelihood"], log_likelihood(p, data), rtol=1e-12)

    def slope(p):
        return differences(lambda p: log_likelihood(p, data), p, np.eye(5), 1e-4)

    np.testing.assert_allclose(slope(p), 0, atol=1e-4)
    curvature = differences(slope, p, np.eye(5), 1e-4)
    assert (np.linalg.eigvalsh(curvature + curvature.T) < 0).all()


PRINTED = {
    newton: "most steps where e is 0, 0.3, 0.9",
    power_iteration: "growth 0.994397 a year, after 47 steps",
    pendulum: "586 steps, 15 of them repeated",
    collatz: "the longest way is that of 6171: 261 steps",
    mixture: "logarithm of the likelihood -190.321083",
}


@pytest.mark.slow
@pytest.mark.parametrize("example", PRINTED, ids=lambda example: example.__name__)
def test_main_prints_what_it_found(example, capsys):
    example.main()
    printed = capsys.readouterr().out
    assert PRINTED[example] in printed and printed.count("\n") >= 5
