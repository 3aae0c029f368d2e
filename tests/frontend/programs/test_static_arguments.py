"""`jaxify(..., static_argnames=)`: arguments that are values to a Python function, one trace for each."""

import functools

import jax
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import LoopTypeError, MissingInputError, explain, jaxify

XS = np.array([0.5, -1.0, 2.0])
BACKENDS = pytest.mark.parametrize("backend", ["jax", "numba"])


def made(backend, seen=None, **options):
    @jaxify(backend=backend, static_argnames=("kind", "power"), **options)
    def f(x, kind="sum", *, power=1):
        if seen is not None:
            seen.append((kind, power))
        total = x.sum() if kind == "sum" else x.max()
        return total**power if power else total

    return f


@BACKENDS
def test_a_static_argument_chooses_a_branch(backend):
    seen = []
    f = made(backend, seen)
    for _ in range(2):
        assert [float(f(XS)), float(f(XS, "max")), float(f(XS, kind="max"))] == [1.5, 2.0, 2.0]
        assert float(f(XS, power=2)) == 2.25
    # By position, by name, and by default are three structures, as they are for arrays.
    assert seen == [("sum", 1), ("max", 1), ("max", 1), ("sum", 2)]
    f(XS, power=2.0)
    f(XS, power=True and 2)
    assert len(seen) == 5 and isinstance(seen[-1][1], float)


@pytest.mark.sampled(1)
@BACKENDS
def test_under_transformations(backend):
    f = made(backend)
    for kind, slope in (("sum", [1, 1, 1]), ("max", [0, 0, 1])):
        assert loopax.grad(f)(XS, kind).tolist() == loopax.grad(f)(XS, kind=kind).tolist() == slope
        assert loopax.jacobian(f)(XS, kind).tolist() == slope
        value, actual = loopax.value_and_grad(f)(XS, kind=kind, power=1)
        assert float(value) == float(f(XS, kind)) and actual.tolist() == slope
    with_kind = loopax.vmap(f) if backend == "numba" else jax.vmap(functools.partial(f, kind="max"))
    kind = {"kind": "max"} if backend == "numba" else {}
    assert with_kind(np.stack([XS, XS]), **kind).tolist() == [2, 2]
    assert explain(f, XS, "max").name == "f"
    assert float(f.stateful()(XS, "max")) == 2


def test_under_jit():
    f = made("jax")
    assert jax.jit(f, static_argnames="kind")(XS, kind="max") == 2
    assert jax.jit(f, static_argnums=1)(XS, "max") == 2
    with pytest.raises(
        LoopTypeError, match=r"'power' of f is static.*tracer.*jit\(f, static_argnames="
    ):
        jax.jit(f)(XS, power=2)


def test_what_has_no_hash_or_is_no_argument():
    f = made("jax")
    with pytest.raises(
        LoopTypeError, match=r"'kind' of f is static.*\['max'\] of type list has no hash"
    ):
        f(XS, ["max"])
    with pytest.raises(LoopTypeError, match="static.*not the variable kind"):
        f(XS, pt.scalar("kind"))
    with pytest.raises(
        MissingInputError, match=r"static_argnames has 'mode'.*not an argument of .*\(x\)"
    ):
        jaxify(lambda x: x, static_argnames="mode")
    with pytest.raises(MissingInputError, match="static_argnames has 'xs'"):
        jaxify(lambda *xs: xs, static_argnames="xs")
    with pytest.raises(TypeError, match="takes the names of arguments, got 1 of type int"):
        jaxify(lambda x: x, static_argnames=(1,))
    x = pt.dvector("x")
    with pytest.raises(TypeError, match="static_argnames='x' works only with a Python function"):
        jaxify([x], x, static_argnames="x")
    with pytest.raises(TypeError, match="no option 'static_argnums'.*static_argnames='mode'"):
        jaxify(lambda x: x, static_argnums=0)
    assert float(jaxify(lambda x, **k: x * k["n"], static_argnames="n")(2.0, n=3)) == 6
