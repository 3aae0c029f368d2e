"""Emitted functions give what Numba's own lowering gives, with fewer places on the stack."""

import numpy as np
import pytest
from numba import njit
from numba.core.compiler import run_frontend
from numba.core.ir import Assign
from numba.core.runtime import _nrt_python, rtsys

from loopax.base.compiling.lifetimes import borrowed_arguments
from loopax.base.compiling.locals import used_as_indices, uses, values_once
from loopax.base.compiling.pipeline import EmittedCode

emitted = njit(pipeline_class=EmittedCode, error_model="numpy")
DTYPES = ("float64", "float32", "int64", "int8", "uint64", "complex128", "bool")
ROWS = np.arange(12.0).reshape(3, 4)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_elements_of_arrays_are_read(dtype, order):
    a = ROWS.astype(dtype, order="F" if order == "F" else "C")
    if order == "strided":
        a = np.repeat(np.repeat(a, 2, axis=0), 3, axis=1)[::2, ::3]

    def read(a, i, j):
        return a[i, j], a[-1, -2], a[i - 3, j - 4], a[np.uint64(i), np.int8(j)]

    ours, theirs = emitted(read), njit(read)
    assert ours(a, 1, 2) == theirs(a, 1, 2) == read(a, 1, 2)
    assert ours.nopython_signatures == theirs.nopython_signatures


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_of_arrays_are_written(dtype):
    def write(a, i, x):
        a[i, 0] = x
        a[-1, -1] = x
        a[i - 3, 1] = 1

    ours, theirs = np.zeros((3, 4), dtype), np.zeros((3, 4), dtype)
    emitted(write)(ours, 1, np.dtype(dtype).type(1))
    njit(write)(theirs, 1, np.dtype(dtype).type(1))
    np.testing.assert_array_equal(ours, theirs)
    assert ours.any()


def test_other_indices_are_left_to_numba():
    def read(a, m):
        return a[1], a[1:, 0], a[m], a[..., 2]

    mask = ROWS[:, 0] > 1
    for ours, theirs in zip(emitted(read)(ROWS, mask), njit(read)(ROWS, mask), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_locals_of_branches_and_loops():
    def run(x, n):
        total = 0.0
        for i in range(n):
            if x[i] > 1.0:
                y = x[i] * 2.0  # assigned once, and read in this branch alone
                total += y
            else:
                z = np.empty(3)
                for k in range(3):
                    z[k] = x[i] + k
                total += z[2]
        w = total * 2.0
        return w, total

    x = np.array([0.5, 1.5, 2.5, 0.25])
    assert emitted(run)(x, 4) == run(x, 4)
    assert emitted(run)(x, 0) == (0.0, 0.0)


@pytest.fixture
def allocations():
    _nrt_python.memsys_enable_stats()
    yield rtsys.get_allocation_stats
    _nrt_python.memsys_disable_stats()


def test_arrays_made_in_loops_are_freed(allocations):
    def run(n):
        a = np.zeros(2)
        for i in range(n):
            b = np.empty(2)  # a new one at each step
            b[0], b[1] = a[0] + i, a[1] + 1.0
            if i % 2 == 0:
                a = b
        return a

    compiled = emitted(run)
    compiled(3)
    before = allocations()
    for _ in range(20):
        np.testing.assert_array_equal(compiled(5), [6.0, 3.0])
    after = allocations()
    assert after.alloc - before.alloc == after.free - before.free > 20


def test_only_what_changes_has_a_place_on_the_stack(texts):
    def run(x, n):
        scale = x[0]
        total = 0.0
        for i in range(n):
            total += scale * x[i]
        return total

    def on_stack(**options):
        texts.clear()
        assert njit(run, **options)(np.ones(3), 3) == 3.0
        return {name for name in ("scale", "total", "x", "n") if f'%"{name}" = alloca' in texts[0]}

    assert on_stack(pipeline_class=EmittedCode) == {"total"}
    assert on_stack() == {"scale", "x"}  # which has a name for each value of the total


def test_an_array_that_is_deleted_on_two_ways_out_of_a_loop(allocations):
    """Numba deletes it on both, and once more behind them."""

    def run(x, n):
        total = 0.0
        for i in range(n):
            total += x[i]
            if total > 3.0:
                total = -total
                break
        rest = np.empty(2)
        rest[0] = rest[1] = total
        return rest

    def copied(x, n):
        y = np.empty(n)
        for i in range(n):
            y[i] = x[i]
        return inner(y, n)

    inner = njit(run, pipeline_class=EmittedCode)
    compiled = emitted(copied)
    x = np.ones(6)
    compiled(x, 6)
    before = allocations()
    for n in (0, 2, 6) * 10:
        np.testing.assert_array_equal(compiled(x, n), run(x, n))
    after = allocations()
    assert after.free - before.free == after.alloc - before.alloc > 0


@pytest.mark.parametrize("kind", ["branch", "early", "returned", "replaced", "unused", "tuple"])
def test_each_reference_ends_once(allocations, kind):
    def branch(x, n):
        if n > 2:
            y = x * 2.0
            total = y[0]
        else:
            total = 1.0
        return total

    def early(x, n):
        y = x + 1.0
        for k in range(n):
            z = y * k
            if z[0] > 2.0:
                return z[1]
        return y[0]

    def returned(x, n):
        return x if n > 2 else x * 2.0

    def replaced(x, n):
        for _ in range(n):
            x = x + 1.0  # an argument that is assigned again
        return x

    def unused(x, n):
        y = np.empty(n)
        y = x
        return y[0]

    def tuple_(x, n):
        pair = (x * 2.0, np.ones(n))
        return pair[0][0] + pair[1].sum()

    run = {"tuple": tuple_}.get(kind) or locals()[kind]
    inner = emitted(run)
    outer = emitted(lambda n: inner(np.arange(1.0, 4.0), n))
    outer(3)
    before = allocations()
    for n in (0, 1, 3, 5) * 5:
        np.testing.assert_array_equal(outer(n), run(np.arange(1.0, 4.0), n))
    after = allocations()
    assert after.free - before.free == after.alloc - before.alloc > 0


def test_arguments_that_the_caller_holds():
    def run(x, y, n):
        for _ in range(n):
            y = x + y
        return y

    assert borrowed_arguments(run_frontend(run).blocks) == {"x", "n"}


def test_the_locals_that_a_statement_reads():
    def run(x, n):
        a = x[1:n, 0]
        b = (a, n, x)
        if n > 2:
            a[n] = np.sum(x, axis=n)
        return b[0].sum() + x.shape[1]

    for block in run_frontend(run).blocks.values():
        for statement in block.body:
            names = {v.name for v in statement.list_vars()}
            if isinstance(statement, Assign):
                names -= {statement.target.name}
            assert set(uses(statement)) == names


def test_what_is_assigned_once():
    def run(x, n):
        a = x + 1
        if n > 2:
            b = a  # read in its own branch
            c = b + a
        else:
            c = a
        for i in range(n):
            d = c + i
            e = d * 2
            c = d
            if e > 5:
                c = c + e
        return c

    once = values_once(run_frontend(run, emit_dels=True).blocks)
    assert {"a", "b", "d", "e", "x", "n"} <= once.keys()
    assert "c" not in once
    assert once["b"] and once["d"]
    assert not once["e"]  # a loop assigns it again, and it ends in one of two blocks


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_wrap_around_before_they_are_compared(dtype):
    def compare(x, y):
        total = x
        for _ in range(2):
            total += y
        return x * x < 1, x - y < 1, total < x, (x + y) * 1.0

    x, y = dtype(2**62 - 1), dtype(2**62 + 1)
    with np.errstate(over="ignore"):
        assert emitted(compare)(x, y) == (x * x < 1, x - y < 1, x + y + y < x, (x + y) * 1.0)


def test_locals_that_are_indices():
    def read(a, i, j, k, m):
        element = i + 1
        column = element - 1
        compared = j * 2
        written = k * 3
        if compared < 3:
            element = column
        a[element, compared] = written
        a[written, column] = a[k, m + 1]
        return m

    locals_ = set(read.__code__.co_varnames)
    assert used_as_indices(run_frontend(read).blocks) & locals_ == {"i", "element", "column"}
