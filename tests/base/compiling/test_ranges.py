"""Loops over ranges run as often, and over the same values, as Python's."""

import numpy as np
import pytest
from numba import njit
from numba.core.compiler import run_frontend

from loopax.base.compiling.locals import values_once
from loopax.base.compiling.pipeline import EmittedCode
from loopax.base.compiling.ranges import counted_iterators

emitted = njit(pipeline_class=EmittedCode, error_model="numpy")
ENDS = (-7, -2, -1, 0, 1, 2, 5)


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2, None])
def test_values_of_a_range(step):
    # A step that is a constant of the program, or an argument.
    text = f"""
def values(a, b, out, by):
    n = 0
    for k in range(a, b, {"by" if step is None else step}):
        out[n] = k
        n += 1
    return n
"""
    namespace = {}
    exec(text, namespace)
    compiled = emitted(namespace["values"])
    for a in ENDS:
        for b in ENDS:
            for argument in (-3, 2) if step is None else (0,):
                out = np.full(20, 99)
                n = compiled(a, b, out, argument)
                assert out[:n].tolist() == list(range(a, b, step or argument)), (a, b, argument)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.uint32, np.uint64, np.int64])
def test_ends_of_each_dtype(dtype):
    @emitted
    def count(start, n):
        total = 0
        for k in range(start, n):
            total += k + 1
        return total

    for n in (0, 1, 5):
        assert count(dtype(0), dtype(n)) == n * (n + 1) // 2
        assert count(dtype(3), dtype(n)) == sum(range(4, n + 1))


def test_the_largest_numbers():
    @emitted
    def last(a, b):
        k = 0
        for i in range(a, b):
            k = i
        for j in range(b, b - 2, -1):
            k = k ^ j
        return k

    top = np.iinfo(np.int64).max
    assert last(top - 2, top) == (top - 1) ^ top ^ (top - 1)


@pytest.mark.parametrize("step", [1, 2, 5, -1, -2, -5])
def test_ranges_that_end_at_the_largest_number(step):
    text = f"""
def count(a, b):
    n = 0
    for _ in range(a, b, {step}):
        n += 1
        if n > 20:
            break
    return n
"""
    namespace = {}
    exec(text, namespace)
    end = np.iinfo(np.int64).max if step > 0 else np.iinfo(np.int64).min
    start = end - 7 if step > 0 else end + 7
    assert emitted(namespace["count"])(start, end) == len(range(start, end, step))


def test_loops_in_loops_start_again():
    def run(n, m):
        total = 0
        for i in range(n):
            for j in range(i, m):
                if j == 3:
                    break
                for k in range(j, -1, -1):
                    total = total * 7 + i + 2 * j + 3 * k
                    total %= 1_000_003
            else:
                total += 1
        return total

    compiled = emitted(run)
    for n in range(5):
        for m in range(5):
            assert compiled(n, m) == run(n, m)


def test_an_iterator_that_several_statements_assign():
    def run(flag, n):
        numbers = range(n) if flag else range(2, n)
        total = 0
        for k in numbers:
            total += k * k
        return total

    compiled = emitted(run)
    for flag in (True, False):
        for n in (0, 1, 4):
            assert compiled(flag, n) == run(flag, n)


def test_indices_below_zero_still_count_from_the_end():
    def run(x, out):
        n = x.shape[0]
        for k in range(n):
            out[k] = x[k - n] + 10 * x[-k - 1]
        for k in range(-n, 0):
            out[k] += 100 * x[k]

    x, ours, theirs = np.arange(4.0), np.zeros(4), np.zeros(4)
    emitted(run)(x, ours)
    run(x, theirs)
    np.testing.assert_array_equal(ours, theirs)


def test_iterators_that_are_only_advanced():
    def run(n, x):
        total = 0
        for k in range(n):
            total += k
        for y in x:
            total += y
        return total

    blocks = run_frontend(run).blocks
    once = values_once(blocks)
    iterators = counted_iterators(blocks, set(once))
    assert len(iterators) >= 2
    assert not counted_iterators(blocks, set())
