"""Masks beside every other kind of index, read, written and summed, against NumPy, in both backends."""

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import LoopTypeError, jaxify
from tests.numba_backend.interpreted import interpreted, lowered
from tests.support.compare import FAST_COMPILE

rng = np.random.default_rng(0)
X = np.arange(24.0).reshape(2, 3, 4)
MASKS = {
    (0,): np.array([True, False]),
    (1,): np.array([True, False, True]),
    (2,): np.array([False, True, True, True]),
    (0, 1): np.array([[True, False, True], [False, False, True]]),
    (1, 2): rng.random((3, 4)) > 0.5,
    (0, 1, 2): rng.random((2, 3, 4)) > 0.5,
}
SLICES = {"all": slice(None), "part": slice(1, None), "back": slice(None, None, -1)}
OTHERS = SLICES | {"integer": -1, "integers": np.array([1, 0]), "column": np.array([[1], [0]])}


def is_mask(e: Any) -> bool:
    return isinstance(e, np.ndarray) and e.dtype == bool


def indices(others: Any) -> Any:
    """A mask at each place, with all others before it and behind; where NumPy takes them together."""
    for axes, mask in MASKS.items():
        for before in itertools.product(others, repeat=axes[0]):
            for n in range(3 - axes[-1]):
                for behind in itertools.product(others, repeat=n):
                    index = (*(others[k] for k in before), mask, *(others[k] for k in behind))
                    try:
                        X[index]
                    except IndexError:
                        continue
                    yield index


MORE = [
    (slice(None), MASKS[1,], np.array([True, False, False, True])),
    (MASKS[0,], slice(None), MASKS[2,]),  # one row goes with all of them
    (None, MASKS[0,]),
    (MASKS[0,], None),
    (slice(None), None, MASKS[1,]),
    (None, MASKS[0,], None, 1),
]


def values_for(shape: tuple[int, ...], alike: int | None = None) -> Any:
    """A number; arrays of ``shape``, with axes that are broadcast; all the same along axis ``alike``."""
    yield 1.5
    for k in range(len(shape)):
        if alike is None or k > alike:
            yield rng.normal(size=shape[k:])
        if alike is None or k == alike:
            yield rng.normal(size=(*shape[:k], 1, *shape[k + 1 :]))


@dataclass
class Case:
    out: Any
    expected: Any
    what: str


def write(x: Any, index: Any, y: Any, masked: Any = None) -> Any:
    """Set and increment; ``masked`` is the index in PyTensor, where it is another."""
    place = x[index if masked is None else masked]
    for sets in (True, False):
        expected = X.copy()
        if sets:
            expected[index] = y
        else:
            np.add.at(expected, index, y)
        out = (pt.set_subtensor if sets else pt.inc_subtensor)(place, y)
        # A write to ``x[None]`` is one to that array in PyTensor.
        if any(e is None for e in index):
            out = out.reshape(x.shape)
        yield Case(out, expected, f"{'set' if sets else 'inc'} {index} {np.shape(y)}")


def constant_cases() -> Any:
    x = pt.dtensor3("x")
    cases = []
    for index in [*indices(OTHERS), *MORE]:
        cases.append(Case(x[index], X[index], f"read {index}"))
        for y in values_for(X[index].shape):
            cases += write(x, index, y)
    return [x], cases


def input_cases() -> Any:
    """Masks that are inputs among slices: values that are the same at all places; sums over them."""
    x = pt.dtensor3("x")
    inputs = {
        axes: pt.tensor("m" + "".join(map(str, axes)), shape=(None,) * len(axes), dtype="bool")
        for axes in MASKS
    }
    by_mask = {id(mask): inputs[axes] for axes, mask in MASKS.items()}
    cases = []
    for index in indices(SLICES):
        masked = tuple(by_mask[id(e)] if is_mask(e) else e for e in index)
        at = next(k for k, e in enumerate(index) if is_mask(e))
        for y in values_for(X[index].shape, alike=at):
            cases += write(x, index, y, masked)
        ndim = X[index].ndim
        for axis in [None, (at,), *((at, k) for k in range(ndim) if k != at)]:
            out = x[masked].sum(axis=axis)
            cases.append(Case(out, X[index].sum(axis=axis), f"sum {axis} {index}"))
    return [x, *inputs.values()], cases


def assert_all(actual: Any, cases: Any) -> None:
    for a, case in zip(actual, cases, strict=True):
        np.testing.assert_allclose(
            np.asarray(a), case.expected, rtol=1e-12, strict=True, err_msg=case.what
        )


def in_jax(inputs: Any, outputs: Any) -> Any:
    return jax.jit(jaxify(inputs, outputs))


def in_python(inputs: Any, outputs: Any) -> Any:
    return interpreted(lowered(inputs, outputs))


# XLA compiles the thousand for two minutes.
SOME = [
    (in_jax, 61),
    (in_python, 17),
    pytest.param(in_jax, 1, marks=pytest.mark.slow),
    pytest.param(in_python, 1, marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "every"), SOME)
def test_constant_masks_with_every_other_index(backend, every):
    inputs, cases = constant_cases()
    assert len(cases) > 1000
    cases = cases[::every]
    assert_all(backend(inputs, [c.out for c in cases])(X), cases)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "every"), SOME)
def test_masks_that_are_inputs(backend, every):
    """In JAX such a mask makes no shape, so it need not be known when the program is compiled."""
    inputs, cases = input_cases()
    cases = cases[:: max(every // 3, 1)]
    assert_all(backend(inputs, [c.out for c in cases])(X, *MASKS.values()), cases)


@pytest.mark.parametrize("backend", [in_jax, in_python])
def test_gradients_of_writes_and_sums(backend):
    x, m, y = pt.dmatrix("x"), pt.vector("m", dtype="bool"), pt.dvector("y")
    cost = (pt.inc_subtensor(x[m], y) ** 3).sum() + (x[:, m[:2]].sum(axis=1) ** 3).sum()
    cost += (pt.set_subtensor(x[m], y[0]) ** 2).sum() + (x[m].sum() ** 2)
    gradients = pytensor.grad(cost, [x, y])
    given = [rng.normal(size=(3, 2)), np.array([True, False, True]), rng.normal(size=2)]
    expected = pytensor.function([x, m, y], gradients, mode=FAST_COMPILE)(*given)
    actual = backend([x, m, y], gradients)(*given)
    if backend is in_jax:
        by_jax = jax.jit(jax.grad(jaxify([x, m, y], cost), argnums=(0, 2)))(*given)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), list(by_jax), expected
        )
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12)


@pytest.mark.parametrize("backend", [in_jax, in_python])
@pytest.mark.parametrize("what", ["sum", "set"])
def test_a_mask_of_another_length(backend, what):
    """An index is not broadcast: a mask of length 1 goes with an axis of length 1 only."""
    x, m = pt.dvector("x"), pt.tensor("m", shape=(1,), dtype="bool")
    out = x[m].sum() if what == "sum" else pt.set_subtensor(x[m], 1.0)
    run = backend([x, m], out) if backend is in_jax else backend([x, m], [out])
    with pytest.raises((IndexError, ValueError), match="mask|boolean|length"):
        run(np.arange(3.0), np.array([True]))
    run(np.arange(1.0), np.array([True]))


M = pt.dmatrix("m")
SELECTED = pt.vector("selected", dtype="bool")


def rows_at_a_mask():
    """Each step emits as many entries as the mask selects."""
    return pytensor.scan(
        lambda r, k: pt.sin(r[k]), sequences=[M], non_sequences=[SELECTED], return_updates=False
    )


def blocks_at_a_mask():
    return pt.sin(M[0][SELECTED].reshape((1, 2, -1)))


@pytest.mark.slow
@pytest.mark.parametrize("output", [rows_at_a_mask, blocks_at_a_mask])
def test_a_mask_that_is_given_beside_what_is_differentiated(output):
    """The rows of the loop were stacked with their padding, which was counted; the reshape was refused.

    Under ``jit`` the length is kept beside what a step emits, or what has another shape.
    """
    cost = (output() ** 2).sum()
    values = np.arange(24.0).reshape(4, 6) / 10, np.array([True, False, True, True, False, True])
    slope = pytensor.grad(cost, M)
    expected = pytensor.function([M, SELECTED], [cost, slope], mode=FAST_COMPILE)(*values)
    f = jaxify([M, SELECTED], cost)
    for got in (jax.value_and_grad(f)(*values), jaxify([M, SELECTED], [cost, slope])(*values)):
        for x, y in zip(got, expected, strict=True):
            np.testing.assert_allclose(np.asarray(x), y, rtol=1e-10, strict=True)
    for x, y in zip(jax.jit(jax.value_and_grad(f))(*values), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10)


def test_rows_of_which_each_step_has_another_number():
    """PyTensor and NumPy cannot stack them; a program that runs cannot raise, and gives no numbers."""
    keep = pt.matrix("keep", dtype="bool")
    rows = pytensor.scan(lambda r, k: r[k], sequences=[M, keep], return_updates=False)
    f, values = jaxify([M, keep], rows), np.arange(6.0).reshape(2, 3)
    equal = np.array([[True, False, True], [False, True, True]])
    np.testing.assert_array_equal(np.asarray(jax.jit(f)(values, equal)), [[0, 2], [4, 5]])
    unequal = np.array([[True, False, True], [False, True, False]])
    assert np.isnan(np.asarray(jax.jit(f)(values, unequal))).all()
    np.testing.assert_array_equal(f(values, equal), [[0, 2], [4, 5]])  # written out, of known masks
    with pytest.raises(LoopTypeError, match=r"shapes \[\(2,\), \(1,\)\] and cannot be stacked"):
        f(values, unequal)


K = pt.lvector("k")
OTHER = pt.dvector("other")
V = pt.dvector("v")
P, S = V[V > 0], V[SELECTED]
DISTINCT = pt.unique(K, return_index=True, return_inverse=True, return_counts=True)
EVERYDAY = {
    "sorted": pt.sort(P),
    "order": pt.argsort(P),
    "the median": pt.sort(P)[P.shape[0] // 2],
    "sorted along the other axis": pt.sort(M[SELECTED], axis=1),
    "sorted among the rows": pt.sort(M[SELECTED], axis=0),
    "sorted integers": pt.sort(K[SELECTED]),
    "places among the sorted": pt.searchsorted(pt.sort(P), OTHER),
    "places of the selected": pt.searchsorted(pt.sort(OTHER), P),
    "distinct": DISTINCT[0],
    "first places": DISTINCT[1],
    "which one": DISTINCT[2],
    "how often": DISTINCT[3],
    "how many": DISTINCT[0].shape[0],
    "distinct of a mask": pt.unique(K[SELECTED]),
    "how often in a mask": pt.unique(K[SELECTED], return_counts=True)[1],
    "means of groups": pt.inc_subtensor(pt.zeros(6)[DISTINCT[2]], V)[: DISTINCT[0].shape[0]]
    / DISTINCT[3],
    "the largest three": pt.sort(P)[-2:],
    "scattered in order": pt.set_subtensor(V[SELECTED], pt.sort(S)),
    "moments": pt.stack([P.mean(), P.var(), P.max(), pt.logsumexp(P), pt.cumsum(P)[-1]]),
    "regression": pt.linalg.solve(M[SELECTED].T @ M[SELECTED] + pt.eye(6), M[SELECTED].T @ S),
    "a loop over the selected": pytensor.scan(
        lambda r, s: pt.tanh(s + r), [S], [pt.constant(0.0, dtype="float64")], return_updates=False
    )[-1],
}
GIVEN = {
    K: np.array([3, 1, 3, 7, 1, 1]),
    OTHER: np.array([0.3, 9.0, -1.0]),
    V: np.array([0.5, -1.0, 2.0, 3.0, -0.2, 0.5]),
    M: rng.normal(size=(6, 6)),
    SELECTED: np.array([True, False, True, True, False, True]),
}


@pytest.mark.slow
def test_everyday_programs_whose_lengths_hang_on_values():
    """Under a caller's jit, where nothing can be static: in order, once each, and what follows."""
    names = list(EVERYDAY)
    expected = pytensor.function(list(GIVEN), list(EVERYDAY.values()), mode=FAST_COMPILE)
    f = jax.jit(jaxify(list(GIVEN), list(EVERYDAY.values())))
    empty = {V: -abs(GIVEN[V]), SELECTED: np.ones(6, dtype=bool)}
    few = {K: GIVEN[K] * 0, SELECTED: np.array([False] * 5 + [True])}
    for change in ({}, few, empty):
        values = [change.get(v, x) for v, x in GIVEN.items()]
        if change is empty:
            keep = [k for k, n in enumerate(names) if n not in ("the median", "moments")]
        else:
            keep = list(range(len(names)))
        run = expected
        if change is empty:
            outs = [EVERYDAY[names[k]] for k in keep]
            run = pytensor.function(list(GIVEN), outs, mode=FAST_COMPILE, on_unused_input="ignore")
        actual = f(*values)
        for k, right in zip(keep, run(*values), strict=True):
            got = np.asarray(actual[k])
            np.testing.assert_allclose(got, right, rtol=1e-9, atol=1e-12, err_msg=names[k])
            assert (got.shape, got.dtype) == (right.shape, right.dtype), names[k]


@pytest.mark.slow
def test_derivatives_of_what_is_sorted():
    cost = (pt.sort(P) * pt.arange(1, P.shape[0] + 1)).sum() + pt.sort(S)[0] ** 2
    slope = pytensor.grad(cost, V)
    given = [GIVEN[V], GIVEN[SELECTED]]
    expected = pytensor.function([V, SELECTED], slope, mode=FAST_COMPILE)(*given)
    actual = jax.jit(jax.grad(jaxify([V, SELECTED], cost)))(*given)
    np.testing.assert_allclose(actual, expected)


@pytest.mark.parametrize("function", ["sin", "log", "reciprocal", "arcsin"])
@pytest.mark.parametrize("rows", ["selected", "raveled"])
def test_an_empty_selection_passes_no_cotangents_on(rows, function):
    """The derivative of a sine at -inf is nan, and -inf is what lies in the room of the selection."""
    selected = V[V > 0]
    selected = selected if rows == "selected" else (selected[:, None] * pt.ones(2)).ravel()
    f = jaxify([V], getattr(pt, function)(selected).sum(), loops="xla")
    empty = np.array([-np.inf, -2.0, -np.inf])
    np.testing.assert_array_equal(jax.jit(jax.grad(f))(empty), np.zeros(3))
    assert jax.jit(lambda x: jax.jvp(f, (x,), (np.ones(3),)))(empty) == (0, 0)
