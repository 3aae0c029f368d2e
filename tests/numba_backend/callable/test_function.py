"""`jaxify(..., backend="numba")`: what a `NumbaFunction` takes and returns, what it keeps, what it refuses.

Numba compiles for a second: one program serves all that can be asked of it.
"""

import copy
import inspect
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.type_other import NoneTypeT, SliceType
from pytensor.typed_list import TypedListType, append, getitem, length

from loopax import (
    LoopTypeError,
    MissingInputError,
    NumbaFunction,
    StatefulFunctionError,
    UnsupportedOpError,
    jaxify,
    scan,
)
from loopax.base.compiling.no_recompilation import compile_for
from loopax.jax_backend import JaxContext
from loopax.numba_backend.callable import entry
from tests.support.compare import FAST_COMPILE
from tests.support.ops import SameType

x, s, m = pt.dvector("x"), pt.dscalar("s"), pt.dmatrix("m")
XS = np.array([0.5, -1.0, 2.0])


def compilations(f: NumbaFunction) -> int:
    """How often Numba has compiled something for it."""
    made = {id(function): function for function in f._native.variants.by_lengths.values()}
    return sum(len(function.signatures) for function in made.values())


# -- arguments -------------------------------------------------------------------------------------------

KINDS = {
    "x": pt.dvector("x"),
    "s": pt.dscalar("s"),
    "n": pt.lscalar("n"),
    "small": pt.bscalar("small"),
    "single": pt.fscalar("single"),
    "large": pt.scalar("large", dtype="uint64"),
    "flag": pt.scalar("flag", dtype="bool"),
    "fixed": pt.matrix("fixed", shape=(2, None)),
    "single_row": pt.fvector("single_row"),
}
GIVEN = {
    "x": XS,
    "s": 2.5,
    "n": 3,
    "small": -4,
    "single": 0.5,
    "large": 5,
    "flag": True,
    "fixed": np.arange(6.0).reshape(2, 3),
    "single_row": np.arange(3, dtype="float32"),
}


@pytest.fixture(scope="module")
def mirror():
    """Returns its arguments, of many types, by name."""
    return jaxify([*KINDS.values()], dict(KINDS), backend="numba", name="mirror")


class Foreign:
    """Like an array of another library."""

    dtype = np.dtype("float64")

    def __array__(self, dtype=None, copy=None):
        return np.array(XS, dtype=dtype)


def test_nothing_is_compiled_before_the_first_call_and_one_program_after_it(mirror):
    fresh = jaxify([s], s * 2, backend="numba")
    assert compilations(fresh) == 0 and "2.0" in fresh.source
    assert fresh.source.startswith("def program(")
    mirror(**GIVEN)
    mirror(*GIVEN.values())
    assert compilations(mirror) == 1


def transposed(a):
    return np.asfortranarray(a)


def read_only(a):
    a = np.array(a)
    a.flags.writeable = False
    return a


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("x", [0.5, -1.0, 2.0], XS),
        ("x", (1, 2), np.array([1.0, 2.0])),
        ("x", np.repeat(XS, 2)[::2], XS),
        ("x", XS[::-1][::-1], XS),
        ("x", read_only(XS), XS),
        ("x", XS.astype(">f8"), XS),
        ("x", np.array([1, 2, 3]), np.arange(1.0, 4.0)),
        ("x", XS.astype("float32"), XS),
        ("x", np.float16([0.5]), np.array([0.5])),
        ("x", np.zeros(0), np.zeros(0)),
        ("x", jnp.asarray(XS), XS),
        ("x", Foreign(), XS),
        ("s", 2, 2.0),
        ("s", True, 1.0),
        ("s", np.float64(2.5), 2.5),
        ("s", np.float32(2.5), 2.5),
        ("s", np.int8(2), 2.0),
        ("s", np.array(2.5), 2.5),
        ("s", np.array(2.5, dtype=">f8"), 2.5),
        ("s", jnp.asarray(2.5), 2.5),
        ("s", float("nan"), float("nan")),
        ("n", np.int64(-3), -3),
        ("n", np.array(7), 7),
        ("n", np.uint8(7), 7),
        ("n", True, 1),
        ("n", np.uint64(1), 1),  # of a number it is the value that counts
        ("n", np.float64(2.0), 2),
        ("small", np.int64(1), 1),
        ("n", 2**63 - 1, 2**63 - 1),
        ("n", -(2**63), -(2**63)),
        ("small", np.int8(-128), -128),
        ("small", np.array(127, dtype="int8"), 127),
        ("single", np.float32(0.1), np.float32(0.1)),
        ("single", 1, 1.0),
        ("flag", np.bool_(False), False),
        ("flag", np.array(True), True),
        ("fixed", transposed(GIVEN["fixed"]), GIVEN["fixed"]),
        ("fixed", [[1, 2], [3, 4]], np.array([[1.0, 2.0], [3.0, 4.0]])),
        ("fixed", read_only(GIVEN["fixed"]), GIVEN["fixed"]),
        ("single_row", np.arange(3, dtype="int8"), np.arange(3.0)),
    ],
)
def test_what_fits_is_taken(mirror, name, value, expected):
    before = np.array(value)
    actual = mirror(**{**GIVEN, name: value})[name]
    assert type(actual) is np.ndarray and actual.dtype == KINDS[name].dtype
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.array(value), before)
    if isinstance(value, np.ndarray):
        assert not np.shares_memory(actual, value)
    assert compilations(mirror) == 1  # layout, flags and kind of number do not matter


def test_an_unsigned_integer_beyond_the_signed_ones(mirror):
    for value in (2**63 + 1, np.uint64(2**64 - 1)):
        assert int(mirror(**{**GIVEN, "large": value})["large"]) == int(value)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        (
            "x",
            np.ones((2, 2)),
            r"Input 'x' \(argument 0\) must be float64 of rank 1, shape \(\?\), but",
        ),
        ("x", 1.0, r"of rank 1, shape \(\?\), but float64, shape \(\) was given"),
        ("x", np.ones(2) * 1j, "complex128.*x.astype"),
        ("x", ["a"], "must be float64"),
        ("x", [1.0, [2.0]], "rows of unequal lengths"),
        ("x", None, "must be float64"),
        ("x", x, "is the PyTensor variable x, but a jaxified function takes arrays"),
        ("x", np.ma.masked_array(XS, [0, 1, 0]), "is a masked array.*x.filled"),
        ("x", scipy.sparse.csr_matrix(np.eye(2)), "must be float64 of rank 1"),
        ("s", XS, r"Input 's' \(argument 1\) must be float64 of rank 0"),
        ("s", "1", "must be float64 of rank 0"),
        ("s", 1j, "must be float64 of rank 0"),
        ("s", s, "is the PyTensor variable s"),
        ("n", 1.5, "must be int64 of rank 0"),
        ("n", 2**63, "must be int64 of rank 0"),
        ("n", -(2**63) - 1, "must be int64 of rank 0"),
        ("n", np.uint64(2**63), "must be int64 of rank 0"),
        ("n", np.array(1, dtype="uint64"), "must be int64 of rank 0.*uint64"),
        ("small", 128, "must be int8 of rank 0"),
        ("large", -1, "must be uint64 of rank 0"),
        ("flag", 2, "must be bool of rank 0"),
        (
            "fixed",
            np.ones((3, 3)),
            r"float64 of rank 2, shape \(2, \?\), but float64, shape \(3, 3\)",
        ),
        ("single_row", XS, "must be float32 of rank 1"),
    ],
)
def test_what_does_not_fit_is_refused(mirror, name, value, match):
    with pytest.raises(LoopTypeError, match=match):
        mirror(**{**GIVEN, name: value})


def test_arguments_that_are_missing_or_too_many(mirror):
    f = jaxify([x, s], x * s, backend="numba")
    cases = [
        (lambda: f(), r"program was called without x, s. Its signature is program\(x, s\)"),
        (lambda: f(XS), "called without s"),
        (lambda: f(s=1.0), "called without x"),
        (lambda: f(XS, 1.0, 2.0), "takes 2 inputs, but 3 were passed"),
        (lambda: f(XS, x=XS), "'x' of program was passed twice"),
        (lambda: f(XS, sigma=1.0), "has no input named 'sigma'"),
        (lambda: jaxify([], s * 0 + 1, givens={s: 2.0}, backend="numba")(1.0), "takes 0 inputs"),
    ]
    for call, match in cases:
        with pytest.raises(MissingInputError, match=match):
            call()
    assert compilations(f) == 0


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
def test_tracers_of_jax(transform):
    f = jaxify([s], s**2, backend="numba")
    with pytest.raises(LoopTypeError, match=r"'s'.*tracer of JAX.*loopax.grad\(f\).*backend='jax'"):
        transform(f)(jnp.ones(3) if transform is jax.vmap else 1.0)


# -- types that are no tensors ---------------------------------------------------------------------------


def test_generators_are_not_moved_on():
    rng = random_generator_type("rng")
    following, draw = rng.normal(size=3)
    f = jaxify([rng], [following, draw], backend="numba")
    mine = np.random.default_rng(3)
    expected = np.random.default_rng(3)
    for _ in range(2):
        after, actual = f(mine)
        np.testing.assert_array_equal(actual, np.random.default_rng(3).normal(size=3))
    expected.normal(size=3)
    assert after is not mine and after.normal() == expected.normal()
    assert f(after)[1][0] != actual[0]
    with pytest.raises(LoopTypeError, match="must be a NumPy Generator.*default_rng"):
        f(jax.random.key(3))
    with pytest.raises(LoopTypeError, match="must be a NumPy Generator, got a value of type int"):
        f(3)


@pytest.mark.slow
def test_lists_matrices_slices_and_none():
    rows = TypedListType(pt.dvector)("rows")
    matrix = pytensor.sparse.csr_matrix("matrix")
    part, nothing = SliceType()("part"), NoneTypeT()("nothing")
    outputs = {
        "rows": append(rows, x),
        "n": length(rows),
        "matrix": matrix,
        "part": getitem(rows, part),
        "x": nothing,
    }
    f = jaxify([rows, matrix, part, nothing, x], outputs, backend="numba")
    mine, given = [XS, XS[:1]], scipy.sparse.csr_matrix(np.eye(3))
    for one in (mine, [], tuple(mine), [[1, 2], [3.0]], XS[:, None]):
        actual = f(one, given, slice(1, None), None, XS)
        assert int(actual["n"]) == len(one) and actual["x"] is None
        for a, b in zip(actual["rows"], [*one, XS], strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(actual["part"], one[1:], strict=True):
            np.testing.assert_array_equal(a, b)
        assert (actual["matrix"] != given).nnz == 0
        assert not np.shares_memory(actual["matrix"].data, given.data)
    assert len(mine) == 2
    other = scipy.sparse.coo_array(
        np.eye(3, dtype="int8")
    )  # another format, another dtype, an array
    assert f(mine, other, slice(0, 2), None, XS)["matrix"].dtype == "float64"
    cases = [
        ((3.0, given, slice(1), None, XS), "must be a list of rows, each float64 of rank 1"),
        (
            ([XS, "a"], given, slice(1), None, XS),
            r"Row 1 of input 'rows' \(argument 0\) must be float64",
        ),
        ((mine, np.eye(3), slice(1), None, XS), "must be a csr matrix of float64.*csr_matrix"),
        ((mine, given * 1j, slice(1), None, XS), "must be a csr matrix of float64.*complex128"),
        ((mine, given, 1, None, XS), "must be a slice, got 1 of type int"),
        ((mine, given, slice(1.5), None, XS), "the parts of a slice must be integers or None"),
        ((mine, given, slice(1), 0, XS), "must be None, got 0"),
        ((mine, matrix, slice(1), None, XS), "is the PyTensor variable Sparse"),
    ]
    for args, match in cases:
        with pytest.raises(LoopTypeError, match=match):
            f(*args)
    with pytest.raises(UnsupportedOpError, match="native code cannot return.*start, stop and step"):
        jaxify([part], part, backend="numba")


# -- results -----------------------------------------------------------------------------------------------


class Point(NamedTuple):
    at: Any
    weight: Any


@dataclass
class Checked:
    """Cannot hold anything but arrays."""

    value: Any

    def __post_init__(self):
        if not hasattr(self.value, "ndim"):
            raise TypeError(f"{self.value!r} is no array")


def test_the_structure_of_results():
    tree = {"b": (s, [x, None]), "a": {}, "p": Point(s + 1, ()), "c": Checked(x * 2)}
    f = jaxify([x, s], tree, backend="numba")
    first, second = f(XS, 2.0), f(XS, 3.0)
    assert type(first["b"]) is tuple and first["b"][1][1] is None and first["a"] == {}
    assert isinstance(first["p"], Point) and float(first["p"].at) == 3.0 and first["p"].weight == ()
    np.testing.assert_array_equal(first["c"].value, 2 * XS)
    assert float(first["b"][0]) == 2.0 and float(second["b"][0]) == 3.0
    assert first["b"][1] is not second["b"][1]


def test_plain_structures_and_results_that_are_one_variable():
    f = jaxify([x, s], {"b": (x, [x, None]), "a": [s], "n": {3: s}, "none": None}, backend="numba")
    first = f(XS, 2.0)
    first["b"][0][:] = 0.0  # nobody else's memory
    np.testing.assert_array_equal(first["b"][1][0], XS)
    assert first["a"] == [2.0] and first["n"] == {3: 2.0} and first["none"] is None
    first["a"].append(1)
    assert f(XS, 2.0)["a"] == [2.0]


def test_dtypes_of_numbers():
    dtypes = ["bool", "int8", "uint8", "int32", "int64", "uint64", "float32", "float64"]
    f = jaxify([s], [s.astype(dtype) for dtype in dtypes], backend="numba")
    actual = f(1.0)
    assert [str(a.dtype) for a in actual] == dtypes
    assert all(type(a) is np.ndarray and a.shape == () and a == 1 for a in actual)


# -- what it is made from ----------------------------------------------------------------------------------


def test_graphs_compiled_functions_and_nothing_at_all():
    out = scan(lambda c, r: (c * r + 1, c), s, x)
    for f in (
        jaxify(FunctionGraph([x, s], [out[0]], clone=True), backend="numba"),
        jaxify(pytensor.function([x, s], out[0], mode=FAST_COMPILE), backend="numba"),
    ):
        assert isinstance(f, NumbaFunction)
        np.testing.assert_allclose(f(XS, 0.5), ((0.5 * 0.5 + 1) * -1.0 + 1) * 2.0 + 1)
    assert jaxify([x], [], backend="numba")(XS) == []


def test_signature_name_document_and_text():
    f = jaxify([x, pt.dscalar("sigma-log")], x * 2, backend="numba", name="scaled")
    assert str(inspect.signature(f)) == "(x, _1, /)" and f.__name__ == f.__qualname__ == "scaled"
    assert f.__doc__ in repr(f) and repr(f).startswith("NumbaFunction(scaled: (x: ")
    assert callable(f) and f.program.name == "scaled"
    np.testing.assert_array_equal(f(**{"x": XS, "sigma-log": 1.0}), 2 * XS)


def test_a_python_function_is_traced_for_each_signature():
    calls = []

    @lambda fn: jaxify(fn, backend="numba")
    def energy(point, k=2.0):
        """Of a spring."""
        calls.append(point["at"].type)
        return {"energy": (point["at"] ** 2).sum() * k, "at": point["at"]}

    assert energy.__name__ == "energy" and energy.__doc__ == "Of a spring."
    assert repr(energy).startswith("TracedFunction(energy, traced at ")
    assert float(energy({"at": XS})["energy"]) == 2 * (XS**2).sum()
    assert float(energy({"at": XS + 1}, k=0.0)["energy"]) == 0.0
    assert float(energy({"at": 1.5}, k=2.0)["energy"]) == 4.5
    assert float(energy({"at": 2.0}, k=1.0)["energy"]) == 4.0
    assert [t.ndim for t in calls] == [1, 1, 0]
    assert not hasattr(energy, "lower") and hasattr(jaxify(lambda a: a), "lower")


def test_options():
    with pytest.raises(ValueError, match="jit=False works only with backend='jax'.*print f.source"):
        jaxify([x], x, backend="numba", jit=False)
    with pytest.raises(ValueError, match="on_missing must be 'callback' or 'raise', got 'ignore'"):
        jaxify([x], x, backend="numba", on_missing="ignore")
    with pytest.raises(TypeError, match="outputs, updates and givens need a list"):
        jaxify(FunctionGraph([x], [x * 1]), x, backend="numba")


class Twice(SameType):
    """Unknown to Numba."""

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] * 2


def test_an_op_that_numba_does_not_know():
    with pytest.warns(UserWarning, match="run as Python.*\n.*Twice") as warned:
        f = jaxify([x], Twice()(x).sum(), backend="numba")
    assert f(XS) == 3.0 and f(XS + 1) == 9.0 and len(warned) == 1
    with pytest.raises(UnsupportedOpError, match="Twice"):
        jaxify([x], Twice()(x).sum(), backend="numba", on_missing="raise")


# -- pickling and threads ----------------------------------------------------------------------------------


def test_it_pickles():
    w = pytensor.shared(np.ones(3), name="w")
    f = jaxify([x], {"total": (x * w).sum()}, backend="numba", name="weighed")
    assert f(XS)["total"] == 1.5
    again = pickle.loads(pickle.dumps(f))
    w.set_value(np.zeros(3))  # the copy has its own
    assert again(x=XS)["total"] == 1.5 and f(XS)["total"] == 0.0
    assert (again.__name__, again.source, str(again.__signature__)) == ("weighed", f.source, "(x)")
    assert again.init_context()["w"].tolist() == [1.0, 1.0, 1.0]


def test_threads_that_call_first_at_once():
    f = jaxify([x], pt.exp(x).sum(), backend="numba")
    barrier = Barrier(4)

    def call(k):
        barrier.wait()
        return float(f(XS * k))

    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(call, range(4)))
    np.testing.assert_allclose(actual, [np.exp(XS * k).sum() for k in range(4)], rtol=1e-15)
    assert compilations(f) == 1


# -- shared variables --------------------------------------------------------------------------------------


def test_shared_values_are_read_at_every_call():
    w, n = (
        pytensor.shared(np.ones(3), name="w", borrow=True),
        pytensor.shared(np.int32(2), name="n"),
    )
    f = jaxify([x], (x * w).sum() * n, backend="numba")
    step = pytensor.function([], updates={w: w + 1}, mode=FAST_COMPILE)
    assert f(XS) == 3.0
    w.get_value(borrow=True)[0] = 3.0  # in place
    assert f(XS) == 5.0
    step()
    n.set_value(1)
    assert f(XS) == 4.0
    w.set_value(np.arange(6.0)[::2])
    assert f(XS) == 6.0 and compilations(f) == 1
    w.set_value(np.ones(4))
    with pytest.raises(ValueError, match="dimension|shape|mismatch"):
        f(XS)


def machine(backend=None):
    """Shared variables of several kinds with updates that read one another."""
    w = pytensor.shared(np.array([1.0, 2.0, 3.0]), name="w")
    n = pytensor.shared(np.int64(1), name="n")
    rng = pytensor.shared(np.random.default_rng(5), name="rng")
    following, noise = rng.normal(size=3)
    updates = {w: w * 0.5 + x + noise, n: n + 2, rng: following}
    outputs = [w.sum() * n, w]
    if backend is None:
        return (w, n), pytensor.function([x], outputs, updates=updates, mode=FAST_COMPILE)
    return (w, n, rng), jaxify([x], outputs, updates=updates, backend=backend, name="machine")


def test_updates_call_for_call():
    (w, n), run = machine()
    (w2, n2, rng2), f = machine("numba")
    expected = [run(XS * k) for k in range(3)]
    with pytest.raises(
        StatefulFunctionError, match="machine updates the shared variables.*stateful"
    ):
        f(XS)
    own, ctx = f.stateful(), f.init_context()
    start = ctx
    for k in range(3):
        ctx, by_apply = f.apply(ctx, XS * k)
        for actual in (by_apply, own(XS * k)):
            for a, b in zip(actual, expected[k], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-13, strict=True)
    for context in (ctx, own.context):
        np.testing.assert_allclose(context[w2], w.get_value(), rtol=1e-13)
        assert context["n"] == n.get_value()
    # Nothing of it has moved the variables, or the context that it began with.
    assert w2.get_value().tolist() == [1.0, 2.0, 3.0] == start["w"].tolist()
    np.testing.assert_array_equal(f.apply(start, x=XS * 0)[1][1], expected[0][1])
    live = f.stateful(live=True)
    for k in range(3):
        np.testing.assert_allclose(live(XS * k)[0], expected[k][0], rtol=1e-13)
    np.testing.assert_allclose(w2.get_value(), w.get_value(), rtol=1e-13)
    assert rng2.get_value().normal() == ctx["rng"].normal()
    assert live.context["n"] == n2.get_value() == 7
    with pytest.raises(
        StatefulFunctionError, match="apply must be a NumbaContext, which init_context"
    ):
        f.apply({"w": XS}, XS)
    with pytest.raises(
        StatefulFunctionError, match="has no value for w, n, rng, which machine needs"
    ):
        f.apply(jaxify([s], s, backend="numba").init_context(), XS)
    of_jax = machine("jax")[1].init_context()
    assert type(of_jax) is JaxContext
    with pytest.raises(StatefulFunctionError, match="has no value for w, n, rng"):  # it has others
        f.apply(of_jax, XS)
    with pytest.raises(StatefulFunctionError, match="its w, n, rng belong to another function"):
        copy.deepcopy(f).apply(f.init_context(), XS)
    with pytest.raises(LoopTypeError, match=r"'x' \(argument 0\) must be float64 of rank 1"):
        f.apply(ctx, 1.0)


def test_a_traced_function_keeps_what_each_call_needs():
    total = pytensor.shared(np.float64(1.0), name="total")
    f = jaxify(lambda a: a * total, backend="numba")
    assert f(2.0) == 2.0
    ctx = f.init_context(2.0).set(total, 5.0)
    assert f.apply(ctx, 2.0)[1] == 10.0
    keeper = f.stateful()
    assert keeper(2.0) == 2.0
    total.set_value(3.0)
    assert keeper(2.0) == 2.0 and f.stateful(live=True)(2.0) == 6.0


@pytest.mark.parametrize("shape", [(None,), (3,)])
def test_arrays_that_may_not_be_written_to(shape, monkeypatch):
    """As JAX's and pandas' are: copied, now and then or always, and compiled for once."""
    compiled = []
    monkeypatch.setattr(
        entry,
        "compile_for",
        lambda function, args: compiled.append(args) or compile_for(function, args),
    )
    x, y = pt.tensor("x", shape=shape, dtype="float64"), pt.dmatrix("y")
    f = jaxify([x, y], (x * 2.0 + y.sum()), backend="numba")
    values, square = np.arange(3.0), np.eye(2)
    for given in (True, False, True, False, False):
        values, square = values.copy(), square.copy()
        values.flags.writeable = square.flags.writeable = given
        np.testing.assert_array_equal(f(values, square), [2.0, 4.0, 6.0])
        np.testing.assert_array_equal(f(values, np.asfortranarray(square)), [2.0, 4.0, 6.0])
        assert values.flags.writeable is given
    np.testing.assert_array_equal(f(values.astype("float32"), square), [2.0, 4.0, 6.0])
    np.testing.assert_array_equal(f(list(values), jnp.asarray(square)), [2.0, 4.0, 6.0])
    assert len(compiled) == 1
    with pytest.raises(LoopTypeError):
        f(values, values)
