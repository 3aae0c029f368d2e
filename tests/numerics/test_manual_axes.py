"""Programs inside of ``jax.shard_map``, with its check of what varies along the axes of a mesh."""

import re
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from pytensor.scan.utils import until

import loopax
from loopax.jax_backend.staging.linear import Linear
from loopax.numerics.manual_axes import axes_of
from tests import test_programs
from tests.programs import reference
from tests.programs.catalogue import due
from tests.support.compare import primitives
from tests.support.marking import slow_where

N = 2
MESH = jax.sharding.Mesh(np.array(jax.devices()[:N]), ("rows",))
ALL, ROWS = PartitionSpec(), PartitionSpec("rows")
in_mesh = partial(jax.shard_map, mesh=MESH)

a, x, n = pt.dscalar("a"), pt.dvector("x"), pt.lscalar("n")
A, X = 0.7, np.linspace(0.1, 1.3, 2 * N)


def legacy(step, x, **options):
    start = pt.constant(np.float64(0.0), dtype="float64")
    return pytensor.scan(step, sequences=x, outputs_info=start, return_updates=False, **options)


LOOPS = {
    "carry": lambda: loopax.scan(lambda s, r: (a * s + r, None), 0.0, x)[0],
    "trace": lambda: loopax.scan(lambda s, r: (a * s + r, s * r), 0.0, x)[1].sum(),
    "second state": lambda: sum(
        loopax.scan(lambda s, r: ((s[0] + s[1], s[0] * a + r), None), (0.0, 0.0), x)[0]
    ),
    "reversed": lambda: loopax.scan(lambda s, r: (a * s + r, None), 0.0, x, reverse=True)[0],
    "in blocks": lambda: loopax.scan(
        lambda s, r: (pt.tanh(a * s) + r, None), 0.0, x, checkpoint="sqrt"
    )[0],
    "truncated": lambda: legacy(lambda r, s: a * s + r, x, truncate_gradient=1)[-1],
    "lags": lambda: legacy(lambda r, s: a * s + r, x)[-1],
    "map": lambda: loopax.map(lambda r: pt.exp(a * r), x).sum(),
    "nested": lambda: loopax.scan(
        lambda s, r: (loopax.scan(lambda t, q: (t * a + q, None), 0.0, x)[0] + s * r, None), 0.0, x
    )[0],
    "captured": lambda: loopax.fori_loop(0, 3, lambda i, s: s * a + x.sum(), pt.constant(1.0)),
    "while": lambda: loopax.while_loop(
        lambda s: s < 0.1 + x.sum(), lambda s: s + a, pt.constant(0.0), max_steps=50
    ),
    "until": lambda: legacy(lambda r, s: (a * s + r, until(s > 0.5)), x)[-1],
    "until, all rows": lambda: legacy(lambda r, s: (a * s + r, until(s > 0.5)), x).sum(),
    "branch": lambda: loopax.cond(x[0] > 0.5, lambda: pt.constant(1.0), lambda: a * x.sum()),
    "branch in a loop": lambda: loopax.scan(
        lambda s, r: (loopax.cond(r > 0.5, lambda: pt.constant(0.0), lambda: a * s + r), None),
        0.0,
        x,
    )[0],
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("loops", ["xla", "native"])
@pytest.mark.parametrize("kind", LOOPS)
def test_every_kind_of_loop(kind, loops):
    """Its value, gradient and Hessian over all devices are those of the parts, added up."""
    f = loopax.jaxify([a, x], LOOPS[kind](), loops=loops)

    @partial(in_mesh, in_specs=(ALL, ROWS), out_specs=ALL)
    def divided(a, x):
        return jax.lax.psum(f(a, x), "rows")

    def one_by_one(a, x):
        return sum(f(a, part) for part in x.reshape(N, -1))

    def derivatives(g):
        return jax.jit(lambda *args: (*jax.value_and_grad(g, (0, 1))(*args), jax.hessian(g)(*args)))

    chex.assert_trees_all_close(
        derivatives(divided)(A, X), derivatives(one_by_one)(A, X), rtol=1e-9
    )


# Those with loops, and with derivatives or batches, of every theme.
CORPUS = [p for p in due() if p.grad_wrt]
QUICK = {"scans", "zero_steps", "early_stop"}


@pytest.mark.sampled(5)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of checks and black boxes: tested elsewhere
@pytest.mark.parametrize("program", slow_where(lambda p: p.theme not in QUICK, CORPUS))
def test_programs_of_the_corpus(program):
    if str(program) == "special-error_functions" and jax.__version_info__ >= (0, 12):
        pytest.skip(
            "JAX's own erf is not made for it: its polynomials have coefficients that vary nowhere"
        )
    if str(program) == "special-incomplete_beta" and jax.__version_info__ < (0, 12):
        pytest.skip(
            "nor was JAX's own betainc, of JAX 0.10: its loop starts from what varies nowhere"
        )
    names = sorted(program.grad_wrt, key=test_programs.converted(program)[2].index)
    f, values = test_programs.over(program, names)
    weights = reference.weights(program)

    def cost(*args):
        out = test_programs.leaves(f(*args), program)
        return sum((w * y).sum() for w, y in zip(weights, out, strict=True) if w is not None), out

    with_gradient = jax.grad(cost, argnums=tuple(range(len(names))), has_aux=True)
    rows = [np.stack([v, (v * 0.5).astype(v.dtype)]) for v in values]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("rows",))

    @partial(jax.shard_map, mesh=mesh, in_specs=ROWS, out_specs=ROWS)
    def divided(*args):
        return jax.tree.map(lambda y: y[None], with_gradient(*(x[0] for x in args)))

    one, other = (jax.jit(with_gradient)(*row) for row in zip(*rows, strict=True))
    wanted = jax.tree.map(lambda *xs: np.stack(xs), one, other)
    chex.assert_trees_all_close(jax.jit(divided)(*rows), wanted, rtol=1e-9, atol=1e-12)


def test_what_varies_nowhere_stays_so():
    """A carry that follows from what is the same on every device is the same there, and JAX knows."""
    same, differs = pt.constant(1.0), pt.constant(0.0)
    finals, _ = loopax.scan(lambda s, r: ((a * s[0], s[1] + r), None), (same, differs), x)
    f = loopax.jaxify([a, x], list(finals), loops="xla")

    def one(a, x):
        same, differs = f(a, x)
        return same, differs[None]

    same, differs = in_mesh(one, in_specs=(ALL, ROWS), out_specs=(ALL, ROWS))(A, X)
    np.testing.assert_allclose(same, A**2)
    np.testing.assert_allclose(differs, X.reshape(N, -1).sum(1))
    with pytest.raises(ValueError, match="out_specs"):
        in_mesh(f, in_specs=(ALL, ROWS), out_specs=[ALL, ALL])(A, X)


def test_a_linear_map_of_something_known_varies_as_its_tangents_do():
    """The first of its arguments is of NumPy, and the same on every device."""
    scaled = Linear(
        lambda a, t: [a[0] * t[0]], lambda a, c: [a[0] * c[0]], lambda a, t: [a[0] * t[0]]
    )

    def one(x):
        (y,) = scaled([np.array(2.0)], [x.sum()])
        assert axes_of(y) == {"rows"}
        return jax.lax.psum(y, "rows")

    np.testing.assert_allclose(in_mesh(one, in_specs=ROWS, out_specs=ALL)(X), 2 * X.sum())


def all_reduces(compiled):
    return re.findall(r" all-reduce\(", compiled.as_text())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("loops", ["xla", "native"])
def test_the_gradient_has_one_all_reduce(loops, as_users_have_it):
    """However often the parameters are read, and of however many there is a gradient."""
    b, rows, y = pt.dvector("b"), pt.dmatrix("rows"), pt.dvector("y")
    final, _ = loopax.scan(lambda s, r: (pt.tanh(a * s + r[:2].sum()), None), 0.0, rows)
    log_density = -((y - rows @ b - a) ** 2).sum() + final * pt.exp(a) + b[0] * a
    f = loopax.jaxify([a, b, rows, y], log_density, loops=loops)
    by_rows = np.random.default_rng(0).normal(size=(4 * N, 3)), np.ones(4 * N)

    @partial(in_mesh, in_specs=(ALL, ROWS, ROWS), out_specs=ALL)
    def divided(parameters, rows, y):
        return jax.lax.psum(f(*parameters, rows, y), "rows")

    compiled = jax.jit(jax.value_and_grad(divided)).lower((A, np.ones(3)), *by_rows).compile()
    assert len(all_reduces(compiled)) == 1


def test_native_code_runs_on_each_device():
    f = loopax.jaxify([a, x], LOOPS["carry"](), loops="native")
    divided = in_mesh(lambda a, x: f(a, x)[None], in_specs=(ALL, ROWS), out_specs=ROWS)
    assert "loopax_kernel" in primitives(jax.make_jaxpr(divided)(A, X).jaxpr)


def test_batches_inside_and_outside():
    f = loopax.jaxify([a, x], LOOPS["until"](), loops="xla")
    several = jnp.linspace(0.1, 0.9, 3)
    inside = in_mesh(
        lambda a, x: jax.lax.psum(jax.vmap(f, (0, None))(a, x), "rows"),
        in_specs=(ALL, ROWS),
        out_specs=ALL,
    )
    outside = jax.vmap(
        in_mesh(lambda a, x: jax.lax.psum(f(a, x), "rows"), in_specs=(ALL, ROWS), out_specs=ALL),
        (0, None),
    )
    wanted = [sum(f(a, part) for part in X.reshape(N, -1)) for a in several]
    np.testing.assert_allclose(inside(several, X), wanted)
    np.testing.assert_allclose(outside(several, X), wanted)


def test_draws():
    """Each device draws by its own key; a sampler that rejects is a loop as well."""
    rng = pt.random.default_rng()
    draws = rng.gamma(a, scale=1.0, size=3)
    draws = draws[1] if isinstance(draws, list | tuple) else draws
    f = loopax.jaxify([rng, a], draws)
    keys = jax.random.split(jax.random.key(1), N)

    def one(key, a):
        return f(key[0], a[0])[None]

    actual = in_mesh(one, in_specs=(ROWS, ROWS), out_specs=ROWS)(keys, X[:N])
    np.testing.assert_allclose(actual, [f(k, v) for k, v in zip(keys, X, strict=False)])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["carry", "trace", "while", "branch in a loop"])
def test_sharded_arguments_of_jit(kind):
    """JAX divides the program by itself: meshes of its automatic axes."""
    f = loopax.jaxify([a, x], LOOPS[kind](), loops="xla")
    mesh = jax.make_mesh((N,), ("rows",), axis_types=(AxisType.Auto,))
    divided = jax.device_put(X, NamedSharding(mesh, ROWS))
    actual = jax.jit(jax.value_and_grad(f))(A, divided)
    chex.assert_trees_all_close(actual, jax.value_and_grad(f)(A, X), rtol=1e-12)
