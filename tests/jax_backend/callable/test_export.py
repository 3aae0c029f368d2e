"""``jax.export``: programs of lengths that are symbols, loops over them, and programs with checks."""

from importlib.util import find_spec

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from jax import export
from pytensor.raise_op import Assert

import loopax
from loopax import DynamicShapeError, UnsupportedOpError, jaxify, scan
from tests.support.compare import FAST_COMPILE

x, m = pt.dvector("x"), pt.dmatrix("m")
X, M = np.array([0.5, 3.0, -1.0, 2.0, 4.0]), np.arange(6.0).reshape(2, 3) + 1


def spec(*shape):
    return jax.ShapeDtypeStruct(shape, "float64")


def lengths(names, constraints=()):
    scope = export.SymbolicScope(constraints)
    return [spec(*export.symbolic_shape(one, scope=scope)) for one in names]


def roundtrip(f, *specs):
    """``f`` as an exported program, from bytes again where JAX can write them."""
    actual = export.export(f if hasattr(f, "lower") else jax.jit(f))(*specs)
    if find_spec("flatbuffers") is None:  # JAX's format needs it; it is in the extra `test`
        return actual.call
    return export.deserialize(actual.serialize()).call


def holds(inputs, outputs, specs, *values, constraints=()):
    """The exported program gives what PyTensor's own does, for two lengths."""
    f = jaxify(inputs, outputs)
    call = roundtrip(f, *lengths(specs, constraints=constraints))
    g = pytensor.function(inputs, outputs, mode=FAST_COMPILE)
    for given in (values, [np.concatenate([v, v]) for v in values] if len(specs) == 1 else values):
        expected = g(*given)
        for got, want in zip(jax.tree.leaves(call(*given)), jax.tree.leaves(expected), strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-12)


final, trace = scan(lambda c, r: (0.5 * c + pt.sin(r), c), pt.zeros(()), x, name="loop")
legacy = pytensor.scan(
    lambda r, c: 0.5 * c + r * c, sequences=[x], outputs_info=[pt.ones(())], return_updates=False
)
PROGRAMS = {
    "mean of squares": (x**2).sum() / x.shape[0],
    "variance": pt.var(x),
    "shape": [x.shape, x.shape[0] * 2 - 1],
    "loop": [final, trace],
    "pytensor.scan": legacy,
    "its gradient": pytensor.grad(legacy.sum(), x),
    "the loop's gradient": pytensor.grad(final + trace.sum(), x),
    "a number of steps": scan(lambda c, _: (c * x, None), pt.ones_like(x), length=x.shape[0])[0],
    "a loop that stops": scan(lambda c, r: (c + r, None, c + r > 2), pt.zeros(()), x)[0],
    "differences": x[1:] - x[:-1],
    "their gradient": pytensor.grad(((x[1:] - x[:-1]) ** 2).sum(), x),
    "flipped": x[::-1],
    "last": x[-1],
    "range": pt.arange(x.shape[0]) * x,
    "padded": pt.zeros(x.shape[0] + 1)[1:] + x,
    "joined": pt.concatenate([x, 2 * x]),
    "written": pt.set_subtensor(pt.zeros_like(x)[0], 3.0),
    "eye": pt.eye(x.shape[0]) @ x,
    "sorted": pt.sort(x),
    "cumulative": pt.cumsum(x),
    "largest": pt.max(x),
    "repeated": pt.tile(x, 2),
    "decided when it runs": pt.switch(x.shape[0] > 7, x.sum(), 0.0),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("output", PROGRAMS.values(), ids=PROGRAMS)
def test_a_vector_of_symbolic_length(output):
    holds([x], output, ["b"], X)


MATRICES = {
    "flat": m.reshape((m.shape[0] * m.shape[1],)),
    "rest": m.ravel(),
    "centered": m - m.mean(axis=0),
    "gram": m.T @ m,
    "rows": scan(lambda c, r: (c + r, c.sum()), pt.zeros(m.shape[1]), m),
    "loop in a loop": scan(
        lambda c, r: (c + scan(lambda d, e: (d + e * c, None), pt.zeros(()), r)[0], None),
        pt.ones(()),
        m,
    )[0],
}


@pytest.mark.parametrize("output", MATRICES.values(), ids=MATRICES)
def test_a_matrix_of_two_symbolic_lengths(output):
    holds([m], output, ["b, c"], M)


def test_constraints_decide():
    powers = scan(lambda c, _: (c * x, None), pt.ones_like(x), length=x.shape[0] - 1)[0]
    tail = scan(lambda c, r: (c + r, c), pt.zeros(()), x[1:])
    holds([x], [powers, *tail, pytensor.grad(tail[1].sum(), x)], ["b"], X, constraints=["b >= 2"])
    holds([x], [x[2], x[:3].sum()], ["b"], X, constraints=["b >= 3"])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("loops", ["xla", "native"])
def test_derivatives_and_native_programs(loops):
    f = jaxify([x], final / x.shape[0], loops=loops)
    for g in (jax.grad(f), jax.jit(jax.value_and_grad(f)), loopax.grad(f)):
        call = roundtrip(g, *lengths(["b"]))
        for given in (X, X[:2]):
            for got, want in zip(
                jax.tree.leaves(call(given)), jax.tree.leaves(g(given)), strict=True
            ):
                np.testing.assert_allclose(got, want, rtol=1e-12)


def test_the_program_that_is_exported_has_no_number_for_the_length():
    actual = export.export(jaxify([x], [final, trace]))(*lengths(["b"]))
    assert [str(a.shape) for a in actual.out_avals] == ["()", "(b,)"]


# -- what cannot be ----------------------------------------------------------------------------------


def refused(output):
    with pytest.raises(DynamicShapeError) as error:
        export.export(jaxify([x], output))(*lengths(["b"]))
    return str(error.value)


def test_a_comparison_that_nobody_can_decide_says_which_constraint_would():
    said = refused(x[2])
    assert "Symbolic dimension comparison 'b' <= '2' is inconclusive." in said
    assert "jax.export.symbolic_shape('b', constraints=['b >= 10'])" in said
    assert "b - 1" in refused(scan(lambda c, r: (c + r, None), pt.zeros(()), x[1:])[0])
    assert "Subtensor" in said and "test_export.py" in said


def test_a_length_that_only_a_number_can_be():
    said = refused(x[x > 1].max())
    assert "or export the program for a length that is a number" in said
    call = roundtrip(jaxify([x], x[x > 1].max()), spec(5))
    np.testing.assert_allclose(call(X), X.max())


@pytest.mark.parametrize("out", [x[x > 1].sum(), pt.switch(x > 1, pt.log(x), 0.0).sum()])
def test_branches_of_a_length_that_is_not_known(out):
    f = jaxify([x], out)
    for g in f, jax.grad(f):
        call = roundtrip(g, *lengths(["b"]))
        np.testing.assert_allclose(call(X), g(X))


# -- checks ------------------------------------------------------------------------------------------

checked = (Assert("positive")(x, (x > 0).all()) ** 2).sum() / x.shape[0]


@pytest.mark.parametrize("length", [5, "b"])
@pytest.mark.parametrize("checks", ["checkify", "ignore"])
@pytest.mark.filterwarnings("ignore:The assertion 'positive' depends on traced values")
def test_a_program_with_checks(checks, length):
    given = lengths([length]) if length == "b" else [spec(length)]
    call = roundtrip(jaxify([x], checked, checks=checks), *given)
    np.testing.assert_allclose(call(np.abs(X)), (X**2).mean())


@pytest.mark.parametrize("length", [5, "b"])
@pytest.mark.parametrize("loops", ["xla", "native"])
def test_checks_that_call_python_are_refused(loops, length):
    given = lengths([length]) if length == "b" else [spec(length)]
    with pytest.raises(UnsupportedOpError, match="The check 'positive' calls Python") as error:
        export.export(jaxify([x], checked, checks="raise", loops=loops))(*given)
    assert "jaxify([x], [y, (x > 0).all()], checks='ignore')" in str(error.value)


def _stopping():
    a, x = pt.dscalar("a"), pt.dvector("x")

    def step(c, r):
        c = 0.9 * c + a * r
        return c, c, c > 2.0

    final, ys, _ = loopax.scan(step, pt.as_tensor(0.5), x)
    return jaxify([a, x], final), jaxify([a, x], ys.sum())


OF_A_STOPPING_LOOP = {
    "final": lambda: _stopping()[0],
    "gradient": lambda: jax.grad(_stopping()[0]),
    "gradient by rows": lambda: jax.grad(_stopping()[0], 1),
    "Hessian": lambda: jax.hessian(_stopping()[0]),
    "trace": lambda: _stopping()[1],
    "gradient of the trace": lambda: jax.grad(_stopping()[1]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OF_A_STOPPING_LOOP)
def test_a_loop_that_stops_after_a_symbol_of_steps(name):
    f = OF_A_STOPPING_LOOP[name]()
    (n,) = export.symbolic_shape("n")
    types = jax.ShapeDtypeStruct((), "float64"), jax.ShapeDtypeStruct((n,), "float64")
    exported = export.export(jax.jit(f))(*types)
    for length in (1, 5, 33, 100):  # it stops after ten steps; blocks have 32
        args = 0.8, np.full(length, 0.4)
        np.testing.assert_allclose(exported.call(*args), f(*args), rtol=1e-12)
