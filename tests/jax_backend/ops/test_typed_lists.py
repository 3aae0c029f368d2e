"""Typed lists across the border of a function, in loops, under transformations, empty and ragged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import typed_list
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.type_other import MakeSlice
from pytensor.typed_list import TypedListType, make_list

import loopax
from loopax import DynamicShapeError, LoopTypeError, jaxify
from loopax.ir import (
    BodyArgs,
    BodyOuts,
    Scan,
    ScanArgs,
    ScanOptions,
    Stack,
    TraceType,
    Unstack,
    evaluate,
)
from loopax.jax_backend.staging.context import Context
from loopax.jax_backend.staging.evaluate import run
from loopax.jax_backend.values.lists import StackedList, empty
from tests.support.both_backends import NATIVE
from tests.support.compare import imported, primitives

ROWS = [np.array([0.5, -1.0, 2.0]), np.array([1.0, 2.0, 3.0])]
VECTORS = TypedListType(pt.dvector)


def agrees(inputs, outputs, *values):
    """Values of ``outputs`` as `pytensor.function` and `evaluate` give them; what JAX gives is returned."""
    expected = pytensor.function(inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore")(
        *values
    )
    meant = evaluate(imported(inputs, outputs).graph, *values)
    actual = jaxify(inputs, outputs)(*values)
    for f, e, m in zip(actual, expected, meant, strict=True):
        if isinstance(e, list):
            assert len(f) == len(e) == len(m)
            for a, b in zip(f, e, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-13)
        else:
            np.testing.assert_allclose(f, e, rtol=1e-13)
    return actual


def test_in_and_out():
    xs, x = VECTORS("xs"), pt.dvector("x")
    out = typed_list.append(xs, x * 2)
    [actual] = agrees([xs, x], [out], ROWS, ROWS[0])
    assert isinstance(actual, StackedList) and isinstance(actual.data, jax.Array)
    assert np.asarray(actual).shape == (3, 3) and actual[2].tolist() == [1.0, -2.0, 4.0]
    assert [row.tolist() for row in actual] == np.asarray(actual).tolist()
    f = jaxify([xs, x], out)
    for given in (
        tuple(ROWS),
        np.stack(ROWS),
        jnp.stack(ROWS),
        StackedList(np.stack(ROWS)),
        actual[:2],
    ):
        assert np.asarray(f(given, ROWS[0])).shape == (3, 3)
    assert len(f([], ROWS[0])) == 1


def test_what_is_no_such_list_is_refused():
    xs = VECTORS("xs")
    f = jaxify([xs], xs[0])
    with pytest.raises(
        LoopTypeError, match=r"'xs' .* must be a list of rows, each float64.*got a float"
    ):
        f(1.0)
    with pytest.raises(
        LoopTypeError, match=r"Row 1 of input 'xs' \(argument 0\) must be float64 of rank 1"
    ):
        f([np.ones(3), np.ones((3, 3))])
    with pytest.raises(LoopTypeError, match=r"Row 0 of input 'xs'.*complex128"):
        f([np.ones(3) * 1j])
    with pytest.raises(LoopTypeError, match="must be float64 of rank 2"):
        f(np.ones((2, 3, 4)))
    with pytest.raises(IndexError, match="Index 0 is out of range for a list of 0 rows, 'xs'"):
        f([])


def test_rows_of_unequal_shapes_are_kept_one_by_one():
    xs, k = VECTORS("xs"), pt.lscalar("k")
    ragged = [np.arange(2.0), np.arange(3.0)]
    actual = agrees([xs, k], [typed_list.reverse(xs), xs[k], typed_list.length(xs)], ragged, 1)
    assert [x.shape for x in actual[0]] == [(3,), (2,)]
    with pytest.raises(
        ValueError, match=r"Row 1 of a list has the shape \(3,\), but all rows must have \(2,\)"
    ):
        jaxify([xs], Stack()(xs, 2))(ragged)
    with pytest.raises(DynamicShapeError, match="static_argnums"):
        jax.jit(jaxify([xs, k], xs[k]))(ragged, 1)


def test_constant_lists():
    rows = VECTORS.make_constant(ROWS) if hasattr(VECTORS, "make_constant") else None
    x = pt.dvector("x")
    agrees([x], [rows[1] * x, typed_list.extend(rows, rows)], ROWS[0])


def test_lists_of_lists():
    x = pt.dvector("x")
    inner = make_list([x, x + 1])
    outer = make_list([inner, typed_list.reverse(inner)])
    actual = agrees([x], [outer[1][0], outer[0], typed_list.length(outer[1])], ROWS[0])
    assert isinstance(actual[1], StackedList)
    nested = TypedListType(VECTORS)("nested")
    [row, whole] = agrees([nested], [nested[1][0] * 2, nested], [ROWS, ROWS[::-1]])
    assert len(whole) == 2 and np.asarray(whole.data).shape == (2, 2, 3)


def test_an_empty_list_has_the_shape_of_its_type():
    known = empty(pt.TensorType("float32", (2, None)))
    assert (known.data.shape, known.data.dtype, len(known)) == ((0, 2, 0), "float32", 0)
    xs, n = VECTORS("xs"), pt.lscalar("n")
    actual = agrees([xs], [Stack()(xs, 4), typed_list.reverse(xs), typed_list.length(xs)], [])
    assert actual[0].shape == (0, 4) and np.asarray(actual[1]).shape == (0, 0)
    stacked = jaxify([xs, n], Stack()(xs, n))
    assert stacked([], 5).shape == (0, 5)


def test_derivatives_and_batches():
    xs, x = VECTORS("xs"), pt.dvector("x")
    longer = typed_list.append(xs, x)
    cost = (longer[0] * longer[2]).sum() + (Stack()(longer, 3) ** 2).sum()
    f = jaxify([xs, x], cost)
    as_list, by_x = jax.jit(jax.grad(f, argnums=(0, 1)))(ROWS, ROWS[1])
    assert isinstance(as_list, list)
    np.testing.assert_allclose(as_list[0], ROWS[1] + 2 * ROWS[0])
    np.testing.assert_allclose(as_list[1], 2 * ROWS[1])
    np.testing.assert_allclose(by_x, ROWS[0] + 2 * ROWS[1])
    as_array = jax.grad(f)(jnp.stack(ROWS), ROWS[1])
    np.testing.assert_allclose(as_array, np.stack(as_list))
    as_stack = jax.grad(f)(StackedList(jnp.stack(ROWS)), ROWS[1])
    np.testing.assert_allclose(np.asarray(as_stack), np.stack(as_list))
    batch = jnp.stack([jnp.stack(ROWS), 2 * jnp.stack(ROWS)])
    actual = jax.vmap(f, in_axes=(0, None))(batch, ROWS[1])
    np.testing.assert_allclose(actual, [f(rows, ROWS[1]) for rows in batch])
    out = jax.vmap(jaxify([xs], typed_list.reverse(xs)))(batch)
    assert isinstance(out, StackedList) and out.data.shape == (2, 2, 3)
    second = jax.tree.map(lambda x: x[1], out)
    np.testing.assert_array_equal(second[0], 2 * ROWS[1])
    with pytest.raises(TypeError, match=r"2 rows takes one index, not \(1, 0\).*x\[0\], rows\)"):
        out[1, 0]


def test_a_list_is_exported():
    xs = VECTORS("xs")
    f = jaxify([xs], [typed_list.reverse(xs), xs[0] * 2])
    given = StackedList(jnp.stack(ROWS))
    actual = jax.export.export(jax.jit(f))(given).call(given)
    np.testing.assert_array_equal(np.asarray(actual[0]), np.stack(ROWS[::-1]))


def test_an_index_that_is_out_of_range_while_traced_gives_no_number():
    xs, k = VECTORS("xs"), pt.lscalar("k")
    f = jax.jit(jaxify([xs, k], xs[k]))
    np.testing.assert_array_equal(f(ROWS, -2), ROWS[0])
    assert np.isnan(f(ROWS, 2)).all() and np.isnan(f(ROWS, -3)).all()
    with pytest.raises(IndexError, match="Index 2 is out of range for a list of 2 rows"):
        jaxify([xs], xs[2])(ROWS)


def test_looking_for_a_row():
    xs, x = VECTORS("xs"), pt.dvector("x")
    f = jax.jit(jaxify([xs, x], [xs.ind(x), xs.count(x)]))
    nan = np.array([1.0, np.nan, 3.0])
    for rows, row, at, count in (
        ([*ROWS, ROWS[1]], ROWS[1], 1, 2),
        ([nan, nan], nan, 0, 2),
        (ROWS, ROWS[0] * 2, np.iinfo("int64").min, 0),
        ([np.ones(2), np.ones(3)], np.ones(3), 1, 1),
    ):
        assert [int(y) for y in f(rows, row)] == [at, count]
    known = jaxify([], make_list([pt.constant(r) for r in ROWS]).ind(pt.zeros(3)))
    with pytest.raises(ValueError, match="none of its 2 rows equals"):
        known()


@pytest.mark.filterwarnings("ignore:program makes a shape of the values:UserWarning")
def test_what_makes_the_length_is_static():
    xs, x, n = VECTORS("xs"), pt.dvector("x"), pt.lscalar("n")
    shorter = typed_list.remove(xs, x)
    f = jaxify([xs, x], [typed_list.length(shorter), shorter])
    for row, length in ((ROWS[1], 1), (ROWS[1] * 2, 2)):
        actual = f(ROWS, row)
        assert int(actual[0]) == len(actual[1]) == length
    with pytest.raises(DynamicShapeError, match="Remove needs the value of 'xs'"):
        jax.jit(jaxify([xs, x], shorter))(ROWS, ROWS[1])
    part = jaxify([xs, n], typed_list.length(xs[MakeSlice()(n, None, None)]))
    assert [int(part(ROWS, k)) for k in (0, 1, 2)] == [2, 1, 0]
    with pytest.raises(DynamicShapeError, match=r"GetItem needs the value of .*'n' \(argument 1\)"):
        jax.jit(jaxify([xs, n], xs[MakeSlice()(n, None, None)]))(ROWS, 1)


# -- in loops ----------------------------------------------------------------------------------------


def over_rows(rows, reverse=False):
    """A loop that takes a row of two lists' a step, and emits a list."""
    i, row, s = pt.lscalar(), VECTORS(), pt.dvector()
    new = s + row[0] * row[1] + i
    body = BodyOuts([new], [make_list([new, row[1]])])
    scan = Scan.from_body(BodyArgs(i, [row], [s], []), body, ScanOptions(reverse=reverse))
    assert isinstance(scan.bind(ScanArgs(1, [rows], [pt.zeros(3)], []))[1].type, TraceType)
    return scan.bind(ScanArgs(typed_list.length(rows), [rows], [pt.zeros(3)], []))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_and_traces_that_are_lists(n, reverse):
    rows = TraceType(VECTORS)("rows")
    final, trace = over_rows(rows, reverse)
    given = [[ROWS[0] * k, ROWS[1]] for k in range(1, n + 1)]
    actual = agrees([rows], [final, typed_list.length(trace)], given)
    assert int(actual[1]) == n
    f = jaxify([rows], trace)
    assert primitives(jax.make_jaxpr(f)(given))["scan"] == (n > 0)
    expected = evaluate(imported([rows], [trace]).graph, given)[0]
    assert len(f(given)) == len(expected) == n
    for a, b in zip(f(given), expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.stack(b))


def test_derivatives_through_rows_and_traces():
    rows = TraceType(VECTORS)("rows")
    _, trace = over_rows(rows)
    f = jaxify([rows], (trace[2][0] * trace[0][1]).sum())
    given = [jnp.stack([ROWS[0] * k, ROWS[1]]) for k in (1.0, 2.0, 3.0)]

    def by_hand(rows):
        total = sum(row[0] * row[1] for row in rows) + 3.0
        return jnp.sum(total * rows[0][1])

    actual, expected = jax.grad(f)(given), jax.grad(by_hand)(given)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    batch = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), given)
    alone = [f(given), f(jax.tree.map(lambda x: 2 * x, given))]
    np.testing.assert_allclose(jax.vmap(f)(batch), alone)


def test_rows_of_unequal_shapes_in_a_loop():
    pairs, pair, s = TraceType(VECTORS)("pairs"), VECTORS(), pt.dscalar()
    scan = Scan.from_body(
        BodyArgs(pt.lscalar(), [pair], [s], []), BodyOuts([s + pair[0].sum()], [])
    )
    f = jaxify(
        [pairs], scan.bind(ScanArgs(typed_list.length(pairs), [pairs], [pt.zeros(())], []))[0]
    )
    ragged = [[np.ones(2)], [np.ones(3)]]
    assert f(ragged) == 5.0
    assert "scan" not in primitives(jax.make_jaxpr(f)(ragged))
    with pytest.raises(
        DynamicShapeError, match=r"rows of the list have unequal shapes.*this one has 66"
    ):
        f(ragged * 33)


def test_a_list_as_a_state_keeps_its_length():
    s, i = VECTORS(), pt.lscalar()
    xs, n = VECTORS("xs"), pt.lscalar("n")
    swap = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([typed_list.reverse(s)], [s[0]]))
    final, trace = swap.bind(ScanArgs(3, [], [xs], []))
    actual = agrees([xs], [final, trace], ROWS)
    assert isinstance(actual[0], StackedList)
    counted = swap.bind(ScanArgs(n, [], [xs], []))[0]
    agrees([xs, n], [counted], ROWS, 3)
    grow = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([typed_list.append(s, s[0])], []))
    f = jaxify([xs], grow.bind(ScanArgs(3, [], [xs], []))[0])
    with pytest.raises(DynamicShapeError, match=r"changes from 2 rows .* to 3 .*loopax.scan\("):
        f(ROWS)


def test_a_stopping_loop_over_a_list():
    rows, row, s = TraceType(VECTORS)("rows"), VECTORS(), pt.dscalar()
    new = s + row[0].sum()
    scan = Scan.from_body(BodyArgs(pt.lscalar(), [row], [s], []), BodyOuts([new], [], new > 4))
    outs = scan.bind(ScanArgs(typed_list.length(rows), [rows], [pt.zeros(())], []))
    agrees([rows], outs, [[ROWS[0]], [ROWS[1]], [ROWS[1]]])


def test_a_list_of_keys_is_a_stacked_key_array():
    rng = random_generator_type("rng")
    scan = Scan.from_body(BodyArgs(pt.lscalar(), [], [rng], []), BodyOuts([rng], [rng]))
    start = random_generator_type("start")
    final, keys = scan.bind(ScanArgs(3, [], [start], []))
    more = typed_list.append(keys, start)
    graph = FunctionGraph(
        [start], [final, keys, more[3], more[0], typed_list.length(more)], clone=True
    )
    key = jax.random.key(7)

    def program(key):
        return run(Context(), graph, [key], range(1))

    final, keys, last, first, n = jax.jit(program)(key)
    assert keys.data.shape == (3,) and jnp.issubdtype(keys.data.dtype, jax.dtypes.prng_key)
    assert int(n) == 4
    for x in (final, last, first, keys[1]):
        np.testing.assert_array_equal(jax.random.key_data(x), jax.random.key_data(key))
    assert empty(random_generator_type).data.shape == (0,)


def test_unstacked_rows_are_those_of_the_matrix():
    m = pt.dmatrix("m")
    rows = Unstack()(m)
    actual = agrees([m], [rows, Stack()(typed_list.reverse(rows), 3)], np.stack(ROWS))
    np.testing.assert_array_equal(actual[1], np.stack(ROWS)[::-1])
    slope = jax.grad(jaxify([m], (rows[1] ** 2).sum()))(np.stack(ROWS))
    np.testing.assert_allclose(slope, [np.zeros(3), 2 * ROWS[1]])


@pytest.mark.parametrize("part", [slice(1, None), slice(None, 2), slice(None, None, -1)], ids=str)
def test_a_slice_in_a_step_and_in_a_batch(part):
    """A slice has no hash before Python 3.12, and the body of a loop is compared by its hash."""
    r, m = pt.dvector("r"), pt.dmatrix("m")

    def first(r):
        return typed_list.make_list([r, 2 * r, 3 * r])[part][0]

    rows = np.arange(6.0).reshape(2, 3)
    expected = rows * [1, 2, 3][part][0]
    for options in ({"loops": "xla"}, {"backend": NATIVE}):
        np.testing.assert_array_equal(jaxify([m], loopax.map(first, m), **options)(rows), expected)
        batched = loopax.vmap(jaxify([r], first(r), **options))
        np.testing.assert_array_equal(batched(rows), expected)


def test_the_extremum_of_a_list_s_element_in_a_batch():
    r = pt.dvector("r")
    least = pt.min(r)
    f = jaxify([r], typed_list.reverse(typed_list.make_list([least, 2 * least]))[0])
    np.testing.assert_array_equal(jax.vmap(f)(np.arange(6.0).reshape(2, 3)), [0.0, 6.0])
