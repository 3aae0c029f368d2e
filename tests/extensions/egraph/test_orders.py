"""What PyTensor's order of rewrites loses, in every order in which it can be written."""

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as scalar_math
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.summary import Det
from pytensor.tensor.math import Dot

from tests.support.kept import rewritten

pytest.importorskip("egglog", reason="the extra egraph")

from loopax import jaxify, scan
from loopax.extensions.egraph.optimize import egraph

x = pt.dvector("x")
ONE, MINUS = np.ones(1), -np.ones(1)


def scalar_ops(graph: FunctionGraph) -> list[type]:
    return [type(n.op.scalar_op) for n in graph.apply_nodes if isinstance(n.op, Elemwise)]


def core_ops(graph: FunctionGraph) -> list[type]:
    ops = [n.op.core_op if isinstance(n.op, Blockwise) else n.op for n in graph.apply_nodes]
    return [type(op) for op in ops]


def simplified(outputs, *cases, inputs=(x,), rtol=1e-9, atol=1e-12):
    outputs = outputs if isinstance(outputs, list) else [outputs]
    graph = FunctionGraph([*inputs], outputs, clone=True)
    return rewritten(graph, egraph, *cases, rtol=rtol, atol=atol, idempotent=False)


# -- stable forms ------------------------------------------------------------------------------------

# https://github.com/pymc-devs/pytensor/issues/1476: neg is written as a product before it is looked for.
LOG1MEXP = {
    "log1p(-exp)": pt.log1p(-pt.exp(x)),
    "log1p(-1 * exp)": pt.log1p(MINUS * pt.exp(x)),
    "log1p(exp * -1)": pt.log1p(pt.exp(x) * MINUS),
    "log(1 - exp)": pt.log(ONE - pt.exp(x)),
    "log(-exp + 1)": pt.log(-pt.exp(x) + ONE),
    "log(1 + -1 * exp)": pt.log(ONE + MINUS * pt.exp(x)),
    "log(-expm1)": pt.log(-pt.expm1(x)),
    "log(-1 * expm1)": pt.log(MINUS * pt.expm1(x)),
    "log(-(exp - 1))": pt.log(-(pt.exp(x) - ONE)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("written", LOG1MEXP)
def test_log1mexp(written):
    graph = simplified(LOG1MEXP[written], [np.array([-0.5, -2.0, -30.0])])
    assert scalar_ops(graph) == [scalar_math.Log1mexp]


def test_digits_that_are_lost_are_there_again():
    """``log(1 - exp(-1e-20))`` is -inf as it is written, and the logarithm of 1e-20."""
    graph = FunctionGraph([x], [pt.log(ONE - pt.exp(x))], clone=True)
    egraph(graph)
    from loopax.ir import evaluate

    np.testing.assert_allclose(evaluate(graph, np.array([-1e-20]))[0], np.log(1e-20))


SOFTPLUS = {
    "log1p(exp)": pt.log1p(pt.exp(x)),
    "log(1 + exp)": pt.log(ONE + pt.exp(x)),
    "log(exp + 1)": pt.log(pt.exp(x) + ONE),
    "log(1 - -exp)": pt.log(ONE - (-pt.exp(x))),
    "-log(sigmoid(-x))": -pt.log(pt.sigmoid(-x)),
    "-log1p(-sigmoid)": -pt.log1p(-pt.sigmoid(x)),
    "-log(1 - sigmoid)": -pt.log(ONE - pt.sigmoid(x)),
    "-1 * log(1 + -1 * sigmoid)": MINUS * pt.log(ONE + MINUS * pt.sigmoid(x)),
}


@pytest.mark.parametrize("written", SOFTPLUS)
def test_softplus(written):
    graph = simplified(SOFTPLUS[written], [np.array([-3.0, 0.0, 2.0])])
    assert scalar_ops(graph) == [scalar_math.Softplus]


def test_a_rule_that_holds_for_some_signs_asks():
    """``softplus(log(x))`` is nan below 0, and ``log1p(x)`` is not (PyTensor's issue 1451)."""
    at = [np.array([-0.5, 0.5])]
    with np.errstate(invalid="ignore"):
        kept = simplified(pt.softplus(pt.log(x)), at)
    assert scalar_math.Softplus in scalar_ops(kept)
    assert ps.Log1p in scalar_ops(simplified(pt.softplus(pt.log(pt.sqr(x))), at))


def test_a_term_used_twice_is_paid_once():
    """``exp(x)`` is there: its double is its square, and nothing but."""
    graph = simplified([pt.exp(x), pt.exp(2 * ONE * x)], [np.array([0.3, -1.0])])
    assert scalar_ops(graph).count(ps.Exp) == 1
    alone = simplified(pt.sqr(pt.exp(x)), [np.array([0.3])])
    assert scalar_ops(alone).count(ps.Exp) == 1


# -- indexing and switch -----------------------------------------------------------------------------


def test_a_function_of_few_rows_read_many_times():
    a = pt.tensor("a", shape=(10,))
    rows = np.arange(400) % 10
    at = [np.linspace(-1, 1, 10)]
    graph = simplified(pt.exp(a[rows] * 2.0 * ONE).sum(), at, inputs=[a])
    [exp] = [n for n in graph.apply_nodes if scalar_ops_of(n) is ps.Exp]
    assert exp.outputs[0].type.shape == (10,)


def test_a_function_of_many_rows_of_which_few_are_read():
    a = pt.tensor("a", shape=(400,))
    graph = simplified(pt.exp(a)[np.array([3, 1])], [np.linspace(-1, 1, 400)], inputs=[a])
    [exp] = [n for n in graph.apply_nodes if scalar_ops_of(n) is ps.Exp]
    assert exp.outputs[0].type.shape == (2,)


def test_an_access_stays_where_two_operands_differ_in_shape():
    """``a`` is broadcast over the rows of ``b``: to read rows of it would be another program."""
    a, b = pt.tensor("a", shape=(1,)), pt.tensor("b", shape=(400,))
    at = [np.array([0.5]), np.linspace(-1, 1, 400)]
    graph = simplified(pt.exp(a + b)[np.array([3, 1])], at, inputs=[a, b])
    [exp] = [n for n in graph.apply_nodes if scalar_ops_of(n) is ps.Exp]
    assert exp.outputs[0].type.shape == (2,)


def scalar_ops_of(node):
    return type(getattr(node.op, "scalar_op", None))


def test_a_switch_of_a_constant_condition_computes_what_is_needed():
    """``switch(c, f(x), g(x))`` summed: each function for its own rows."""
    a = pt.tensor("a", shape=(1000,))
    c = np.arange(1000) % 3 == 0
    at = [np.linspace(0.5, 3.0, 1000)]
    graph = simplified(pt.switch(c, pt.gammaln(a), pt.erfcx(a)).sum(), at, inputs=[a])
    shapes = {scalar_ops_of(n): n.outputs[0].type.shape for n in graph.apply_nodes}
    assert shapes[scalar_math.GammaLn] == (334,) and shapes[scalar_math.Erfcx] == (666,)
    assert ps.Switch not in scalar_ops(graph)


def test_a_switch_as_two_set_subtensor_where_that_pays():
    a = pt.tensor("a", shape=(1000,))
    c = np.arange(1000) % 3 == 0
    at = [np.linspace(0.5, 3.0, 1000)]
    graph = simplified(pt.switch(c, pt.gammaln(a), pt.erfcx(a)), at, inputs=[a])
    assert ps.Switch not in scalar_ops(graph)
    cheap = simplified(pt.switch(c, -a, a * a), at, inputs=[a])
    assert ps.Switch in scalar_ops(cheap)  # two functions of a cycle each: one loop is best


@pytest.mark.parametrize("f", [pt.exp, pt.gammaln])
def test_a_function_of_what_was_set(f):
    """https://github.com/pymc-devs/pytensor/issues/2138: a function of the rows that were written."""
    y = pt.tensor("y", shape=(5,))
    written = pt.set_subtensor(pt.constant(np.full(400, 2.0))[np.arange(5) * 7], y)
    graph = simplified(f(written), [np.linspace(0.5, 2.0, 5)], inputs=[y])
    functions = [n for n in graph.apply_nodes if isinstance(n.op, Elemwise)]
    variable = [n for n in functions if n.inputs[0] in graph.inputs]
    assert [n.outputs[0].type.shape for n in variable] == [(5,)]


def test_a_function_of_what_was_set_in_another_dtype():
    """The value is cast to the array's dtype before the function; in float32 it would be rounded."""
    y = pt.tensor("y", shape=(None,))

    def step(c, _):
        c = pt.tanh(pt.set_subtensor(c[2], 2.5))
        return c, c

    rows = scan(step, y, None, length=4)[1]
    start = np.linspace(-1.0, 1.0, 5)
    actual, expected = (
        np.asarray(jaxify([y], rows, loops="xla", optimize=optimize)(start))
        for optimize in ("egraph", "none")
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-14)


def test_one_function_for_both_branches():
    c = pt.tensor("c", shape=(50,), dtype="bool")
    a, d = pt.tensor("a", shape=(50,)), pt.tensor("d", shape=(50,))
    at = [np.arange(50) % 3 == 0, np.linspace(-1, 1, 50), np.linspace(2, 1, 50)]
    graph = simplified(pt.switch(c, pt.exp(a), pt.exp(d)), at, inputs=[c, a, d])
    assert scalar_ops(graph).count(ps.Exp) == 1


# -- linear algebra ----------------------------------------------------------------------------------

A, B = (pt.tensor(name, shape=(20, 20)) for name in "AB")
b = pt.tensor("b", shape=(20,))
RNG = np.random.default_rng(0)
MATRICES = [RNG.normal(size=(20, 20)) + 20 * np.eye(20) for _ in "AB"]
VECTOR = RNG.normal(size=20)

SOLUTIONS = {
    "inv(A) @ b": pt.linalg.inv(A) @ b,
    "b @ inv(A)": b @ pt.linalg.inv(A),
    "inv(A).T @ b": pt.linalg.inv(A).T @ b,
    "(2 * inv(A)) @ b": (np.full((1, 1), 2.0) * pt.linalg.inv(A)) @ b,
    "inv(2 * A) @ b": pt.linalg.inv(np.full((1, 1), 2.0) * A) @ b,
    "b @ inv(A) @ b": b @ pt.linalg.inv(A) @ b,
    "b @ (inv(A) @ b)": b @ (pt.linalg.inv(A) @ b),
}


@pytest.mark.parametrize("written", SOLUTIONS)
def test_no_inverse_is_computed(written):
    graph = simplified(SOLUTIONS[written], [MATRICES[0], VECTOR], inputs=[A, b])
    ops = core_ops(graph)
    assert MatrixInverse not in ops and ops.count(Solve) == 1


def test_a_product_of_matrices_and_a_vector_is_two_of_vectors():
    graph = simplified((A @ B) @ b, [*MATRICES, VECTOR], inputs=[A, B, b])
    shapes = [n.outputs[0].type.shape for n in graph.apply_nodes if isinstance(n.op, Dot)]
    assert shapes == [(20, 1), (20, 1)]


@pytest.mark.parametrize(
    "trace",
    [pt.trace(A @ B), pt.trace((A @ B).T), pt.trace(B.T @ A.T)],
    ids=["AB", "(AB)'", "B'A'"],
)
def test_a_trace_of_a_product_is_no_product(trace):
    assert Dot not in core_ops(simplified(trace, MATRICES, inputs=[A, B]))


def test_a_determinant_of_an_inverse():
    graph = simplified(pt.linalg.det(pt.linalg.inv(A)), [MATRICES[0]], inputs=[A])
    assert MatrixInverse not in core_ops(graph) and Det in core_ops(graph)


def test_a_sum_that_is_a_number_leaves_nothing_of_its_terms():
    """``s * sum(second(f(x), 1))`` is ``400 * s``: the product is the same, what it is of is not."""
    a, s = pt.tensor("a", shape=(400,)), pt.dscalar("s")
    counted = s * pt.second(pt.erfcx(a), ONE).sum()
    graph = simplified(counted, [np.linspace(0, 1, 400), 0.5], inputs=[a, s])
    assert scalar_math.Erfcx not in scalar_ops(graph)
