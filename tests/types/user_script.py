"""A user's script as type checkers read it: everything that loopax has, in the ways it is meant to be used.

`test_types.py` gives it to mypy, strictly, and to pyright, which must find nothing. It is not run.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, assert_type

import jax
import jax.numpy as jnp
import numpy as np
import pytensor as untyped

import loopax
from loopax import JaxFunction, NumbaFunction

pytensor: Any = untyped  # few of its functions have types
pt = pytensor.tensor

# -- programs of variables ---------------------------------------------------------------------------
x, n = pt.dvector("x"), pt.lscalar("n")
total = pytensor.shared(np.zeros(()), name="total")
f = loopax.jaxify([x], {"sum": (x**2).sum()}, loops="xla", checks=None, donate="x")
assert_type(f, JaxFunction)
native = loopax.jaxify([x], (x**2).sum(), backend="numba", optimize="none", name="square")
assert_type(native, NumbaFunction)
print(native.source, f.program, f([1.0, 2.0])["sum"], f(x=np.ones(3)))
backend: Literal["jax", "numba"] = "jax" if jax.devices()[0].platform != "cpu" else "numba"
either = loopax.jaxify({"x": x, "n": n}, x[:n].sum(), backend=backend, on_missing="raise")
either(x=jnp.ones(3), n=2)
by_mode = pytensor.function([x], loopax.map(lambda row: row**2, x), mode="LOOPAX")
loopax.jaxify(by_mode)(np.ones(3))
counter = loopax.jaxify([x], total, updates={total: total + x.sum()})
loopax.jaxify([x, n], x[:n], donate=[x, "n", 1], givens=[(total, x.sum())])
loopax.jaxify([n], total, donate={0}, givens={total: 2.0})
context, before = counter.apply(counter.init_context(), np.ones(3))
keeping = counter.stateful(context)
keeping(np.ones(3))
held: loopax.SharedContext = keeping.context
counter.apply(held, np.ones(3))


# -- functions and methods ---------------------------------------------------------------------------
@loopax.jaxify
def softplus(x: Any, sharpness: float = 1.0) -> Any:
    return pt.log(1 + pt.exp(sharpness * x)) / sharpness


@loopax.jaxify(backend="numba", static_argnames=("kind",), parallel=True)
def distance(x: Any, y: Any, *, kind: str = "l2") -> Any:
    return ((x - y) ** 2).sum() if kind == "l2" else abs(x - y).sum()


class Line:
    def __init__(self, slope: float) -> None:
        self.slope = slope

    @loopax.jaxify
    def at(self, x: Any) -> Any:
        return self.slope * x

    @staticmethod
    @loopax.jaxify
    def doubled(x: Any) -> Any:
        return 2 * x

    @classmethod
    @loopax.jaxify(backend="numba")
    def zero(cls, x: Any) -> Any:
        return 0 * x

    @loopax.jaxify
    @classmethod
    def one(cls, x: Any) -> Any:
        return 0 * x + 1


line = Line(2.0)
print(softplus(np.array([800.0])), softplus(2.0, sharpness=3.0), distance(x=1.0, y=2, kind="l1"))
print(line.at(3.0), Line.at(line, 3.0), Line.doubled(x=1.0))
print(Line.zero(1.0), line.zero(1.0), Line.one(1.0), jax.vmap(line.at)(jnp.arange(3.0)))
softplus.lower(jnp.ones(3)).compile()
line.at.lower(jnp.ones(3)).compile()
jax.jit(jax.value_and_grad(softplus))(1.0)


# -- loops -------------------------------------------------------------------------------------------
class State(NamedTuple):
    level: Any
    slope: Any


@dataclass
class Row:
    y: Any


def step(state: State, row: Row) -> tuple[State, dict[str, Any]]:
    level = 0.9 * state.level + state.slope
    return State(level, state.slope), {"error": row.y - level}


def until(state: State, row: Row) -> tuple[State, None, Any]:
    return state, None, state.level > row.y


final, errors = loopax.scan(
    step, State(0.0, 1.0), Row(x), reverse=True, checkpoint="sqrt", name="trend"
)
assert_type(final, State)
assert_type(errors, dict[str, Any])
last, _, stopped = loopax.scan(until, State(0.0, 1.0), xs=Row(x), length=n, unroll=2)
assert_type(last, State)
s2, s2s = loopax.scan(lambda c, r: (0.1 + 0.8 * c + 0.1 * r**2, 2 * c), 1.0, x, parallel="newton")
print(s2.eval(), s2s[-1].eval(), loopax.scan(lambda c, _: (2 * c, None, c > 3), 1)[0].eval())
moving, _ = loopax.scan(lambda c, _: (c[0] + c[1], None), loopax.lag(np.ones(4), [1, 4]), length=5)
ahead = loopax.map(lambda pair: pair[1] - pair[0], loopax.lead(x, [0, 1]), strict=True)
power = loopax.fori_loop(0, n, lambda i, c: 2 * c, 1, truncate_gradient=3)
assert_type(
    loopax.while_loop(lambda s: s.level < 9, lambda s: State(2 * s.level, s.slope), final), State
)
print(loopax.while_loop(lambda c: c < 100, lambda c: 2 * c, 3, max_steps=50).eval(), power.eval())
assert_type(
    loopax.cond(n > 0, lambda s: State(s.level, 0), lambda s: s, final, name="reset"), State
)
print(loopax.cond(n > 0, lambda x: 0.0, lambda x: x[0], x).eval(), moving.eval(), ahead.eval())
print(loopax.filter(lambda row: row > 0, x).eval(), loopax.reduce(pt.maximum, 0.0, x).eval())

# -- transformations ---------------------------------------------------------------------------------
assert_type(loopax.grad(native), NumbaFunction)
value, slopes = loopax.value_and_grad(softplus, argnums=(0,))(1.0)
print(loopax.grad(lambda x: x**3)(2.0).eval(), loopax.hessian(f)(np.ones(2)))
print(loopax.jacobian(lambda x: x[1:] * x[:-1], sparse=True)(np.ones(3)).eval().nnz)
print(
    loopax.vmap(native, in_axes=(0,), batch_size=10, progress=lambda done, of: None)(
        np.ones((99, 3))
    )
)
primal, tangent = loopax.jvp(lambda x: x**2, [x], [x])
out, pullback = loopax.vjp(lambda x: x**2, x)
curvature: Any = loopax.hvp(native, [np.ones(3)], [np.ones(3)])


@loopax.native(loops="native", checks="nan", cache=False)
def cumulated(x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda c, row: (c + row, c), x[0], x)[1]


assert_type(cumulated(jnp.ones(3)), jax.Array)
assert_type(loopax.native(cumulated, checks=None)(jnp.ones(3)), jax.Array)
soft = loopax.from_jax(lambda x: jax.nn.logsumexp(x))
print(pullback(out)[0].eval(), soft(x).eval(), loopax.kalman_filter(*[x] * 5).log_likelihood)


# -- the rest ----------------------------------------------------------------------------------------
def posterior(model: Any) -> Any:
    density = loopax.pymc.logp(model, backend="numba", jacobian=False, jit=True)
    point = density.initial_point(0)
    print(density(point), density.gradient(point)["x"], loopax.grad(density)(point))
    with loopax.pymc.installed(loops="native"):
        pass
    loopax.pymc.sample(
        500, random_seed=1, progressbar=False, nuts_sampler="pymc", target_accept=0.9
    )
    return loopax.pymc.sample(
        model, "nutpie", draws=50, seed=1, quiet=True, nuts={"max_treedepth": 5}
    )


print(loopax.explain(f).counts_read.loops, loopax.explain([x], x.sum()), loopax.__version__)
loopax.explain(softplus, np.ones(3)).to_html("softplus.html")
loopax.config.progress = False
try:
    with loopax.time_limit(3.0):
        native(np.ones(3))
except (loopax.TimeLimitExceeded, loopax.LoopTypeError, loopax.ConvergenceError) as error:
    print(error)
loopax.clear_cache()
