"""Values that are no arrays of real numbers: generators, lists, sparse matrices, slices."""

import re

import numpy as np
import pytensor
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytensor.tensor.random.basic as rv
import pytest
import scipy.sparse
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import RandomGeneratorType, random_generator_type
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.type_other import SliceType, make_slice
from pytensor.typed_list import (
    TypedListType,
    append,
    count,
    extend,
    index_,
    insert,
    length,
    make_list,
    remove,
    reverse,
)

import loopax
from loopax.base.errors import UnsupportedOpError
from loopax.numba_backend.callable.program import compile_program
from loopax.numba_backend.runtime.samplers import sampler
from tests.numba_backend.agreement import assert_agrees
from tests.numba_backend.interpreted import interpreted, lowered

x, v, n = pt.dscalar("x"), pt.dvector("v"), pt.lscalar("n")
rng, other = random_generator_type("rng"), random_generator_type("other")
Vectors, Generators = TypedListType(pt.dvector), TypedListType(RandomGeneratorType())
xs, ys = Vectors("xs"), Vectors("ys")


def generator(seed):
    return np.random.default_rng(seed)


def normal(state, *params, **options):
    return pt.random.normal(*params, rng=state, return_next_rng=True, **options)


# -- generators ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_draws_are_those_of_numpy():
    """In a row, twice from one variable, in a loop that carries the generator and emits it."""
    second, a = normal(rng, x, 2.0)
    third, b = normal(second, size=(3,))
    _, again = normal(rng, x, 2.0)

    def step(carry, _):
        state, s = carry
        state, e = normal(state, s, 1.0)
        return (state, e), (e, state)

    (last, s), (walk, states) = loopax.scan(step, (third, x), None, length=n)
    outputs = [a, b, again, third, rng, last, s, walk, states, length(states)]
    run = assert_agrees([rng, x, n], outputs, [generator(1), 0.5, 3], [generator(2), -1.0, 0])
    loops = re.findall(r"\n    (?:while|for) .*\n((?: {8}.*\n)+)", run.source)
    (loop,) = [text for text in loops if ".append(" in text]
    assert loop.count("deepcopy") == 1  # into the trace: the loop draws from the one it carries


@pytest.mark.slow
def test_generators_in_branches_and_swapped():
    drawn = loopax.cond(x > 0, lambda r: normal(r, x), lambda r: (r, x * 2), rng)
    swapped = loopax.cond(x > 0, lambda: (rng, other), lambda: (other, other))

    def step(carry, _):
        a, b = carry
        following, e = normal(a)
        return (b, following), e - normal(a)[1] + pt.random.uniform(rng=b, return_next_rng=True)[1]

    (first, second), es = loopax.scan(step, (rng, other), None, length=3)
    (same, too), _ = loopax.scan(lambda c, _: ((c[1], c[1]), c[0]), (rng, other), None, length=2)
    outputs = [*drawn, *[normal(r)[1] for r in swapped], *swapped, first, second, es]
    outputs += [
        normal(same)[1],
        normal(too)[1],
        normal(RandomGeneratorType().make_constant(generator(7)))[1],
    ]
    cases = [[generator(1), generator(2), sign] for sign in (1.0, -1.0)]
    assert_agrees([rng, other, x], outputs, *cases)


PARAMETERS = {
    "uniform": (0.0, 2.0), "triangular": (0.0, 0.5, 2.0), "beta": (1.5, 2.0), "normal": (1.0, 2.0),
    "halfnormal": (1.0, 2.0), "lognormal": (0.1, 0.5), "gamma": (2.0, 1.5), "pareto": (2.0, 1.0),
    "gumbel": (0.0, 1.0), "exponential": (2.0,), "weibull": (1.5,), "logistic": (0.0, 1.0),
    "vonmises": (0.5, 2.0), "poisson": (3.0,), "geometric": (0.3,), "cauchy": (0.5, 2.0),
    "halfcauchy": (0.5, 2.0), "invgamma": (2.0, 1.5), "wald": (1.0, 2.0), "laplace": (0.0, 1.0),
    "truncexpon": (1.0, 2.0, 0.5), "t": (3.0, 1.0, 2.0), "bernoulli": (0.3,), "binomial": (10, 0.3),
    "negative_binomial": (5, 0.3), "gengamma": (2.0, 1.5, 2.0), "integers": (0, 10),
    "categorical": ([0.2, 0.5, 0.3],), "multinomial": (10, [0.2, 0.5, 0.3]),
    "dirichlet": ([1.0, 2.0, 0.3],),
}  # fmt: skip
BY_CLASS = {c.name: c for c in vars(rv).values() if isinstance(c, type) and getattr(c, "name", "")}


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
def test_every_distribution(name):
    """One draw, many, and one for each row of the parameters; natively."""
    op, params, state, outputs = BY_CLASS[name](), PARAMETERS[name], rng, []
    rows = [pt.as_tensor(np.stack([p] * 4)) for p in params]
    for size, given in [(None, params), ((2, 3), params), ((2, 4), rows), (None, rows)]:
        node = op.make_node(state, size, *given)
        assert sampler(op, node) is not None
        state, draws = node.outputs
        outputs.append(draws)
    assert_agrees([rng], [*outputs, state], [generator(5)])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cholesky", "svd", "eigh"])
def test_draws_that_are_arrays(method):
    second, order = pt.random.permutation(pt.arange(6), rng=rng, return_next_rng=True)
    third, rows = pt.random.permutation(
        pt.arange(6.0).reshape((3, 2)), rng=second, return_next_rng=True
    )
    fourth, numbers = pt.random.permutation(n, rng=third, return_next_rng=True)
    cov = pt.as_tensor([[2.0, 0.5], [0.5, 1.0]])
    last, points = pt.random.multivariate_normal(
        pt.zeros((3, 2)), cov, method=method, rng=fourth, return_next_rng=True
    )
    _, small = pt.random.dirichlet([0.01, 0.02, 0.03], rng=last, return_next_rng=True)
    assert_agrees([rng, n], [order, rows, numbers, points, small, last], [generator(1), 5])


def test_parameters_out_of_range():
    drawn = [normal(rng, 0.0, x)[1], rv.bernoulli(x, rng=rng, return_next_rng=True)[1]]
    run = interpreted(lowered([rng, x], drawn))
    assert len(run(generator(1), 0.5)) == 2
    for wrong in (-1.0, 1.5, np.nan):
        with pytest.raises(ValueError, match="out of range"):
            run(generator(1), wrong)


def test_distributions_without_a_sampler_run_as_python():
    drawn = pt.random.choice(pt.arange(9), size=4, replace=False, rng=rng, return_next_rng=True)
    with pytest.warns(UserWarning, match="choice_without_replacement"):
        assert_agrees([rng], [*drawn], [generator(3)])


# -- lists -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_lists_of_unequal_rows():
    longer = append(xs, v)
    outputs = [
        longer, extend(longer, ys), extend(xs, xs), insert(longer, 1, v), insert(xs, 99, v),
        remove(longer, v), remove(xs, v), reverse(longer), index_(longer, v), count(longer, v),
        length(longer), longer[0], longer[-1], longer[1:], xs, make_list([v, v * 2]),
    ]  # fmt: skip
    assert_agrees(
        [xs, v, ys],
        outputs,
        [[np.arange(3.0), np.ones(2)], np.ones(2), [np.ones(2)]],
        [[], np.array([1.0, np.nan]), []],
        [[np.array([np.nan, 1.0])[::-1], np.ones(1)], np.array([1.0, np.nan]), [np.ones(4)]],
    )


def test_an_index_outside_of_a_list():
    run = compile_program(FunctionGraph([xs, n, v], [xs[n], index_(xs, v)]))
    assert run([np.ones(1), np.zeros(2)], -1, np.ones(1))[1] == 0
    for k, row in [(2, np.ones(1)), (-3, np.ones(1)), (0, np.ones(3))]:
        with pytest.raises((IndexError, ValueError), match="out of bounds|not in the list"):
            run([np.ones(1), np.zeros(2)], k, row)


@pytest.mark.slow
def test_lists_as_states_and_results_of_branches():
    final, lengths = loopax.scan(lambda c, k: (append(c, v * k), length(c)), xs, pt.arange(3.0))
    chosen = loopax.cond(x > 0, lambda: append(xs, v), lambda: xs)
    outputs = [final, lengths, chosen, append(chosen, v), final[-1]]
    assert_agrees([xs, v, x], outputs, [[np.ones(1)], np.ones(2), 1.0], [[], np.ones(3), -1.0])


@pytest.mark.slow
def test_lists_of_anything():
    nested, flat = TypedListType(Vectors)("nested"), TypedListType(pt.dscalar)("flat")
    states = Generators("states")
    outputs = [
        append(nested, xs), length(nested), nested[0][0], count(nested, xs), reverse(nested),
        append(flat, x), append(flat, x)[0] * 2, count(flat, x),
        append(states, rng), normal(states[0])[1], normal(states[0])[1], states[0],
    ]  # fmt: skip
    case = [[[np.ones(2), np.ones(3)], []], [], [np.array(1.0)], [generator(1)], generator(2), 1.0]
    assert_agrees([nested, xs, flat, states, rng, x], outputs, case)
    with pytest.warns(UserWarning, match="Count"):  # generators are compared by Python
        assert_agrees(
            [states, rng], [count(states, rng)], [[generator(1), generator(2)], generator(2)]
        )


# -- sparse, complex, slices -----------------------------------------------------------------------

CSR = scipy.sparse.random(4, 3, 0.5, format="csr", random_state=1)
CSC = scipy.sparse.random(4, 3, 0.5, format="csc", random_state=2)


@pytest.mark.slow
def test_sparse_matrices():
    a, b, m = ps.csr_matrix("a"), ps.csc_matrix("b"), pt.dmatrix("m")
    product = ps.structured_dot(a, m)
    final, sums = loopax.scan(lambda c, _: (c * 2.0, ps.sp_sum(c)), a, None, length=2)
    outputs = [a.T, ps.dense_from_sparse(b), product, a, ps.csr_from_dense(m), ps.sp_sum(b, axis=0)]
    outputs += [final, sums, *pytensor.grad(product.sum(), [m])]
    assert_agrees([a, b, m], outputs, [CSR, CSC, np.arange(6.0).reshape(3, 2)])


def test_a_sparse_input_and_output():
    a = ps.csr_matrix("a")
    run = assert_agrees([a], [a.T, ps.dense_from_sparse(a)], [CSR])
    wide = CSR.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    np.testing.assert_array_equal(run(wide)[1], CSR.toarray())


def test_lengths_of_sparse_matrices():
    """The lowered graph has these ops: rewrites have not dropped them."""
    a, n = ps.csr_matrix("a"), pt.lscalar("n")
    specified = SpecifyShape()(a, n, pt.constant(3))
    graph = FunctionGraph([a, n], [specified, Shape()(a), Shape_i(1)(a)], clone=True)
    run = compile_program(graph)
    same, lengths, columns = run(CSR, np.int64(4))
    np.testing.assert_array_equal(same.toarray(), CSR.toarray())
    assert (lengths.tolist(), columns) == ([4, 3], 3)
    with pytest.raises(AssertionError, match="expected 5"):
        run(CSR, np.int64(5))


@pytest.mark.slow
def test_complex_numbers_in_a_loop():
    z, w = pt.zvector("z"), pt.zscalar("w")
    final, rows = loopax.scan(lambda c, e: (c * 0.5 + e, c), w, z)
    outputs = [
        final,
        rows,
        z.sum(),
        pt.outer(z, z),
        pt.dot(z, z),
        z[0] * 2,
        w + 1j,
        z / w,
        pt.abs(z),
    ]
    assert_agrees([z, w], outputs, [np.array([1 + 2j, 3 - 1j]), 2j])


def test_slices_of_lists():
    part = SliceType()("part")
    outputs = [xs[part], xs[make_slice(n, None, None)]]
    rows = [np.ones(1), np.ones(2), np.ones(3)]
    assert_agrees([xs, part, n], outputs, [rows, slice(0, 2), 1], [rows, slice(1, 2), -1])


def test_types_that_are_refused():
    halves = pt.tensor("halves", dtype="float16", shape=(None,))
    with pytest.raises(UnsupportedOpError, match="'halves' of type .*float16"):
        compile_program(FunctionGraph([halves], [halves.astype("float64")]))
