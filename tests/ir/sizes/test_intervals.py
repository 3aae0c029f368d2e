"""What lies between the ends of its operands lies between the ends that are said of the result."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import scan
from loopax.ir.sizes import interval_of, masks_of
from tests.support.compare import FAST_COMPILE

A, B, C = (pt.lscalar(name) for name in "abc")
OPS = {
    "add": lambda a, b, c: a + b,
    "sub": lambda a, b, c: a - b,
    "neg": lambda a, b, c: -a,
    "mul": lambda a, b, c: a * b,
    "minimum": lambda a, b, c: pt.minimum(a, b),
    "maximum": lambda a, b, c: pt.maximum(a, b),
    "mod": lambda a, b, c: a % b,
    "clip": lambda a, b, c: pt.clip(a, b, c),
    "switch": lambda a, b, c: pt.switch(a > b, b, c),
    "cast": lambda a, b, c: pt.cast(a, "int32"),
    "wrapped": lambda a, b, c: pt.cast(a, "uint8"),
    "inverted": lambda a, b, c: ~a,
    "inverted bytes": lambda a, b, c: ~pt.cast(a, "uint8"),
    "inverted flag": lambda a, b, c: pt.cast(~(a > b), "int64"),
    "flag": lambda a, b, c: pt.cast(pt.cast(a, "bool"), "int64"),
    "flags added": lambda a, b, c: pt.cast((a > b) + (b > c), "int64"),
    "flags combined": lambda a, b, c: pt.cast((a > b) & (b > c) | ((a > c) ^ (c > b)), "int64"),
    "least byte": lambda a, b, c: pt.minimum(pt.cast(a, "int8"), np.int8(10)) * np.int8(3),
    "of floats": lambda a, b, c: pt.cast(
        ((a + 0.5) % pt.cast(pt.maximum(b, 1), "float64")) * pt.cast(pt.maximum(c, 1), "float64"),
        "int64",
    ),
    "byte less": lambda a, b, c: pt.minimum(pt.cast(a, "int8"), pt.cast(b, "int8")) - np.int8(100),
}
VECTORS = [pt.lvector(name) for name in "abc"]


def no_length(x, axis):
    return None


def answer(known):
    """An interval of whatever follows from the variables that ``known`` has."""

    def value(v):
        if v in known or v.owner is None:
            return known.get(v)
        return interval_of(v, value, no_length)

    return value


@pytest.mark.parametrize("outer", OPS)
def test_results_lie_in_the_interval(outer):
    """Of each pair of operations, at numbers that wrap around in bytes, and at few."""
    rng = np.random.default_rng(len(outer))
    for inner in OPS:
        v = OPS[outer](OPS[inner](*VECTORS), *VECTORS[1:])
        f = pytensor.function(VECTORS, v, mode=FAST_COMPILE, on_unused_input="ignore")
        for size in (2, 6, 6, 130, 130, 130):
            draws = rng.integers(-size, size, (3, 2), endpoint=True)
            ends = {u: tuple(sorted(map(int, d))) for u, d in zip(VECTORS, draws, strict=True)}
            if "mod" in (outer, inner):  # by 0 there is no remainder
                ends[VECTORS[1]] = (1, size)
            known = {u: e for u, e in ends.items() if rng.random() < 0.8}
            interval = answer(known)(v)
            if interval is None:
                continue
            values = [rng.integers(*ends[u], 100, endpoint=True) for u in VECTORS]
            with np.errstate(over="ignore"):
                try:
                    actual = f(*values)
                except OverflowError:  # PyTensor 3.0 refuses to wrap in a cast
                    continue
            assert interval[0] <= actual.min() and actual.max() <= interval[1], (inner, ends, known)


@pytest.mark.parametrize(
    ("v", "known", "expected"),
    [
        (A + B, {A: (0, 2), B: (1, 5)}, (1, 7)),
        (A % 5, {}, (0, 4)),
        (A % B, {A: (0, 2)}, None),
        (A * B, {A: (-2, 3), B: (-1, 4)}, (-8, 12)),
        (pt.maximum(A, 2), {A: (0, 5)}, (2, 5)),
        (pt.maximum(A, 2), {}, None),
        (pt.clip(A, 0, 9), {}, (0, 9)),
        (pt.clip(A, 2, 5), {A: (8, 9)}, (5, 5)),
        (pt.clip(A, 5, 2), {A: (0, 1)}, (2, 5)),  # 5 where A is less, then 2
        (~A, {A: (0, 1)}, (-2, -1)),
        (pt.cast(A, "bool"), {A: (2, 5)}, (1, 1)),
        (pt.cast(A, "bool"), {A: (-1, 5)}, (0, 1)),
        (pt.stack([A, B]), {A: (0, 2), B: (4, 5)}, (0, 5)),
        (pt.stack([A, B]), {A: (0, 2)}, None),
    ],
)
def test_it_is_no_wider_than_that(v, known, expected):
    constants = {
        u: (int(u.data),) * 2 for u in v.owner.inputs if u.owner is None and hasattr(u, "data")
    }
    assert answer(known | constants)(v) == expected


def test_a_minimum_is_at_most_what_is_known():
    assert answer({A: (3, 7)})(pt.minimum(A, B))[1] == 7


def test_how_many_places_and_steps_there_are():
    mask = pt.matrix("mask", dtype="bool")
    lengths = {0: (0, 4), 1: (3, 3)}
    assert interval_of(mask.sum(), answer({}), lambda x, axis: lengths[axis]) == (0, 12)
    assert interval_of(mask.sum(), answer({}), no_length) is None
    x = pt.dvector("x")
    n_done = scan(lambda s, r: (s + r, s, s > 3), 0.0, x)[1].owner.outputs[-2]
    n_steps = n_done.owner.inputs[0]
    assert interval_of(n_done, {n_steps: (2, 9)}.get, no_length) == (0, 9)


X, PLACES = pt.dmatrix("X"), pt.lvector("i")
FOUR = {0: (4, 4), 1: (3, 3)}


@pytest.mark.parametrize(
    ("v", "known", "expected"),
    [
        (pt.argsort(PLACES), {}, (0, 3)),
        (pt.argmax(PLACES), {}, (0, 3)),
        (pt.argmax(X, axis=(0, 1)), {}, (0, 11)),
        (pt.argmax(X, axis=1), {}, (0, 2)),
        (pt.argsort(X, axis=0), {}, (0, 3)),
        (pt.argsort(X, axis=-1), {}, (0, 2)),
        (pt.searchsorted(PLACES, A), {}, (0, 4)),
        (pt.linalg.pivot_to_permutation(PLACES), {}, (0, 3)),
        (PLACES.sum(), {PLACES: (-1, 2)}, (-4, 8)),
        (PLACES.sum(), {PLACES: (2, 5)}, (0, 20)),  # of no entries it is 0
        (PLACES.sum(), {PLACES: (0, 2**62)}, None),  # wraps around
        (PLACES.astype("int8").sum(dtype="int8"), {}, None),
        (PLACES[A], {PLACES: (2, 5), A: (-4, 3)}, (2, 5)),
        (PLACES[A], {PLACES: (2, 5), A: (-5, 3)}, None),  # JAX has a number for what is not there
        (PLACES[A], {PLACES: (2, 5), A: (0, 4)}, None),
        (PLACES[A], {PLACES: (2, 5)}, None),
        (PLACES[1:], {PLACES: (2, 5)}, (2, 5)),
        (PLACES.reshape((2, 2)), {PLACES: (2, 5)}, (2, 5)),
    ],
)
def test_places_and_entries(v, known, expected):
    value = answer(known)
    assert interval_of(v, value, lambda x, axis: FOUR[axis]) == expected


def test_entries_read_at_places():
    places = pt.argsort(pt.dvector("x"))
    known = {PLACES: (2, 5), places: (0, 3)}.get
    assert interval_of(PLACES[places], known, lambda x, axis: (4, 4)) == (2, 5)
    assert interval_of(PLACES[places], known, lambda x, axis: (3, 3)) is None
    mask = pt.vector("mask", dtype="bool")
    assert interval_of(PLACES[mask], known, lambda x, axis: (4, 4)) is None


def test_masks():
    x, mask, k = pt.dvector("x"), pt.vector("mask", dtype="bool"), pt.lvector("k")
    assert masks_of(x[mask].owner) == [mask]
    assert masks_of(pt.set_subtensor(x[mask], 0.0).owner) == [mask]
    assert masks_of(pt.nonzero(mask)[0].owner) == [mask]
    assert masks_of(x[k].owner) == []
    assert masks_of(pt.set_subtensor(mask[k], mask[k]).owner) == []  # values, not places
    f = pytensor.function([x, mask], x[mask], mode=FAST_COMPILE)
    assert f(np.arange(3.0), np.array([True, False, True])).shape == (2,)
