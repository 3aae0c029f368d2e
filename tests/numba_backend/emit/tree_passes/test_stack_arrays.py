"""Small arrays of known size are on the stack, where no reference to them outlives its uses."""

from textwrap import dedent, indent

import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import scan
from loopax.numba_backend.emit.expressions import call, local, tuple_of
from loopax.numba_backend.emit.statements import Assign, Block, Do, For, Function, If, Return
from loopax.numba_backend.emit.tree_passes.stack_arrays import ArrayUses, promote_to_stack
from tests.numba_backend.agreement import assert_agrees

RNG = np.random.default_rng(0)


def uses(text, **callees):
    return ArrayUses("def program(x0):\n" + indent(dedent(text), "    "), callees)


@pytest.mark.parametrize(
    "text",
    [
        "y = a[1, i]",
        "a[0, 0], b = 1.0, 2.0",
        "a[...] = x0",
        "a[0, 1] += a[i + 1, k[0]]",
        "n = a.shape[0]",
        "matmul(a, a.T, x0)",
        "for i in range(2):\n    line = in_line(a)\n    y = line[i]",
        "matvec(view_of_run(a, 0, (2,)), x0, y)",
    ],
)
def test_arrays_whose_elements_are_read_and_written(text):
    assert uses(text).are_private("a", 2)


@pytest.mark.parametrize(
    "text",
    [
        "return (a,)",
        "b = a",
        "row = a[1]",
        "row = a[...]",
        "rows = a[:, i]",
        "rows = a[None, i]",
        "rows.append(a)",
        "y = a if x0 > 0 else x0",
        "y = perform(a)",
        "y = np.ascontiguousarray(a)",
        "y = finite_or_identity(a, ok)",
        "line = in_line(a)\nreturn line",
        "line = in_line(a)\nline = x0",
        "for i in range(2):\n    if i > 0:\n        y = line[0]\n    line = in_line(a)",
        "for i in range(2):\n    line = in_line(a)\ny = line[0]",
    ],
)
def test_arrays_that_something_else_may_refer_to(text):
    assert not uses(text).are_private("a", 2)


def test_functions_of_the_program():
    sums = uses("return x0[0] + x0[1]")
    assert uses("y = part0(a)", part0=sums).are_private("a", 1)
    assert not uses("y = part0(a)", part0=sums).are_private("a", 2)  # two rows
    for text in ("return x0", "y = part1(x0)", "x0 = empty((2,), np.float64)"):
        assert not uses("y = part0(a)", part0=uses(text)).are_private("a", 1)


def test_arrays_of_known_size_that_are_assigned_once():
    text = """
        a = empty((2, 3), np.float32)
        b = empty((), np.bool_)
        c = empty((n, 2), np.float64)
        d = empty((2,), np.float64)
        d, e = e, d
    """
    assert uses(text).allocated() == {"a": ((2, 3), "float32"), "b": ((), "bool")}


def test_allocations_in_all_blocks_are_replaced():
    a, b, c, d, i = map(local, "abcdi")
    function = Function("program", [])

    def allocated(name, n):
        return Assign((name,), call("empty", tuple_of([n]), "np.float64"))

    function.body.add(allocated(a, 64))
    function.body.add(allocated(b, 65))  # too large
    inner = Block([allocated(c, 1), Do(call("fill", c, a[i]))])
    function.body.add(For(i, 2, Block([If(i, inner)])))
    function.body.add(allocated(d, 1))
    function.body.add(Return(tuple_of([d])))
    promote_to_stack(function, {})
    names = {line.split()[0] for line in str(function).splitlines() if "on_stack" in line}
    assert names == {"a", "c"}


def test_few_arrays_are_on_the_stack():
    function = Function("program", [])
    for k in range(40):
        function.body.add(Assign((local(f"a{k}"),), call("empty", tuple_of([64]), "np.float64")))
    promote_to_stack(function, {})
    assert str(function).count("on_stack") == 16_384 // 512


def test_states_of_nested_loops():
    """The last states of the inner loop are results, and those of the outer loop become the next ones."""
    m, v = pt.matrix("m", shape=(5, 5)), pt.vector("v", shape=(5,))

    def inner(c, s):
        product = c @ m.T
        return product / (1 + pt.abs(product).max()) + s * 0.1, None

    def outer(c, s):
        last, _ = scan(inner, c, pt.stack([s, s + 1, s * 2]))
        return last, (last @ v, pt.linalg.solve(last + 9 * pt.eye(5), v))

    c, (row, solved) = scan(outer, m, v)
    run = assert_agrees(
        [m, v], [c, row, solved], [RNG.normal(size=(5, 5)), RNG.normal(size=5)], rtol=1e-10
    )
    assert "on_stack" in run.source
