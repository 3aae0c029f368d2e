"""What gradients leave between loops becomes plain: the rows that are meant, and the same values."""

import random
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor

from loopax import cond, scan
from loopax.base.upstream.pytensor import joined_rows
from loopax.frontend import read_variables
from loopax.importer.import_graph import import_graph
from loopax.ir import Scan, check, evaluate
from loopax.ir.ops.checked import Checked
from loopax.lowering import lower
from loopax.lowering.canonical.simplify_gradients import simplify_gradients
from tests.support.compare import loops
from tests.support.kept import rewritten
from tests.support.random_loops import RANDOM

x = pt.vector("x", dtype="float64")
four = pt.vector("four", dtype="float64", shape=(4,))
m = pt.matrix("m", dtype="float64")
v = pt.dscalar("v")
n = pt.lscalar("n")
FOUR = np.array([0.3, -1.2, 0.7, 2.0])


def plain(inputs: Any, outputs: Any, *at: Any) -> FunctionGraph:
    """The graph that is left, with the same values before and after the pass."""
    return rewritten(FunctionGraph(list(inputs), list(outputs), clone=True), simplify_gradients, at)


def ops(graph: Any) -> list[str]:
    return [type(node.op).__name__ for node in graph.toposort()]


def is_reversal(y: Any, of: Any) -> bool:
    if not isinstance(y.owner.op, Subtensor) or y.owner.inputs[0] is not of:
        return False
    (index,) = indices_from_subtensor(y.owner.inputs[1:], y.owner.op.idx_list)
    return index.start is None and index.stop is None and int(index.step.data) == -1


# -- the leftovers that PyTensor's issue names --------------------------------------------------------


def test_a_slice_that_hides_a_reversal():
    graph = plain([four], [four[3:-6:-1]], FOUR)
    assert is_reversal(graph.outputs[0], graph.inputs[0])


def test_nested_increments():
    """Of zeros, with a reversal between them."""
    inner = pt.inc_subtensor(pt.zeros(4)[:3], four[1:])
    outer = pt.set_subtensor(pt.zeros(5)[1:], inner[::-1])
    graph = plain([four], [outer[1:][::-1][:3]], FOUR)
    assert ops(graph) == ["Subtensor"]


def test_a_write_to_all_of_an_alloc():
    graph = plain([four], [pt.alloc(np.zeros(()), 4)[:4].inc(four)], FOUR)
    assert graph.outputs == graph.inputs


def test_a_useless_expansion():
    graph = plain([v], [pt.expand_dims(v, 0)[0], pt.squeeze(pt.expand_dims(v, 0), 0)], 0.5)
    assert graph.outputs == [graph.inputs[0]] * 2


def test_an_expansion_that_a_write_takes_away():
    written = pt.set_subtensor(pt.zeros(4)[0:1], pt.expand_dims(v, 0))
    graph = plain([v], [written[0], written[1:]], 0.5)
    assert ops(graph) == ["Alloc"]
    assert graph.outputs[0] is graph.inputs[0]


def test_a_sum_over_one_element():
    joined = pt.concatenate([pt.zeros(3), v[None]])
    graph = plain([v], [pt.sum(v[None]), pt.sum(joined)], 0.5)
    assert graph.outputs == [graph.inputs[0]] * 2


def test_a_product_computed_twice_and_a_term_added_twice():
    """Merging is PyTensor's: with `lower` one is left of each."""

    def step(c, r):
        return c * 2 * r + r * (2 * c) + 0 * r, None

    final, _ = scan(step, v, four)
    graph = FunctionGraph([v, four], [final], clone=True)
    expected = evaluate(graph, np.asarray(0.5), FOUR)
    lower(graph)
    np.testing.assert_allclose(evaluate(graph, np.asarray(0.5), FOUR), expected, rtol=1e-14)
    (loop,) = loops(graph)
    nodes = loop.op.fgraph.toposort()
    assert len({(node.op, *node.inputs) for node in nodes}) == len(nodes)


def test_an_unused_sequence():
    """Which is `remove_unused`'s: it goes with what made it."""
    final, _ = scan(lambda c, r: (c * r[0], None), v, (four, pt.zeros(4)[::-1]))
    graph = FunctionGraph([v, four], [final], clone=True)
    simplify_gradients(graph)
    lower(graph)
    (loop,) = loops(graph)
    assert loop.op.n_seqs == 1


def derivative(order: int, steps: Any, value: Any = lambda xs: xs[-1]) -> FunctionGraph:
    """Of the example, ``x <- x**2``, as PyTensor's own scan and gradients leave it."""
    given = [v, n] if steps is n else [v]
    y = value(pytensor.scan(lambda a: a**2, outputs_info=v, n_steps=steps, return_updates=False))
    for _ in range(order):
        y = pytensor.grad(y, v)
    program = read_variables(given, y, None, None, "power")
    import_graph(program.graph)
    return program.graph


def is_plain(y: Any) -> bool:
    """A trace, a trace backwards, a constant, an input, or a fill."""
    if y.owner is None or isinstance(y.owner.op, Scan):
        return True
    if isinstance(y.owner.op, Alloc):
        return isinstance(y.owner.inputs[0], Constant) or y.owner.inputs[0].type.ndim == 1
    return is_reversal(y, y.owner.inputs[0]) and is_plain(y.owner.inputs[0])


@pytest.mark.parametrize("steps", [4, n])
def test_the_second_derivative_of_the_example(steps):
    graph = derivative(2, steps)
    at = [np.asarray(0.9), np.asarray(4)][: len(graph.inputs)]
    simplify_gradients(graph)
    check(graph)
    np.testing.assert_allclose(evaluate(graph, *at), [16 * 15 * 0.9**14], rtol=1e-12)
    for node in loops(graph):
        read = node.op.split_inputs(node.inputs)
        assert all(map(is_plain, [*read.sequences, *read.states])), node


@pytest.mark.parametrize("steps", [4, n])
def test_none_of_the_leftovers_remains(steps):
    graph = derivative(2, steps)
    simplify_gradients(graph)
    lower(graph)
    simplify_gradients(graph)
    check(graph)
    nodes = [*graph.toposort()]
    assert not any(isinstance(node.op, IncSubtensor | Join | Sum) for node in nodes)
    assert not any(isinstance(node.op, DimShuffle) and node.inputs[0].type.ndim for node in nodes)
    for node in nodes:
        if isinstance(node.op, Subtensor) and node.inputs[0].type.dtype == "float64":
            assert is_reversal(node.outputs[0], node.inputs[0])
    for loop in loops(graph):
        body = loop.op.fgraph
        inner = body.toposort()
        assert len({(node.op, *node.inputs) for node in inner}) == len(inner)
        read = {u for node in inner for u in node.inputs} | set(body.outputs)
        assert read >= set(loop.op.args.rows)


def test_the_third_derivative_has_the_same_values_and_plain_states():
    graph = derivative(3, 4)
    simplify_gradients(graph)
    np.testing.assert_allclose(evaluate(graph, np.asarray(0.9)), [3360 * 0.9**13], rtol=1e-12)
    kinds = {type(node.op) for node in graph.toposort()}
    assert kinds <= {Scan, Subtensor, Alloc, Elemwise, DimShuffle}
    for node in loops(graph):
        assert all(map(is_plain, node.op.split_inputs(node.inputs).states))


def test_no_steps_raise_as_before():
    for graph in (derivative(2, n), derivative(1, n)):
        for run in (lambda graph: None, simplify_gradients, simplify_gradients):
            run(graph)
            with pytest.raises(IndexError):
                evaluate(graph, np.asarray(0.9), np.asarray(0))
            with pytest.raises(ValueError, match="0 or more|negative"):
                evaluate(graph, np.asarray(0.9), np.asarray(-2))
    assert sum(isinstance(node.op, Checked) for node in graph.toposort()) == 1


# -- slices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [None, -6, -4, -2, 0, 1, 3, 4, 7])
@pytest.mark.parametrize("step", [None, 1, -1])
def test_bounds_of_slices(start, step):
    stops = (None, -6, -5, -4, -1, 0, 2, 4, 9)
    outs = [four[start:stop:step] for stop in stops]
    graph = plain([four], outs, FOUR)
    for stop, out in zip(stops, graph.outputs, strict=True):
        kept = FOUR[start:stop:step]
        if len(kept) == 4 and step != -1:
            assert out is graph.inputs[0]
        elif len(kept) == 4:
            assert is_reversal(out, graph.inputs[0])
        elif not len(kept):
            assert isinstance(out.owner.op, Alloc)
        else:
            assert out.owner.inputs[0] is graph.inputs[0]


def test_a_slice_that_nobody_can_bound_stays():
    graph = plain([x, n], [x[:4], x[n:], x[::2], x[1:][:n]], FOUR, 2)
    assert ops(graph).count("Subtensor") == 5


def test_slices_of_slices():
    outs = [four[1:][:-1], four[::-1][1:][::-1], x[::-1][::-1]]
    graph = plain([four, x], outs, FOUR, FOUR)
    assert graph.outputs[2] is graph.inputs[1]
    assert ops(graph) == ["Subtensor", "Subtensor"]


def test_slices_of_a_symbolic_length():
    longer = pt.concatenate([x, v[None]])
    outs = [longer[:-1], longer[::-1][1:], longer[1:][::-1][:1], longer[-1], longer[x.shape[0]]]
    graph = plain([x, v], outs, FOUR, 0.5)
    assert graph.outputs[0] is graph.inputs[0]
    assert is_reversal(graph.outputs[1], graph.inputs[0])
    assert graph.outputs[3:] == [graph.inputs[1]] * 2
    for length in (0, 1):  # of which x[1:] takes no more
        at = np.arange(1.0 + length)[1:], np.asarray(0.5)
        whole = np.append(at[0], 0.5)
        expected = [whole[:-1], whole[::-1][1:], whole[1:][::-1][:1], 0.5, 0.5]
        for actual, e in zip(evaluate(graph, *at), expected, strict=True):
            np.testing.assert_array_equal(actual, e)


def test_joined_again():
    split = pt.concatenate([four[0:1], four[1:3], four[3][None]])
    graph = plain([four], [split, split[::-1]], FOUR)
    assert graph.outputs[0] is graph.inputs[0]
    assert is_reversal(graph.outputs[1], graph.inputs[0])


def test_parts_of_a_split():
    joined = pt.concatenate([v[None], x])
    first, rest = pt.split(
        joined, pt.stack([pt.constant(1, dtype="int64"), x.shape[0]]), n_splits=2
    )
    graph = plain([v, x], [pt.squeeze(first, 0), rest], 0.5, FOUR)
    assert graph.outputs == graph.inputs


def test_terms_that_are_zero():
    zeros = pt.zeros(1)
    total = pt.concatenate([four, zeros]) + pt.concatenate([pt.zeros(4), v[None]])
    graph = plain([four, v], [total[:4], total[4]], FOUR, 0.5)
    assert graph.outputs == graph.inputs
    other = pt.vector("other", dtype="float64", shape=(4,))
    both = pt.concatenate([four, zeros]) + pt.concatenate([other, zeros])
    graph = plain([four, other], [both[::-1][1:]], FOUR, FOUR[::-1])
    assert ops(graph) == ["Elemwise", "Subtensor"]


def test_sequences_no_longer_hang_on_other_loops():
    _, ys = scan(lambda c, _: (c * 2, c), v, length=n)
    final, _ = scan(lambda c, r: (c + r, None), v, pt.zeros_like(ys), length=ys.shape[0])
    graph = FunctionGraph([v, n], [final], clone=True)
    expected = evaluate(graph, np.asarray(0.5), np.asarray(3))
    simplify_gradients(graph)
    np.testing.assert_array_equal(evaluate(graph, np.asarray(0.5), np.asarray(3)), expected)
    assert len(loops(graph)) == 1


def test_rows_of_a_matrix():
    k = m.shape[1]
    padded = pt.set_subtensor(pt.zeros((m.shape[0] + 1, k))[1:], m)
    graph = plain([m], [padded[1:], padded[0], padded[::-1][:-1]], np.ones((3, 2)))
    assert graph.outputs[0] is graph.inputs[0]
    assert not {"IncSubtensor", "Join"} & set(ops(graph))


def test_in_bodies():
    def step(c, r):
        padded = pt.set_subtensor(pt.zeros(5)[1:], c)
        return padded[::-1][:-1][::-1] * r, None

    final, _ = scan(step, four, x)
    graph = plain([four, x], [final], FOUR, FOUR)
    (loop,) = loops(graph)
    assert not {"IncSubtensor", "Subtensor", "Alloc"} & set(ops(loop.op.fgraph))


# -- what must stay ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: four[n], IndexError),
        (lambda: pt.set_subtensor(pt.zeros(4)[n], v)[::-1], IndexError),
        (lambda: pt.set_subtensor(pt.zeros(3)[:], x), ValueError),
        (lambda: pt.inc_subtensor(pt.zeros(4)[1:], x)[1:], ValueError),
        (lambda: pt.second(four, x), ValueError),
        (lambda: pt.concatenate([pt.zeros((1, 3)), m])[1:], ValueError),
        (lambda: pt.alloc(np.zeros(()), -n)[::-1], ValueError),
        (lambda: pt.split(four, pt.stack([n, n]), n_splits=2)[0], ValueError),
        (lambda: four + pt.zeros_like(x), ValueError),
    ],
)
def test_errors_stay(build, error):
    graph = FunctionGraph([four, x, m, v, n], [build()], clone=True)
    at = [FOUR, np.ones(2), np.ones((2, 2)), np.asarray(0.5), np.asarray(7)]
    for run in (lambda graph: None, simplify_gradients):
        run(graph)
        with pytest.raises(error):
            evaluate(graph, *at)


def test_the_check_of_an_index_that_is_no_longer_needed():
    """Where the length says that it fits, a row is known; the error for no rows stays."""
    written = pt.set_subtensor(pt.zeros(n)[-1], v)
    graph = plain([v, n], [pt.concatenate([written, pt.zeros(1)])[::-1][1:][0]], 0.5, 3)
    assert "IncSubtensor" not in ops(graph)
    with pytest.raises(IndexError):
        evaluate(graph, np.asarray(0.5), np.asarray(0))


def test_an_index_that_only_a_branch_reads_says_nothing():
    def last():
        return pt.set_subtensor(pt.zeros(n)[-1], v)[-1]

    out = cond(n > 0, last, lambda: v * 2)
    graph = FunctionGraph([v, n], [out, pt.zeros(n)[:1]], clone=True)
    simplify_gradients(graph)
    at = [np.asarray(0.5), np.asarray(0)]
    np.testing.assert_array_equal(evaluate(graph, *at)[0], 1.0)
    assert evaluate(graph, *at)[1].shape == (0,)


def test_a_check_of_a_number_stays():
    checked = Checked(ValueError, "no")(n, pt.gt(n, 2))
    graph = FunctionGraph([n], [pt.zeros(checked)[::-1], (checked + 1) - 1], clone=True)
    simplify_gradients(graph)
    with pytest.raises(ValueError, match="no"):
        evaluate(graph, np.asarray(1))


def test_other_dtypes_stay_what_they_are():
    whole = pt.vector("whole", dtype="int32", shape=(4,))
    outs = [
        pt.set_subtensor(pt.zeros(4)[:], whole),
        pt.second(four, whole),
        pt.sum(whole[1:2]),
        pt.concatenate([whole, pt.zeros(1)])[:4],
    ]
    plain([four, whole], outs, FOUR, np.arange(4, dtype="int32"))


# -- random chains -----------------------------------------------------------------------------------


def random_chain(rng: random.Random, matrix: bool, static: bool, length: int) -> FunctionGraph:
    """Slices, writes, joins, fills and sums of three tensors; some of them raise."""

    def tensor(name: str, rows: int) -> Any:
        trailing = (rng.choice([None, 2]),) * matrix
        return pt.tensor(name, dtype="float64", shape=(rows if static else None, *trailing))

    pool = [tensor("a", length), tensor("b", length), tensor("c", length + 1)]
    row = pt.tensor("row", dtype="float64", shape=(rng.choice([None, 2]),) * matrix)
    k = pt.lscalar("k")
    given = [*pool, row, n, k]

    def index() -> Any:
        of = rng.choice(pool)
        symbolic = [n, k, -n, of.shape[0], of.shape[0] - 1]
        return rng.choice([rng.randrange(-6, 7), rng.randrange(-6, 7), None, rng.choice(symbolic)])

    def number() -> Any:
        i = index()
        return rng.randrange(3) if i is None else i

    def cut() -> slice:
        return slice(index(), index(), rng.choice([None, 1, -1, -1, 2]))

    def written(z: Any, y: Any, s: Any) -> Any:
        base = rng.choice([z, pt.zeros_like(z), pt.zeros_like(z)])
        values = [row, y[number()]] if not isinstance(s, slice) else [y, y[s], row, z[s][::-1]]
        change = rng.choice([pt.set_subtensor, pt.inc_subtensor])
        return change(base[s], rng.choice(values))

    def filled(z: Any) -> Any:
        count = rng.choice([2, n, z.shape[0], z.shape[0] + 1])
        return pt.alloc(rng.choice([pt.constant(np.zeros(())), row]), count, *[z.shape[1]] * matrix)

    def padded(z: Any) -> Any:
        return pt.set_subtensor(pt.zeros((z.shape[0] + 1, *[z.shape[1]] * matrix))[1:], z)

    moves = [
        lambda z, y: z[cut()],
        lambda z, y: z[::-1],
        lambda z, y: written(z, y, cut()),
        lambda z, y: written(z, y, number()),
        lambda z, y: pt.concatenate([z, y]),
        lambda z, y: pt.concatenate([rng.choice([row, z[number()]])[None], z, pt.zeros_like(y)]),
        lambda z, y: pt.second(z, y),
        lambda z, y: filled(z),
        lambda z, y: padded(z),
        lambda z, y: z + rng.choice([y, pt.concatenate([pt.zeros_like(y), y[:0]])]),
        lambda z, y: pt.split(z, pt.stack([n, z.shape[0] - n]), n_splits=2)[rng.randrange(2)],
        lambda z, y: z[number()][None],
    ]
    for _ in range(rng.randrange(2, 8)):
        try:
            made = rng.choice(moves)(rng.choice(pool[-4:]), rng.choice(pool))
        except (IndexError, TypeError, ValueError):  # static shapes say that it cannot be
            continue
        pool.append(made)
    last = pool[-1]
    outs = [*rng.sample(pool[1:], 2), last, last.sum(axis=0), last.shape[0]]
    return FunctionGraph(given, outs, clone=True)


def outcome(graph: FunctionGraph, at: list[Any]) -> Any:
    try:
        return evaluate(graph, *at)
    except (AssertionError, IndexError, ValueError) as error:
        return type(error)


@pytest.mark.slow
@RANDOM
@seed(1)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_random_chains(start, matrix, static):
    for k in range(4):
        rng = random.Random(start + k)
        length = rng.randrange(6)
        before = random_chain(rng, matrix, static, length)
        after = before.clone()
        simplify_gradients(after)
        check(after)
        nodes = after.toposort()
        simplify_gradients(after)
        assert after.toposort() == nodes
        for lengths in [(length, length, length + 1), (0, 0, 1), (2, 2, 3)][: 1 if static else 3]:
            values = np.random.default_rng(start)
            at = [values.normal(size=(rows, *[2] * matrix)) for rows in lengths]
            at += [values.normal(size=(2,) * matrix), values.integers(0, 4), values.integers(-3, 5)]
            at = [np.asarray(a) for a in at]
            expected, actual = outcome(before, at), outcome(after, at)
            if isinstance(expected, type):
                # Of several errors another may come first; what is in no row need not be computed.
                continue
            assert not isinstance(actual, type), actual
            for e, f in zip(expected, actual, strict=True):
                np.testing.assert_allclose(f, e, rtol=1e-13, strict=True)


def test_joined_rows_are_found_on_both_releases():
    assert joined_rows(pt.concatenate([x, x]).owner) == [x, x]


def test_a_product_with_a_fill_is_one_with_a_number():
    rows = pt.alloc(pt.constant(1.0, dtype="float64"), x.shape[0])
    for product in (rows * (2 * x), rows * x * 2, pt.second(x, 1.0) * 2 * x):
        graph = plain([x], [product], FOUR)
        assert ops(graph).count("Elemwise") == 1 and "Alloc" not in ops(graph)
    assert not ops(plain([x], [rows * x], FOUR))
    threes = pt.alloc(pt.constant(3, dtype="int8"), x.shape[0])
    (tripled,) = plain([x], [threes * x], FOUR).toposort()
    assert isinstance(tripled.inputs[0], Constant)


def test_a_product_with_a_fill_that_is_needed():
    ones = pt.alloc(pt.constant(1.0, dtype="float64"), n)
    # It raises where n is not 4.
    assert ops(plain([x, n], [ones * x], FOUR, 4)) == ["Alloc", "Elemwise"]
    plain([v, n], [ones * v], 0.5, 3)
    plain([x], [pt.alloc(pt.constant(100, dtype="int8"), 4) * np.full(4, 3, "int8") * x], FOUR)
    whole = pt.cast(x, "int8")
    assert "Elemwise" in ops(plain([x], [pt.second(x, 1.0) * whole], FOUR))  # it makes it a float


def test_a_window_of_what_nobody_can_follow_is_one_of_the_whole():
    y = pt.concatenate([[v], x])
    graph = plain([x, v], [y[-1:][-1], y[:-1][::-1]], FOUR, 0.5)
    actual = [o.owner.inputs[0] for o in graph.outputs]
    assert [type(f.owner.op) for f in actual] == [Join, Join] and actual[0] is actual[1]
    assert ops(graph).count("Subtensor") == 2
