"""The types of a carry: what is promoted in silence, what is refused and how that reads."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import LoopTypeError, cond, fori_loop, jaxify, lag, reduce, scan, while_loop
from loopax.ir import Scan
from tests.support.compare import value

XS = np.array([0.5, -1.0, 2.0, 3.0])
x = pt.dvector("x")
f32, f64, i32, i64, flag = (
    pt.scalar(name, dtype=dtype)
    for name, dtype in [
        ("f32", "float32"),
        ("f64", "float64"),
        ("i32", "int32"),
        ("i64", "int64"),
        ("flag", "bool"),
    ]
)
u8 = pt.scalar("u8", dtype="uint8")
z = pt.zscalar("z")


def carried(step, init, xs=x):
    """The type of the carry of a loop."""
    final, _ = scan(lambda c, r: (step(c, r), None), init, xs)
    assert isinstance(final.owner.op, Scan)
    return final.type


# -- promoted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "init",
    [
        pt.constant(0),  # an int8
        pt.constant(0.5),  # a float32
        0,
        0.5,
        True,
        np.int8(1),
        np.float32(0.5),
        np.array(2, dtype="uint64"),
        pt.constant(np.array(2**53)),
    ],
    ids=repr,
)
def test_a_constant_becomes_the_float64_of_its_loop(init):
    final = reduce(lambda c, r: c * r, init, x)
    assert final.type == f64.type
    number = float(init.data if isinstance(init, pt.TensorConstant) else init)
    assert value(final, [x], [XS]) == pytest.approx(number * XS.prod())
    assert jaxify([x], final)(XS) == pytest.approx(number * XS.prod())


@pytest.mark.parametrize(
    ("init", "step", "dtype"),
    [
        # A Python int is an int64, unless it meets a float: then it is nothing of its own.
        (0, lambda c, r: c + 1, "int64"),
        (0, lambda c, r: c + i32, "int64"),
        (0, lambda c, r: c + u8, "int64"),
        (0, lambda c, r: c * f32, "float32"),
        (0, lambda c, r: f64, "float64"),
        (0, lambda c, r: z, "complex128"),
        (0, lambda c, r: c, "int64"),
        (300, lambda c, r: c, "int64"),
        (0.5, lambda c, r: c * 0.5, "float64"),
        (0.5, lambda c, r: c * f32, "float64"),
        (True, lambda c, r: c & flag, "bool"),
        (True, lambda c, r: c & (r > 0), "bool"),
        # An array or a constant of a dtype keeps it as long as it can.
        (np.int8(0), lambda c, r: c + np.int8(1), "int8"),
        (pt.constant(0.5), lambda c, r: c * f32, "float32"),
        (np.float32(0), lambda c, r: c * f32, "float32"),
        (np.float32(0), lambda c, r: c * f64, "float64"),
        # A variable widens within its kind.
        (f32.astype("float64"), lambda c, r: c * f64, "float64"),
        (z, lambda c, r: pt.constant(1 + 0j, dtype="complex64"), "complex128"),
        (f64, lambda c, r: pt.constant(2 + 0j), "complex128"),
        (np.int64(-1), lambda c, r: c * f32, "float64"),
        (i32, lambda c, r: c + i64, "int64"),
        (u8, lambda c, r: c + pt.cast(i32, "int8"), "int16"),
        # What the step returns is widened too, and constants are cast.
        (f64, lambda c, r: f32, "float64"),
        (f64, lambda c, r: 0, "float64"),
        (f64, lambda c, r: pt.constant(0.0), "float64"),
        (i64, lambda c, r: 3, "int64"),
        (i64, lambda c, r: pt.constant(1.0), "int64"),
        (z, lambda c, r: r, "complex128"),
        (flag, lambda c, r: True, "bool"),
    ],
)
def test_the_dtype_of_a_carry(init, step, dtype):
    assert carried(step, init).dtype == dtype


def test_leaves_that_rise_one_after_the_other():
    # a rises when it has met x; b and c only when they meet what a has become.
    seen = []

    def step(carry, r):
        seen.append(1)
        a, b, c = carry
        return (a + r, a * 1, b), None

    (a, b, c), _ = scan(step, (0, np.int8(0), 0.5), x)
    assert [v.type.dtype for v in (a, b, c)] == ["float64"] * 3
    assert len(seen) == 3
    actual = value([a, b, c], [x], [XS])
    np.testing.assert_allclose(actual, [XS.sum(), XS[:-1].sum(), XS[:-2].sum()])


def test_what_a_constant_will_be_is_not_held_against_an_inner_loop_or_branch():
    # In the first call of the step its carry is an int8, and an int8 variable is no start for a float.
    calls = []

    def step(c, r):
        calls.append(1)
        inner = reduce(lambda s, v: s + v * r, c, x)
        return inner + cond(r > 0, lambda: c * 2, lambda: c * r), None

    final, _ = scan(step, 0, x)
    assert final.type.dtype == "float64" and len(calls) == 2
    c = 0.0
    for r in XS:
        c = c + XS.sum() * r + (c * 2 if r > 0 else c * r)
    assert value(final, [x], [XS]) == pytest.approx(c)
    # But if it stays an integer, the inner loop is refused for what it is.
    with pytest.raises(LoopTypeError, match=r"reduce changes the type(.|\n)*'carry'(.|\n)*unasked"):
        scan(lambda c, r: (c + 1, reduce(lambda s, v: s + v * r, c, x)), 0, x)
    with pytest.raises(LoopTypeError, match="branches of cond return different types"):
        scan(lambda c, r: (c + 1, cond(r > 0, lambda: c, lambda: r)), 0, x)


def test_a_step_is_called_a_bounded_number_of_times():
    calls = []

    def counting(returns):
        def step(carry, r):
            calls.append(r)
            return returns(carry, r), None

        return step

    scan(counting(lambda c, r: c + r), 0.0, x)  # nothing to find out
    assert len(calls) == 1
    calls.clear()
    scan(counting(lambda c, r: c + r), 0, x)
    assert len(calls) == 2
    calls.clear()
    scan(counting(lambda c, r: c + 1), 0, x, length=None)
    assert len(calls) == 2
    calls.clear()
    # A step that never returns what it got, because of what it does besides.
    dtypes = ["int8", "int16", "int32", "int64", "float32", "float64", "complex128"]
    worst = counting(lambda c, r: pt.zeros((), dtype=dtypes[min(len(calls), 6)]))
    scan(worst, pt.constant(0), x)
    assert len(calls) == 7
    calls.clear()
    chain = counting(lambda c, r: (c[0] + r, *c[:-1]))
    scan(chain, tuple(0 for _ in range(9)), x)
    assert len(calls) == 10


def test_an_endless_step_ends():
    # Ranks of its own that alternate: refused, not repeated.
    calls = []

    def step(c, r):
        calls.append(1)
        return pt.zeros((2,) * (len(calls) % 3)), None

    with pytest.raises(LoopTypeError, match="rank"):
        scan(step, pt.zeros(()), x)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("init", "step", "shape"),
    [
        (pt.zeros((1,)), lambda c, r: c + x, (None,)),
        (np.zeros((1, 2)), lambda c, r: pt.concatenate([c, c]), (None, 2)),
        (np.zeros(3), lambda c, r: x, (None,)),
        (np.zeros(3), lambda c, r: c + r, (3,)),
        (x, lambda c, r: c + np.zeros(4), (None,)),
        (np.zeros((2, 3)), lambda c, r: c.T, (None, None)),
        (np.zeros((2, 2)), lambda c, r: c.T, (2, 2)),
    ],
)
def test_a_static_shape_that_changes_is_forgotten(init, step, shape):
    assert carried(step, init).shape == shape


def test_a_length_of_one_in_a_carry():
    final = reduce(lambda c, r: c[: x.shape[0]] * r, pt.ones((1,)), x)
    np.testing.assert_allclose(value(final, [x], [XS]), [XS.prod()])
    grown = reduce(lambda c, r: pt.concatenate([c, r[None]]), pt.ones((1,)), x)
    np.testing.assert_allclose(value(grown, [x], [XS]), np.r_[1, XS])


def test_zero_steps_return_the_promoted_value():
    final = reduce(lambda c, r: c * r, 3, x)
    actual = value(final, [x], [XS[:0]])
    assert actual == 3 and actual.dtype == "float64"


def test_shared_variables_are_carried():
    shared = pytensor.shared(0.5, name="shared")
    final = reduce(lambda c, r: c + r, shared, x)
    assert final.type.dtype == "float64"
    assert value(final, [x], [XS]) == pytest.approx(0.5 + XS.sum())


# -- refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("init", "step", "match"),
    [
        (
            {"n": [i64]},
            lambda c, r: {"n": [c["n"][0] + r]},
            r"carry\['n'\]\[0\] is Scalar\(int64, shape=\(\)\) going into the step and Scalar\(float64, "
            r"shape=\(\)\) coming out.*in:  'i64'.*out: an output of .*test_carry.py.*"
            r"not made a float unasked: start from a float, i64.astype\('float64'\), or return an integer",
        ),
        (i64 + 0, lambda c, r: c + r, r"init.astype\('float64'\)"),
        (np.zeros(()), lambda c, r: x, r"rank is 0 going in and 1 coming out.*pt.zeros\(shape\)"),
        (x, lambda c, r: c.sum(), "rank is 1 going in and 0 coming out"),
        (
            np.array(2**53 + 1),
            lambda c, r: c * r,
            r"in:  the constant 9007199254740993 of type.*is not exact in float64.*which rounds it",
        ),
        (np.array([1, 2**53 + 1]), lambda c, r: c * r, r"initial value, \[ *1 9007199254740993\]"),
        (
            flag,
            lambda c, r: c + i64,
            r"Start from flag.astype\('int64'\), or return result.astype\('bool'\)",
        ),
        (f64, lambda c, r: c > 0, r"Start from f64.astype\('bool'\)"),
        (
            f64,
            lambda c, r: i64,
            r"Start from f64.astype\('int64'\), or return result.astype\('float64'\)",
        ),
        (i64, lambda c, r: 0.5, r"'i64'.*out: the constant 0.5.*not made a float unasked"),
        (i64, lambda c, r: pt.cast(c, "uint64"), r"Start from i64.astype\('uint64'\)"),
        (0, lambda c, r: r > 0, r"carry is Scalar\(int64.*return result.astype\('int64'\)"),
        (
            x,
            lambda c, r: pytensor.typed_list.make_list([c]),
            "Start from a value of type TypedList.*or return one of type Vector",
        ),
        ("text", lambda c, r: c, "carry is 'text' of type str.*register_dataclass"),
        (object(), lambda c, r: c, "a leaf must be a PyTensor variable, an array or a number"),
    ],
)
def test_refused_types(init, step, match):
    with pytest.raises(LoopTypeError, match=f"(?s){match}"):
        carried(step, init)


@pytest.mark.parametrize(
    ("init", "step", "match"),
    [
        (
            (f64, f64),
            lambda c, r: [*c],
            r"another structure.*in:  PyTreeDef\(\(\*, \*\)\).*out: .*\[\*, \*\]",
        ),
        (
            {"a": f64},
            lambda c, r: {"b": r},
            r"- carry\['a'\] is missing\n  - carry\['b'\] was not there",
        ),
        (
            f64,
            lambda c, r: (c, r),
            r"- carry is missing\n  - carry\[0\] was not there.*returns \(carry, y\)",
        ),
        ((f64, None), lambda c, r: (c[0], r), r"carry\[1\] was not there"),
        (lag(x, [1, 2]), lambda c, r: c, "A lag is one leaf"),
    ],
)
def test_refused_structures(init, step, match):
    with pytest.raises(LoopTypeError, match=f"(?s){match}"):
        carried(step, init)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fori_loop(0, 3, lambda i, c: (c, c), 1.0),
        lambda: while_loop(lambda c: c < 3, lambda c: (c, c), 1.0),
        lambda: reduce(lambda c, r: (c, r), 1.0, x),
    ],
    ids=["fori_loop", "while_loop", "reduce"],
)
def test_loops_without_traces_return_the_carry_alone(call):
    with pytest.raises(LoopTypeError, match="It returns the next carry alone"):
        call()


def test_a_fault_is_found_once_all_leaves_have_settled():
    # In the first call b is compared with the int8 that a starts from, which is not what it stays.
    final, _ = scan(lambda c, r: ((c[0] + r, c[0]), None), (0, f64), x)
    assert [v.type.dtype for v in final] == ["float64", "float64"]
    with pytest.raises(LoopTypeError, match=r"(?s)carry\[1\] is Scalar\(int64.*unasked"):
        scan(lambda c, r: ((c[0] + r, c[0]), None), (0, i64), x)


@pytest.mark.parametrize(
    ("loop", "what"),
    [
        (lambda: reduce(lambda c, r: c + r, i64, x), "reduce"),
        (lambda: reduce(lambda c, r: c + r, i64, x, name="total"), "reduce 'total'"),
        (lambda: fori_loop(0, 3, lambda i, c: c * 0.5, i64), "fori_loop"),
        (lambda: while_loop(lambda c: c < 3, lambda c: c * f64, i64), "while_loop"),
    ],
)
def test_the_message_names_the_loop(loop, what):
    with pytest.raises(LoopTypeError, match=f"^{what} changes the type of its carry: carry is"):
        loop()


def test_the_program_of_the_message_works():
    final = reduce(lambda c, r: c + r, i64.astype("float64"), x)
    assert value(final, [x, i64], [XS, 2]) == pytest.approx(2 + XS.sum())
    final = reduce(lambda c, r: (c + r).astype("int64"), i64, x)
    assert value(final, [x, i64], [XS, 2]) == 6  # each sum is cut: 2, 1, 3, 6
