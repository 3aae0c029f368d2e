"""Which functions a program has for which lengths: they are run as Python, nothing is compiled."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import jaxify
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, evaluate
from loopax.numba_backend.callable.program import native_variants
from loopax.numba_backend.emit import size_specializations as module
from loopax.numba_backend.runtime.checks import StateChangesShape
from tests.numba_backend.interpreted import as_python, interpreted, lowered

i = pt.lscalar("i")


@pytest.fixture
def turned():
    """A state turned by a matrix once for each row: two lengths that are one, and two of a sequence."""
    A, s0, rows = pt.dmatrix("A"), pt.dvector("s0"), pt.dmatrix("rows")
    states = pytensor.scan(
        lambda row, s, A: A @ s + row.sum(),
        sequences=[rows],
        outputs_info=[s0],
        non_sequences=[A],
        return_updates=False,
    )
    return lowered([A, s0, rows], [states[-1]])


def lengths(actual, n, k=1):
    """What `find` takes for a state of ``n`` elements and rows of ``k``."""
    of = {(0, 0): n, (0, 1): n, (1, 0): n, (2, 1): k}
    return tuple(of[axis] for axis in actual.axes)


def test_lengths_of_sequences_make_no_function(turned):
    actual = as_python(turned)
    assert {(0, 0), (0, 1), (1, 0)} <= {*actual.axes} and (2, 0) not in actual.axes


def test_one_function_for_each_set_of_small_lengths(turned):
    actual = as_python(turned)
    general = actual.source
    two, three = (actual.find(lengths(actual, n)) for n in (2, 3))
    assert two is not three and "matvec(" in general and "matvec(" not in actual.source
    assert actual.find(lengths(actual, 2)) is two is actual.by_lengths[lengths(actual, 2)]
    long = actual.find(lengths(actual, module.LONGEST + 1, 20))
    assert long is actual.find(lengths(actual, 1000, 20)) and long not in (two, three)
    assert len(actual.by_lengths) == 4


def test_after_four_sets_one_function_serves_all_others(turned):
    actual = as_python(turned)
    made = [actual.find(lengths(actual, n)) for n in range(1, 8)]
    assert len({*made[:4]}) == 4
    assert made[4] is made[5] is made[6] and made[4] not in made[:4]
    assert [actual.find(lengths(actual, n)) for n in range(1, 8)] == made


def test_values_for_every_length(turned):
    run = interpreted(turned, sized=True)
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 3, 2, 4, 9, 6):
        given = rng.normal(size=(n, n)), rng.normal(size=n), rng.normal(size=(3, 2))
        (wanted,) = evaluate(turned, *given)
        np.testing.assert_allclose(run(*given)[0], wanted, rtol=1e-12, strict=True)


def test_lengths_that_do_not_fit_are_an_error_of_the_call(turned):
    run = interpreted(turned, sized=True)
    with pytest.raises(ValueError, match="mismatch"):
        run(np.ones((2, 2)), np.ones(3), np.ones((3, 2)))
    assert run(np.eye(2), np.ones(2), np.zeros((3, 2)))[0].tolist() == [1.0, 1.0]


def test_what_is_remembered_of_lengths_is_limited(turned, monkeypatch):
    monkeypatch.setattr(module, "_REMEMBERED", 3)
    actual = as_python(turned)
    functions = [actual.find(lengths(actual, 2, k)) for k in range(20, 30)]
    assert len({*functions}) == 1 and len(actual.by_lengths) <= 3


def growing():
    """A state that doubles at each step, if ``k`` is 2, and one that keeps its shape."""
    v, s, k = pt.dvector("v"), pt.dvector("s"), pt.lscalar("k")
    scan = Scan.from_body(
        BodyArgs(i, [], [v, s], [k]),
        BodyOuts([pt.tile(v, (k,)) + i, s * 2.0 + v.sum()], [v.shape[0]]),
    )
    v0, s0, n = pt.dvector("v0"), pt.dvector("s0"), pt.lscalar("n")
    return lowered([n, v0, s0, k], scan.bind(ScanArgs(n, [], [v0, s0], [k])))


@pytest.mark.parametrize("sized", [False, True])
def test_a_state_that_grows_from_step_to_step(sized):
    graph = growing()
    run = interpreted(graph, sized)
    # At first it keeps its shape, then it does not, then it does again.
    for n, k in ((3, 1), (0, 2), (3, 2), (2, 1), (4, 2)):
        given = np.array(n), np.array([1.0, -1.0]), np.ones(3), np.array(k)
        for a, b in zip(run(*given), evaluate(graph, *given), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, strict=True)


def state_of(step):
    """The source of a loop over the rows of a matrix, whose state is a vector."""
    rows, s0 = pt.dmatrix("rows"), pt.dvector("s0")
    states = pytensor.scan(step, sequences=[rows], outputs_info=[s0], return_updates=False)
    return as_python(lowered([rows, s0], [states[-1]])).source


def test_what_the_graph_says_of_shapes_is_not_asked_when_the_program_runs():
    keeps = state_of(lambda row, s: pt.tanh(s) + row)
    assert "kept(" not in keeps and keeps.count(" = empty(") == 1, "a room that is overwritten"
    unknown = state_of(lambda row, s: row * s.sum())
    assert "kept(" in unknown and unknown.count(" = empty(") == 2


def test_a_state_that_gets_longer_has_no_room_for_all_steps():
    s, s0, n = pt.dvector("s"), pt.dvector("s0"), pt.lscalar("n")
    longer = pt.concatenate([s, [1.0]])
    scan = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([longer], []))
    graph = lowered([n, s0], scan.bind(ScanArgs(n, [], [s0], [])))
    assert "kept(" not in as_python(graph).source
    np.testing.assert_array_equal(interpreted(graph)(np.array(2), np.zeros(1))[0], [0.0, 1.0, 1.0])


def test_functions_for_states_that_keep_their_shapes_are_not_used_again():
    actual = as_python(growing())
    sizes = (2,) * len(actual.axes)
    before = actual.find(sizes)
    given = 3, np.array([1.0, -1.0]), np.ones(3), 2
    with pytest.raises(StateChangesShape):
        before.py_func(*given)
    actual.changing()
    assert not actual.by_lengths
    after = actual.find(sizes)
    assert after is not before and after.py_func(*given)[0].shape == (16,)
    actual.changing()  # of another thread, later
    assert actual.find(sizes) is after


def test_it_does_not_pickle(turned):
    with pytest.raises(TypeError, match="does not pickle"):
        pickle.dumps(as_python(turned))


@pytest.fixture
def inner_products():
    """A product of two matrices and one with a vector, for native callers."""
    A, B, x = pt.dmatrix("A"), pt.dmatrix("B"), pt.dvector("x")
    return native_variants(lowered([A, B, x], [A @ B, A @ x]), "raise", inner=True)


def calls_in(source):
    names = {"matmul", "matmul_by_blas", "matvec", "matvec_by_blas"}
    return {name for name in names if f" {name}(" in source}


def test_products_for_native_callers_are_loops_or_calls_of_blas(inner_products):
    actual = inner_products
    assert calls_in(actual.source) == {"matmul", "matmul_by_blas", "matvec", "matvec_by_blas"}

    def found(m, n, k):
        lengths = {(0, 0): m, (0, 1): n, (1, 0): n, (1, 1): k, (2, 0): n}
        return actual.find(tuple(lengths[axis] for axis in actual.axes))

    small = found(20, 5, 3)
    assert calls_in(actual.source) == {"matmul", "matvec"}
    large = found(20_000, 50, 30)
    assert calls_in(actual.source) == {"matmul_by_blas", "matvec_by_blas"}
    between = found(50, 50, 30)
    assert calls_in(actual.source) == {"matmul_by_blas", "matvec"}
    assert len({small, large, between}) == 3
    assert found(30, 4, 2) is small and found(9_000, 90, 40) is large


def test_after_four_sets_of_outcomes_a_program_has_both(inner_products):
    actual = inner_products
    actual._functions = dict.fromkeys(range(module._MOST))
    actual.find(tuple(2000 for _ in actual.axes))
    assert calls_in(actual.source) == {"matmul", "matmul_by_blas", "matvec", "matvec_by_blas"}


def test_products_of_direct_callers_are_decided_at_run_time():
    A, x = pt.dmatrix("A"), pt.dvector("x")
    actual = native_variants(lowered([A, x], [A @ x]), "raise")
    assert not actual.axes
    actual.find(())
    assert calls_in(actual.source) == {"matvec", "matvec_by_blas"}


@pytest.mark.parametrize("m", [1, 20, 700])
def test_products_of_each_size_in_jax(m):
    A, x = pt.dmatrix("A"), pt.dvector("x")
    f = jaxify([A, x], [A @ x, (A @ A.T).sum(0), A.T @ (A @ x)], loops="native")
    a, b = np.random.default_rng(m).normal(size=(m, 9)), np.arange(9.0)
    for actual, expected in zip(f(a, b), [a @ b, (a @ a.T).sum(0), a.T @ (a @ b)], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
