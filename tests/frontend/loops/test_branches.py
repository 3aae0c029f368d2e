"""`cond`: values, laziness, what the branches may return and capture."""

from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import Assert

from loopax import LoopTypeError, cond, jaxify, scan
from loopax.ir import Cond, check
from tests.support.compare import FAST_COMPILE, assert_agrees, value

XS = np.array([0.5, -1.0, 2.0, 3.0])
x = pt.dvector("x")
a = pt.dscalar("a")
n = pt.lscalar("n")
Pair = namedtuple("Pair", "first second")


def the_cond(variable):
    assert isinstance(variable.owner.op, Cond)
    check(FunctionGraph(outputs=[variable], clone=True))
    return variable.owner.op


@pytest.mark.sampled(1)
@pytest.mark.parametrize("at", [0.3, -0.3])
def test_cond_is_lax_cond(at):
    def up(v, k):
        return {"v": v**2 * k, "w": v.sum()}

    def down(v, k):
        return {"v": -v, "w": k}

    out = cond(a > 0, up, down, x, a)
    actual = assert_agrees([x, a], [out["v"], out["w"]], [XS, at], grad_wrt=[x, a])
    expected = jax.lax.cond(at > 0, up, down, jnp.asarray(XS), at)
    np.testing.assert_allclose(actual[0], expected["v"], rtol=1e-12)
    np.testing.assert_allclose(actual[1], expected["w"], rtol=1e-12)


def refuse(v):
    return Assert("computed")(v, pt.constant(np.array(False)))


def test_only_the_chosen_branch_runs():
    chosen = cond(a > 0, lambda: x * 2, lambda: refuse(x))
    np.testing.assert_array_equal(value(chosen, [x, a], [XS, 1.0]), 2 * XS)
    with pytest.raises(AssertionError, match="computed"):
        value(chosen, [x, a], [XS, -1.0])
    # What was there before the branch is computed in any case: it is not the branch's.
    before = refuse(x)
    eager = cond(a > 0, lambda: x * 2, lambda: before)
    with pytest.raises(AssertionError, match="computed"):
        value(eager, [x, a], [XS, 1.0])


def test_branches_hold_what_they_make_and_capture_what_they_use():
    far = pt.exp(a)
    out = cond(a > 0, lambda v: pt.sin(far) * v, lambda v: far + np.arange(4.0), x, name="wave")
    op = the_cond(out)
    assert {*out.owner.inputs[1:]} == {x, far}
    assert "sin" in str(op.fgraph.toposort()).lower()
    assert str(op) == "Cond{wave}"
    assert_agrees([x, a], out, [XS, 0.3], grad_wrt=[x, a])


def test_an_operand_that_is_not_read_is_no_input():
    out = cond(a > 0, lambda v, w: v, lambda v, w: -v, x, refuse(x))
    assert out.owner.inputs[1:] == [x]
    np.testing.assert_array_equal(value(out, [x, a], [XS, 1.0]), XS)


def test_a_constant_operand_stays_a_constant():
    kinds = []

    def branch(k, v):
        kinds.append(type(k))
        return v[:k]

    out = cond(a > 0, branch, branch, 2, x)
    assert all(issubclass(kind, pt.TensorConstant) for kind in kinds)
    np.testing.assert_array_equal(value(out, [x, a], [XS, 1.0]), XS[:2])


@pytest.mark.parametrize(
    ("then", "otherwise", "dtype", "shape"),
    [
        (lambda: a, lambda: 0, "float64", ()),
        (lambda: 0, lambda: a, "float64", ()),
        (lambda: pt.constant(0.5), lambda: a, "float64", ()),
        (lambda: a.astype("float32"), lambda: a, "float64", ()),
        (lambda: n, lambda: n.astype("int8"), "int64", ()),
        (lambda: 1, lambda: 0.5, "float64", ()),
        (lambda: pt.constant(1.0), lambda: 3, "int64", ()),
        (lambda: a.astype("float32"), lambda: 0.5, "float32", ()),
        (lambda: a.astype("float32"), lambda: 0.1, "float64", ()),
        (lambda: True, lambda: a > 3, "bool", ()),
        (lambda: np.zeros(3), lambda: x, "float64", (None,)),
        (lambda: x, lambda: np.zeros(3), "float64", (None,)),
        (lambda: np.zeros(3), lambda: np.zeros(4), "float64", (None,)),
        (lambda: np.zeros((3, 1)), lambda: np.zeros((3, 2), "float32"), "float64", (3, None)),
        (lambda: np.zeros(3), lambda: np.ones(3), "float64", (3,)),
    ],
)
def test_the_type_of_a_result(then, otherwise, dtype, shape):
    out = cond(pt.gt(a, 0), then, otherwise)
    assert (out.type.dtype, out.type.shape) == (dtype, shape)
    the_cond(out)
    for at in (1.0, -1.0):
        expected = (then if at > 0 else otherwise)()
        if isinstance(expected, pt.TensorVariable):
            run = pytensor.function(
                [x, a, n], expected, mode=FAST_COMPILE, on_unused_input="ignore"
            )
            expected = run(XS, at, 3)
        run = pytensor.function([x, a, n], out, mode=FAST_COMPILE, on_unused_input="ignore")
        actual = run(XS, at, 3)
        assert actual.dtype == dtype
        np.testing.assert_array_equal(actual, expected)


def test_branches_of_unequal_shapes():
    out = cond(pt.gt(n, 0), lambda: x[:1], lambda: x)
    run = pytensor.function([x, n], [out, out.shape[0], out.sum()], mode=FAST_COMPILE)
    for k, rows in [(1, 1), (0, 4)]:
        actual = run(XS, k)
        assert actual[0].shape == (rows,) and actual[1] == rows
        assert actual[2] == XS[:rows].sum()


@pytest.mark.parametrize(
    "tree", [lambda p, q: (p, [q]), Pair, lambda p, q: {"p": p, "q": (None, q)}]
)
def test_trees(tree):
    out = cond(
        a > 0, lambda t: tree(t["v"], a), lambda t: tree(-t["v"], t["w"]), {"v": x, "w": 1.0}
    )
    assert type(out) is type(tree(0, 0))
    leaves = jax.tree.leaves(out, is_leaf=lambda v: isinstance(v, pt.TensorVariable))
    for at, sign, last in [(2.0, 1, 2.0), (-2.0, -1, 1.0)]:
        v, w = value(leaves, [x, a], [XS, at])
        np.testing.assert_array_equal(v, sign * XS)
        assert w == last
    assert cond(a > 0, lambda: None, lambda: None) is None


@pytest.mark.slow
def test_nested_in_a_loop_and_in_itself():
    def step(c, r):
        new = cond(
            r > 0,
            lambda: cond(c > 1, lambda: c - r, lambda: c + r * a),
            lambda: scan(lambda s, v: (s + v * r, None), c, x)[0],
        )
        return new, new

    final, ys = scan(step, a, x)
    actual = assert_agrees([x, a], [final, ys], [XS, 0.3], grad_wrt=[x, a])
    c, expected = 0.3, []
    for r in XS:
        c = (c - r if c > 1 else c + r * 0.3) if r > 0 else c + XS.sum() * r
        expected.append(c)
    np.testing.assert_allclose(actual[1], expected, rtol=1e-12)
    assert actual[0] == actual[1][-1]


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize(
    "branches",
    [
        (lambda c, v: c - v, lambda c, v: 0.5 * v + c),
        (lambda c, v: v[pt.nonzero(c > -9)[0]], lambda c, v: v),  # only the second one tells
        (lambda c, v: cond(c[0] > 0, lambda: v * 2, lambda: c), lambda c, v: v),
    ],
)
def test_no_steps_emit_nothing_of_the_shape_that_a_branch_tells(branches, rows):
    v, m = pt.dvector("v"), pt.dmatrix("m")
    _, ys = scan(lambda c, r: (c, cond(r.sum() > 0, *branches, c, v)), v, m)
    run = pytensor.function([v, m], [ys, ys.shape], mode=FAST_COMPILE)
    actual, shape = run(np.ones(3), np.ones((rows, 4)))
    assert actual.shape == (*shape,) == (rows, 3)


def test_a_gradient_inside_a_branch():
    out = cond(a > 0, lambda: pytensor.grad((x**2).sum() * a, x), lambda: x)
    np.testing.assert_allclose(value(out, [x, a], [XS, 2.0]), 4 * XS)
    np.testing.assert_allclose(jaxify([x, a], out)(XS, -2.0), XS)


@pytest.mark.parametrize("pred", [True, np.bool_(False), pt.constant(np.array(True))])
def test_a_condition_may_be_known(pred):
    expected = 2 if pred is np.False_ else 1
    assert value(cond(pred, lambda: 1, lambda: 2)) == expected


@pytest.mark.parametrize(
    ("pred", "match"),
    [
        (a, r"condition of cond is Scalar\(float64.*compare, as in x > 0"),
        (n, r"condition of cond is Scalar\(int64"),
        (1, "condition of cond is 1 of type int"),
        (x > 0, r"condition of cond is Vector\(bool.*\.any\(\) or \.all\(\)"),
    ],
)
def test_the_condition_is_checked(pred, match):
    with pytest.raises(LoopTypeError, match=match):
        cond(pred, lambda: 1, lambda: 2)


@pytest.mark.parametrize(
    ("then", "otherwise", "match"),
    [
        (
            lambda: (a, a),
            lambda: [a, a],
            r"different structures(.|\n)*true_fn: .*\(\*, \*\)(.|\n)*\[\*, \*\]",
        ),
        (lambda: a, lambda: None, "true_fn: .*with out\n  false_fn: .*with no leaf"),
        (
            lambda: {"v": a},
            lambda: {"v": x},
            r"out\['v'\] is Scalar(.|\n)*'a'(.|\n)*'x'(.|\n)*pt.zeros",
        ),
        (
            lambda: n,
            lambda: a,
            r"out is Scalar\(int64.* in true_fn and Scalar\(float64.* in false_fn",
        ),
        (lambda: 0.5, lambda: n, r"out is Scalar\(float64.*astype\('float64'\)|result.astype"),
        (lambda: a, lambda: "text", "out is 'text' of type str"),
    ],
)
def test_branches_are_compared(then, otherwise, match):
    with pytest.raises(LoopTypeError, match=match):
        cond(a > 0, then, otherwise)


def test_the_name_is_in_the_messages():
    with pytest.raises(LoopTypeError, match="branches of cond 'price' return different types"):
        cond(a > 0, lambda: a, lambda: x, name="price")
    with pytest.raises(LoopTypeError, match=r"operands\[1\]\['k'\] is 'text'"):
        cond(a > 0, lambda *v: a, lambda *v: a, x, {"k": "text"})
