"""A pullback gets from the forward run what is dear, and as little as will do."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.scan import until

import loopax
from loopax import jaxify
from loopax.ir import evaluate
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.derivatives.traversal import pull_back
from loopax.kernels import derivative_rules
from loopax.kernels import linearization as module
from loopax.kernels.derivative_graphs import partitioned_pullback
from loopax.kernels.partition import partition
from loopax.lowering import lower_to_loops
from tests.random_programs import in_ir
from tests.support.compare import loops
from tests.support.kept import assert_same

S, P, X = pt.dscalar("s"), pt.dvector("p"), pt.dvector("x")
A, R = np.array([0.3, 0.2, 0.5]), np.random.default_rng(1).normal(size=6)


def pullback_of(inputs, outputs):
    """Cotangents of the outputs, and those of the inputs that arrive."""
    cotangents = [v.type() for v in outputs]
    return cotangents, [g for g in pull_back(inputs, outputs, cotangents) if g is not None]


def residuals(inputs, outputs):
    parts = partitioned_pullback(inputs, outputs, range(len(outputs)), range(len(inputs)))
    return [] if parts is None else parts.forward.outputs[len(outputs) :]


# -- what is kept ------------------------------------------------------------------------------------


def test_the_states_of_a_loop_are_kept_and_the_inside_of_a_step_is_not():
    step = lambda a, b, r: (pt.tanh(a + b * r), pt.exp(-b) + a)  # noqa: E731
    _, (rows, _) = loopax.scan(lambda c, r: (step(*c, r),) * 2, (S, S), X)
    parts = partition([S, X], [rows], *pullback_of([S, X], [rows]))
    kept = parts.forward.outputs[1:]
    assert len(kept) == 2 and all(v.type.ndim == 1 for v in kept)
    for graph in parts:
        lower_to_loops(graph)
        assert len(loops(graph)) == 1


def test_a_factorisation_is_kept():
    m = pt.dmatrix("m")
    spread = m @ m.T + pt.eye(3)
    (kept,) = residuals([m, X], [pt.linalg.solve_triangular(pt.linalg.cholesky(spread), X)])[:1]
    assert kept.type.ndim == 2


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        ([S * X + X**2], []),  # cheap
        ([X.sum() * X], []),
        ([pt.exp(X)], ["Exp"]),
        ([pt.exp(X + X * X) * 2.0], ["Exp"]),  # its argument is not read
        ([pt.log(X)], []),  # of 1 / x
        ([pt.exp(X.sum()) * X], ["Exp"]),  # the number, not the array
        ([pt.sin(X)], ["Cos"]),  # which only the pullback has
    ],
)
def test_what_is_kept_of_elementwise_functions(outputs, names):
    actual = residuals([S, X], outputs)
    assert [type(v.owner.op.scalar_op).__name__ for v in actual] == names


def test_of_what_follows_from_a_dear_value_the_least():
    """The pullback of the product reads the matrix, and what is left of it is a number."""
    m = pt.dmatrix("m")
    (kept,) = residuals([m, X], [(m @ m).sum() * X])
    assert kept.type.ndim == 0 or kept.type.shape == (1,)


# -- the same values ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 20, 40])
def test_random_programs(first):
    """The two graphs, one after the other, are the function and its pullback."""
    ran = 0
    for seed in range(first, first + 20):
        program = in_ir.program(9000 + seed)
        outputs = [v for v in program.outputs if is_float(v)][:3]
        try:
            cotangents, arrived = pullback_of(program.inputs, outputs)
            whole = FunctionGraph([*program.inputs, *cotangents], [*outputs, *arrived], clone=True)
            values = evaluate(FunctionGraph(program.inputs, outputs, clone=True), *program.values)
            moved = [np.cos(np.asarray(v) + 1.0).astype(v.dtype) for v in values]
            wanted = evaluate(whole, *program.values, *moved)
        except Exception:  # it raises, or PyTensor has no derivative: `whole` is not ours
            continue
        parts = partition(program.inputs, outputs, cotangents, arrived)
        if parts is None:
            continue
        actual = evaluate(parts.forward, *program.values)
        n = len(outputs)
        pulled = evaluate(parts.backward, *program.values, *actual[n:], *moved)
        assert_same([*actual[:n], *pulled], wanted, 1e-12, 1e-12)
        ran += 1
    assert ran > 5


# -- in JAX ------------------------------------------------------------------------------------------


def filtered(p, x):
    _, rows = loopax.scan(lambda s, r: (pt.tanh(p * s + r),) * 2, pt.ones(3), x)
    return rows


@pytest.fixture
def actual(monkeypatch):
    """The linearizations that were made."""
    made = []
    make = module.partitioned_pullback

    def spied(*args):
        made.append(make(*args))
        return made[-1]

    monkeypatch.setattr(module, "partitioned_pullback", spied)
    return made


def both(program):
    return [jaxify([P, X], program(P, X), loops=loops) for loops in ("native", "xla")]


def assert_equal(transform, program, *args):
    native, xla = (jax.jit(transform(f))(*args) for f in both(program))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), native, xla)


def test_a_gradient_through_arrays_takes_two_kernels(actual):
    f, _ = both(filtered)
    text = str(jax.make_jaxpr(jax.value_and_grad(lambda p: (f(p, R) ** 2).sum()))(A))
    assert text.count("loopax_kernel[") == 2 and "_with_residuals" in text
    assert actual[0] is not None and len(actual) == 1


@pytest.mark.slow
def test_rows_of_a_batch_read_the_residuals_of_one_run(actual):
    assert_equal(lambda f: jax.jacrev(f, argnums=(0, 1)), filtered, A, R)
    assert actual[0] is not None


@pytest.mark.slow
def test_forward_mode_keeps_nothing(actual):
    assert_equal(lambda f: jax.jacfwd(f, argnums=(0, 1)), filtered, A, R)
    assert not actual


@pytest.mark.slow
def test_the_form_in_jax_gives_the_same_residuals(monkeypatch):
    """Where one of the two is native code and the other is not, they meet in them."""
    f, _ = both(filtered)
    made = []

    def spied(*args):
        made.append(module.linearization(*args))
        return made[-1]

    monkeypatch.setattr(derivative_rules, "linearization", spied)
    jax.jacrev(f)(A, R)
    forward = made[0].forward
    native, in_jax = (
        jax.jit(lambda *args: derivative_rules.bind(forward, args))(A, R),
        forward.in_jax(A, R),
    )
    assert len(native) == len(in_jax) > 1 and forward.no_code is None
    for x, y in zip(native, in_jax, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-12)


def test_it_is_exported_in_the_form_of_jax():
    f, xla = both(filtered)
    cost = lambda f: lambda p: (f(p, jnp.asarray(R)) ** 2).sum()  # noqa: E731
    exported = jax.export.export(jax.jit(jax.grad(cost(f))))(A)
    np.testing.assert_allclose(exported.call(A), jax.grad(cost(xla))(A), rtol=1e-10)


@pytest.mark.slow
def test_steps_until_a_value_is_met():
    """A trace is as long as the loop has taken steps, and JAX knows the bound."""

    def program(p, x):
        step = lambda r, s: (s * p[0] + r * p[1], until(s > 100.0))  # noqa: E731
        rows = pytensor.scan(step, sequences=[x], outputs_info=[p[2]], return_updates=False)
        return pt.stack([(rows**2).sum(), rows[-1]])

    assert_equal(lambda f: jax.jacrev(f, argnums=(0, 1)), program, A, R)
