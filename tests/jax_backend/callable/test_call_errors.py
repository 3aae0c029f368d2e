"""Bad input never gives a wrong number: what is refused, and what the message says."""

import dataclasses
from functools import partial

import jax
import jax.experimental.checkify as checkify
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import Assert
from pytensor.scan.utils import until
from pytensor.tensor.type_other import make_slice

import loopax
from loopax import (
    DynamicShapeError,
    LoopaxError,
    LoopTypeError,
    MissingInputError,
    StatefulFunctionError,
    UnsupportedOpError,
    jaxify,
)
from tests.frontend.test_mit_mot import mit_mot
from tests.support.compare import FAST_COMPILE

scan = partial(pytensor.scan, return_updates=False)

A, N, X, Y, M = pt.dscalar("a"), pt.lscalar("n"), pt.dvector("x"), pt.dvector("y"), pt.dmatrix("m")


class Strange(Op):
    """Takes and returns lists: nothing that could cross to JAX."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [pytensor.typed_list.TypedListType(x.type)()])

    def perform(self, node, inputs, storage):
        storage[0][0] = [inputs[0]]


def test_errors_are_one_tree_and_what_users_expect_of_them():
    for error, builtin in [
        (UnsupportedOpError, NotImplementedError),
        (LoopTypeError, TypeError),
        (MissingInputError, TypeError),
        (DynamicShapeError, LoopaxError),
        (StatefulFunctionError, LoopaxError),
    ]:
        assert issubclass(error, LoopaxError) and issubclass(error, builtin)


# -- ops that JAX cannot run -----------------------------------------------------------------------------


@pytest.mark.parametrize("on_missing", ["callback", "raise"])
def test_all_that_is_unsupported_is_in_one_message(on_missing):
    strange = pytensor.typed_list.length(Strange()(X))
    looped = mit_mot((0, 1), (-1,), lambda a, b: [a + b], X, 3)
    with pytest.raises(UnsupportedOpError) as caught:
        jaxify([X], strange + looped.sum(), on_missing=on_missing)
    message = str(caught.value)
    for part in (
        "These ops have no JAX conversion:\n  - ",
        "class Strange",
        "MIT-MOT taps (0, 1) in and (-1,) out",
        "`pytensor.grad` makes no such loop",
        "jax_funcify.register(OpClass)",
        "on_missing='callback'",
    ):
        assert part in message, part
    assert len(caught.value.ops) >= 2
    assert message.count("\n  - ") == len(caught.value.ops)


def test_what_is_unsupported_inside_a_body_is_found_and_said_once():
    def step(x):
        return (
            x + pytensor.typed_list.length(Strange()(X)) + pytensor.typed_list.length(Strange()(X))
        )

    with pytest.raises(UnsupportedOpError, match="class Strange") as caught:
        jaxify([X], scan(step, X))
    assert sum("class Strange" in line for line in caught.value.ops) == 1

    def stopping(a):
        return scan(lambda b: (step(b), until(b > a)), X)[-1]

    with pytest.raises(UnsupportedOpError, match="class Strange"):
        jaxify([X], scan(stopping, X))


def test_the_users_line_is_named():
    with pytest.raises(UnsupportedOpError, match=r"test_call_errors\.py:\d+, in "):
        jaxify([X], pytensor.typed_list.length(Strange()(X)))


def test_types_that_do_not_cross():
    anything = pytensor.link.c.type.generic("anything")
    with pytest.raises(
        UnsupportedOpError, match="Input anything.*does not cross to JAX: inputs and"
    ):
        jaxify([anything, X], X)
    n = pt.lscalar("n")
    with pytest.raises(
        UnsupportedOpError, match="JAX cannot return.*start, stop and step of a slice"
    ):
        jaxify([n], make_slice(n, None, None))


# -- what jaxify is given ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([X],), "jaxify takes a list of inputs followed by outputs.* without outputs"),
        ((3,), "got 3 of type int without outputs"),
        (([X, 3], X), "jaxify takes input variables, such as .* got 3 of type int"),
        (([X, pt.constant(1.0)], X), "jaxify takes input variables"),
        (([X], object()), "An output must be a PyTensor variable .*got <object.* of type object"),
    ],
)
def test_what_is_no_program(arguments, message):
    with pytest.raises(TypeError, match=message):
        jaxify(*arguments)


def test_outputs_do_not_go_with_a_function_that_has_its_own():
    compiled = pytensor.function([X], X, mode=FAST_COMPILE)
    for fn in (compiled, pytensor.graph.fg.FunctionGraph([X], [X + 1], clone=True)):
        with pytest.raises(TypeError, match="need a list of input variables.* has its own"):
            jaxify(fn, X)
    with pytest.raises(TypeError, match="need a list of input variables"):
        jaxify(lambda x: x, givens={X: Y})


def test_missing_inputs_are_all_named():
    z = pt.dvector("z")
    with pytest.raises(MissingInputError, match="not among the inputs: .*; .*givens") as caught:
        jaxify([X], X + Y + z)
    assert "'y' of type" in str(caught.value) and "'z' of type" in str(caught.value)
    with pytest.raises(MissingInputError, match="An input is listed twice among .'x', 'y', 'x'."):
        jaxify([X, Y, X], X)


# -- calls --------------------------------------------------------------------------------------------


def power(**options):
    return jaxify([X, A], (X**2).sum() * A, name="power", **options)


XS = np.array([1.0, 2.0])


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, r"power was called without x, a. Its signature is power\(x, a\)"),
        ((XS,), {}, "power was called without a"),
        (
            (XS, 1.0, 2.0),
            {},
            r"power takes 2 inputs, but 3 were passed. Its signature is power\(x, a\)",
        ),
        ((XS,), {"b": 1.0}, r"has no input named 'b'.* Its signature is power\(x, a\)"),
        ((), {"xx": XS, "a": 1.0}, "has no input named 'xx'. Did you mean 'x'?"),
        ((XS, 1.0), {"a": 1.0}, "Input 'a' of power was passed twice, by position and by name"),
    ],
)
def test_missing_misnamed_doubled_and_too_many(args, kwargs, message):
    with pytest.raises(MissingInputError, match=message):
        power()(*args, **kwargs)


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
@pytest.mark.parametrize(
    ("value", "actual"),
    [
        (np.ones((2, 2)), r"float64, shape \(2, 2\) was given"),
        (np.asarray(1.0), r"float64, shape \(\) was given"),
        (np.array([1 + 2j]), r"complex128, shape \(1,\) was given"),
    ],
)
def test_a_wrong_rank_or_dtype(convert, value, actual):
    expected = (
        rf"Input 'x' \(argument 0\) must be float64 of rank 1, shape \(\?\), but {actual}. It "
    )
    with pytest.raises(LoopTypeError, match=expected):
        power()(convert(value), 1.0)
    with pytest.raises(LoopTypeError, match=expected):
        jax.jit(power())(jnp.asarray(value), 1.0)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (pt.lscalar("n"), 2.5, "must be int64 of rank 0.* but float64"),
        (pt.lscalar("n"), jnp.asarray(2.5), "must be int64 of rank 0.* but float64"),
        (pt.bscalar("n"), 1000, "must be int8 of rank 0"),
        (pt.fvector("v"), np.ones(2), "must be float32 of rank 1.* but float64, shape .2,. was"),
        (pt.fvector("v"), jnp.ones(2), "must be float32 of rank 1.* but float64, shape .2,. was"),
        (pt.scalar("b", dtype="bool"), 2, "must be bool of rank 0"),
        (pt.scalar("b", dtype="bool"), jnp.asarray(2), "must be bool of rank 0"),
        (pt.lvector("k"), jnp.array([1.0]), "must be int64 of rank 1"),
        (pt.vector("u", dtype="uint8"), np.array([-1]), "must be uint8 of rank 1"),
        (pt.dvector("x"), "text", "must be float64 of rank 1"),
        (pt.dvector("x"), [[1.0], [1.0, 2.0]], "must be float64 of rank 1"),
        (pt.dvector("x"), None, "must be float64 of rank 1"),
        (pt.dvector("x", shape=(3,)), np.ones(2), r"must be .*shape \(3\), but .*shape \(2,\)"),
        (pt.dvector("x", shape=(3,)), jnp.ones(2), r"must be .*shape \(3\), but .*shape \(2,\)"),
        (pt.drow("r"), jnp.ones((2, 2)), r"must be .*shape \(1, \?\), but .*shape \(2, 2\)"),
        (pt.dvector("x"), X, "is the PyTensor variable x, but a jaxified function takes arrays"),
        (pt.dvector(), np.ones(()), "^Argument 0 must be float64 of rank 1"),
    ],
    ids=str,
)
def test_values_that_do_not_fit_an_input(variable, value, message):
    with pytest.raises(LoopTypeError, match=message):
        jaxify([variable], variable)(value)


def test_a_function_with_updates_is_not_called():
    w = pytensor.shared(np.asarray(1.0), name="w")
    f = jaxify([A], A * w, updates={w: w + A})
    for call in (f, jax.jit(f), jax.grad(f)):
        with pytest.raises(
            StatefulFunctionError,
            match=r"updates the shared variables w: .*f.apply\(ctx, .*f.stateful\(\)",
        ):
            call(1.0)


# -- precision -------------------------------------------------------------------------------------------


def enable_x64(value):
    """The context manager: JAX has moved it."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(value)
    return jax.experimental.enable_x64(value)


def test_a_64_bit_program_is_refused_in_32_bit_mode():
    f = jaxify([X], pt.exp(X).sum())
    assert f(XS).dtype == "float64"
    with enable_x64(False):
        x = jnp.asarray(XS, dtype="float32")
        for call, at in [(f, x), (jax.jit(f), x), (jax.grad(f), x), (jax.vmap(f), x[None])]:
            with pytest.raises(LoopTypeError, match="computes in float64 .*JAX is in 32-bit mode"):
                call(at)
        with pytest.raises(LoopTypeError, match="Call jax.config.update.'jax_enable_x64', True"):
            f(XS)
    assert f(XS).dtype == "float64"
    z = pt.zvector("z")
    with enable_x64(False), pytest.raises(LoopTypeError, match="complex128.*run in complex64"):
        jaxify([z], z * 2)(np.ones(2, dtype="complex128"))


@pytest.mark.filterwarnings("ignore:The assertion .* depends on traced values:UserWarning")
def test_a_check_that_was_traced_in_32_bit_mode():
    """Checkify counts errors in integers of the precision; a trace in the other one does not fit."""
    x = pt.fvector("x")
    f = jaxify([x], Assert("positive, please")(x, pt.all(x > 0)) * 2, checks="checkify")
    values = np.ones(2, dtype="float32")
    for value in (False, True, False):
        with enable_x64(value):
            error, doubled = jax.jit(checkify.checkify(f))(values)
        assert error.get() is None and doubled.tolist() == [2, 2]


def test_a_32_bit_program_runs_in_32_bit_mode():
    x, k = pt.fvector("x"), pt.lvector("k")
    f = jaxify([x], (x * 2).sum())
    g = jaxify([k], k * 2)
    with enable_x64(False):
        assert f(np.ones(2, dtype="float32")).dtype == "float32"
        assert g(np.array([3])).tolist() == [6]


def test_integers_that_would_wrap_are_refused_in_32_bit_mode():
    k = pt.lvector("k")
    f = jaxify([k], k * 2)
    with enable_x64(False):
        for value in ([2**31], [-(2**31) - 1], [2**40]):
            with pytest.raises(LoopTypeError, match="holds integers beyond 32 bits.*would wrap"):
                f(np.array(value))
    assert f(np.array([2**40])).tolist() == [2**41]


def test_integers_that_are_known_to_wrap_are_refused_in_32_bit_mode():
    k, n = pt.lvector("k"), pt.lscalar("n")
    wide = pt.constant(2**33, name="wide")
    refused = [
        ((k * wide).sum(), [np.arange(3)]),  # 0, if it wrapped
        (pt.switch(n > 0, k, wide), [np.arange(3), 1]),
        (pt.set_subtensor(k[0], wide), [np.arange(3)]),
        (loopax.fori_loop(0, n, lambda i, c: c + i, 2**33), [3]),
        (wide * 1, []),
    ]
    for out, at in refused:
        f = jaxify([v for v in (k, n) if v in {*ancestors([out])}], out)
        with (
            enable_x64(False),
            pytest.raises(
                LoopTypeError, match=r"an integer beyond 32 bits.*update\('jax_enable_x64', True"
            ),
        ):
            f(*at)
    named = (k * wide).sum()
    named.name = "total"
    with (
        enable_x64(False),
        pytest.raises(LoopTypeError, match="with 8589934592, .* an operand of Mul"),
    ):
        jaxify([k], named)(np.arange(3))


@pytest.mark.parametrize(
    "product",
    [
        lambda k, n: k * k,
        lambda k, n: (k * n).sum(),
        lambda k, n: k * 100_000,
        lambda k, n: k.prod(),
        lambda k, n: k**2,
        lambda k, n: pt.cumprod(k),
        lambda k, n: pt.dot(k, k),
        lambda k, n: loopax.fori_loop(0, 3, lambda i, c: c * n, n),
        lambda k, n: pt.as_tensor([1.0, 2.0])[k[0] % 2] + k[0] * n,  # no index alone
    ],
)
def test_products_that_may_wrap_are_refused_in_32_bit_mode(product):
    k, n = pt.lvector("k"), pt.lscalar("n")
    out = product(k, n)
    inputs = [v for v in (k, n) if v in {*ancestors([out])}]
    values = {k: np.array([70_000, 3]), n: 70_000}
    f = jaxify(inputs, out.astype("float32") if out.type.dtype == "float64" else out)
    with enable_x64(False):
        with pytest.raises(
            LoopTypeError, match="multiplies integers of 64 bits, for .* wrap around"
        ):
            f(*(values[v] for v in inputs))
    expected = pytensor.function(inputs, out, mode=FAST_COMPILE)(*(values[v] for v in inputs))
    np.testing.assert_allclose(f(*(values[v] for v in inputs)), expected, rtol=1e-6)


def test_products_that_fit_are_computed_in_32_bit_mode():
    k, n, x, i = pt.lvector("k"), pt.lscalar("n"), pt.fvector("x"), pt.iscalar("i")
    outs = {
        "a small factor": k * 1000,
        "a flag": (k > 2) * k,
        "a remainder": (k % 100) * (n % 1000),
        "a position": x[n * n + 1],
        "a length": x[: n * n].sum(),
        "32 bits": i * i,
    }
    f = jaxify([k, n, x, i], outs)
    at = np.array([5, 2]), 2, np.arange(9, dtype="float32"), np.int32(3)
    expected = f(*at)
    with enable_x64(False):
        actual = f(*at)
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def test_indices_lengths_and_loops_work_in_32_bit_mode():
    x, n = pt.fvector("x"), pt.lscalar("n")
    at = np.arange(1, 6, dtype="float32")
    doubled = loopax.while_loop(lambda c: c < 100, lambda c: 2 * c, n)  # its bound is 2**63 - 1
    powers = loopax.scan(lambda c, r: (c * r, c), np.float32(1), x[::-2])[1]
    outs = [x[n:].sum(), x[pt.arange(x.shape[0]) % 2], (x > n).sum(), doubled, powers, x[: 2**40]]
    f = jaxify([x, n], outs)
    with enable_x64(False):
        actual = f(at, 2)
    expected = [12, [1, 2, 1, 2, 1], 3, 128, [1, 5, 15], at]
    for y, e in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(y, e)


# -- shapes ------------------------------------------------------------------------------------------------


def test_a_length_of_one_is_not_broadcast_at_run_time():
    f = jaxify([X, Y], X + Y)
    with pytest.raises(
        ValueError, match="Axis 0 of 'y' .*has length 1 .*PyTensor refuses .*specify_bro"
    ):
        f(np.ones(3), np.ones(1))
    with pytest.raises(ValueError, match="Axis 0 of 'x'"):
        f(np.ones(1), np.ones(3))
    with pytest.raises(ValueError, match=r"lengths \[2, 3\] along axis 0"):
        f(np.ones(3), np.ones(2))
    assert f(np.ones(1), np.ones(1)).tolist() == [2]
    assert jaxify([X, Y], X + pt.specify_broadcastable(Y, 0))(np.ones(3), np.ones(1)).shape == (3,)


def test_other_shapes_that_do_not_fit():
    cases = [
        ([X], pt.specify_shape(X, (3,)) * 2, [np.ones(2)], "length 2, but the program declares 3"),
        ([X, N], pt.alloc(X, N), [np.ones(1), 3], "would be broadcast to 3, but its type does not"),
        ([X], pt.split(X, [1, 1], n_splits=2), [np.ones(3)], r"sizes \[1, 1\] do not add up to 3"),
        (
            [X, pt.lvector("k")],
            None,
            [np.ones(3), np.array([4, -1])],
            r"Split got the negative size in \[4, -1\]",
        ),
        ([X], pt.repeat(X, [1, 2]), [np.ones(3)], "repeat got 2 counts for an axis of length 3"),
    ]
    for inputs, output, values, message in cases:
        if output is None:
            output = pt.split(X, inputs[1], n_splits=2)
        with pytest.raises(ValueError, match=message):
            jaxify(inputs, output)(*values)


INDEXED = {
    "Index 5 is out of bounds for axis 0 of length 3": X[5],
    "Index -4 is out of bounds for axis 0 of length 3": X[-4],
    "Index 3 is out of bounds for axis 0 of length 3, in": X[[0, 3]],
    "Index 7 is out of bounds for axis 0 of length 3": pt.set_subtensor(X[7], 1.0),
    "Index 9 is out of bounds for axis 0 of length 3": pt.inc_subtensor(X[[1, 9]], 1.0),
    r"A mask of shape \(2,\) does not fit axes 0 to 0 of shape \(3,\)": X[np.array([True, False])],
}


@pytest.mark.parametrize("message", INDEXED)
def test_static_indices_are_checked(message):
    with pytest.raises(IndexError, match=message):
        jaxify([X], INDEXED[message])(np.ones(3))


# -- loops -------------------------------------------------------------------------------------------------


def test_negative_steps_and_short_sequences():
    f = jaxify([X, N], scan(lambda x, s: s + x, X, outputs_info=pt.zeros(()), n_steps=N))
    with pytest.raises(ValueError, match="takes 4 steps, but its sequence 0 has 3 rows. Slice the"):
        f(np.ones(3), 4)
    with pytest.raises(ValueError, match="got -2 steps, but a loop takes 0 or more"):
        f(np.ones(3), -2)
    assert f(np.ones(3), 2).tolist() == [1, 2]


def test_negative_steps_of_a_loop_whose_final_state_is_read():
    f = jaxify([A, N], scan(lambda s: s * 2, outputs_info=A, n_steps=N)[-1])
    assert float(f(3.0, 2)) == 12.0
    with pytest.raises(ValueError, match="got -2 steps"):
        jax.grad(f)(3.0, -2)
    # Where the number of steps is only known when the program runs, there is no error to raise.
    assert np.isnan(jax.jit(f)(3.0, -2))
    assert np.isnan(f(3.0, -2))


def test_a_state_that_changes_its_shape():
    f = jaxify([X], scan(lambda s: pt.concatenate([s, s[:1]]), outputs_info=X, n_steps=3)[-1])
    with pytest.raises(LoopTypeError, match=r"changes its shape from \(2,\) to \(3,\).*pt.zeros"):
        f(XS)


def test_a_state_that_changes_its_shape_is_named():
    def step(level, r):
        return pt.concatenate([level, r[None]]), level.sum()

    with pytest.raises(LoopTypeError, match=r"^level of a loop changes its shape from \(2,\)"):
        jaxify([X], loopax.scan(step, X, X)[1], loops="xla")(XS)


def test_a_dataclass_that_jax_does_not_know():
    @dataclasses.dataclass
    class Pair:
        a: object
        b: object

    for jit in (True, False):
        f = jaxify(lambda x: Pair(x, 2 * x), jit=jit)
        with pytest.raises(LoopTypeError, match="returns a Pair, .*register_dataclass"):
            f(XS)


def test_rows_of_different_shapes():
    k = pt.lvector("k")
    f = jaxify([X], scan(lambda i: X[:i], pt.arange(1, 4)))
    with pytest.raises(LoopTypeError, match=r"The rows of a trace .* cannot be stacked. Pad"):
        f(np.ones(4))
    f = jaxify([X, k], scan(lambda i: X[:i], k))
    with pytest.raises(LoopTypeError, match=r"the shapes \[\(1,\), \(2,\)\]"):  # written out
        f(np.ones(4), np.array([1, 2]))
    with pytest.raises(
        DynamicShapeError, match="a sequence of a loop, which is only known when the"
    ):
        f(np.ones(4), np.arange(65))


def test_a_shape_that_follows_from_a_state():
    f = jaxify(
        [X, N], scan(lambda s: s + X[:s].sum().astype("int64"), outputs_info=N, n_steps=3)[-1]
    )
    with pytest.raises(DynamicShapeError, match="depends on a state of a loop.*pt.where"):
        jax.jit(f)(np.ones(9), 1)


def test_a_shape_that_differs_from_row_to_row_of_a_batch():
    core = pytensor.compile.builders.OpFromGraph([N], [pt.ones((N,)).cumsum()[-1]])
    from pytensor.tensor.blockwise import Blockwise

    k = pt.lvector("k")
    f = jaxify([k], Blockwise(core, signature="()->()")(k))
    assert f(np.array([1, 2])).tolist() == [1, 2]  # by lengths that only the run tells
    with pytest.raises(DynamicShapeError, match="while JAX traces. That value follows from 'k'"):
        jax.jit(f)(np.array([1, 2]))


# -- assertions --------------------------------------------------------------------------------------------


def test_an_assertion_about_shapes_is_checked():
    f = jaxify([X], Assert("two rows, please")(X, pt.eq(X.shape[0], 2)))
    assert f(XS).tolist() == XS.tolist()
    with pytest.raises(AssertionError, match="two rows, please"):
        f(np.ones(3))


def test_an_assertion_about_values_is_said_to_be_skipped_once():
    f = jaxify([X], Assert("positive, please")(X, pt.all(pt.gt(X, 0))) * 2)
    with pytest.warns(UserWarning, match="'positive, please' depends on traced values.*checkify"):
        assert jax.jit(f)(XS).tolist() == [2, 4]
    assert jax.jit(f)(-XS).tolist() == [-2, -4]
    assert f(np.ones(3)).tolist() == [2, 2, 2]
    checked = checkify.checkify(f, errors=checkify.all_checks)
    error, _ = jax.jit(checked)(jnp.asarray(-XS))
    with pytest.raises(Exception, match="AssertionError: positive, please"):
        error.throw()
