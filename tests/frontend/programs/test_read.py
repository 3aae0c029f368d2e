"""What `jaxify` accepts: variables, compiled functions of every mode, graphs, Python functions."""

import pickle
from collections import namedtuple
from dataclasses import dataclass
from functools import cache, partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.io import In
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph

from loopax import LoopTypeError, MissingInputError, StatefulFunctionError, jaxify
from loopax.base.upstream.pytensor import IfElse
from tests.support.compare import FAST_RUN

scan = partial(pytensor.scan, return_updates=False)

X, Y = pt.dvector("x"), pt.dvector("y")
A = pt.dscalar("a")
M = pt.dmatrix("m")
XS, YS = np.array([0.3, -0.7, 1.1]), np.array([0.5, 0.1, -0.9])
MS = np.array([[0.1, -0.2, 0.3], [0.4, 0.5, -0.6], [0.7, -0.8, 0.9]])


# -- compiled functions -------------------------------------------------------------------------------


def scan_gradient():
    out = scan(
        lambda x, s1, s2, a: pt.tanh(s1 * a - s2 + x),
        sequences=[X],
        outputs_info=[{"initial": Y[:2], "taps": [-1, -2]}],
        non_sequences=[A],
    )
    return [X, Y, A], [out[-1], *pytensor.grad((out**2).sum(), [X, Y, A])], [XS, YS, 0.4]


def composite():
    return [X, Y], pt.exp(X) * pt.sin(Y) + pt.log1p(X**2) - Y / (1 + X**2), [XS, YS]


def blas():
    return (
        [M, X, Y, A],
        [A * (M @ X) + 0.5 * Y, A * (M @ M) + M, M @ M.T, Y + X @ M, pt.outer(X, Y) * A + M],
        [MS, XS, YS, 0.3],
    )


def conditional():
    chosen = IfElse(1)(A > 0, pt.exp(X).sum(), Y.sum())
    return [X, Y, A], [chosen, chosen * A], [XS, YS, 0.3]


def in_place():
    z = pt.exp(X) + 1
    z = pt.set_subtensor(z[1:], Y[1:])
    z = pt.inc_subtensor(z[0], A)
    return [X, Y, A], [z * 2, pt.sort(z), z.cumsum()], [XS, YS, 0.3]


def baked_inner_graph():
    s = pt.special.softmax(X) + pt.special.log_softmax(Y)
    return [X, Y, M], [s, pt.linalg.solve(M, X), pt.logsumexp(M, axis=0)], [XS, YS, MS]


PROGRAMS = [scan_gradient, composite, blas, conditional, in_place, baked_inner_graph]
# Numba compiles for seconds a program: one loop, one whose mode rewrites differ most, and blas.
NUMBA = [scan_gradient, composite, blas]
CASES = [
    *((program, mode) for program in PROGRAMS for mode in ("FAST_COMPILE", "CVM", "JAX")),
    *((program, "NUMBA") for program in NUMBA),
    (in_place, None),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("program", "mode"), CASES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_compiled_function_is_read_as_its_mode_left_it(program, mode):
    inputs, outputs, values = program()
    compiled = pytensor.function(inputs, outputs, mode=FAST_RUN if mode == "CVM" else mode)
    expected = reference(program)
    f = jaxify(compiled)
    actual = jax.jit(f)(*values)
    assert isinstance(actual, list) == isinstance(expected, list)
    chex.assert_trees_all_close(actual, expected, rtol=1e-10, atol=1e-12)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
    # In-place ops work on copies: what goes in stays as it was.
    arrays = [np.array(v) for v in values]
    f(*arrays)
    chex.assert_trees_all_close(arrays, [np.asarray(v) for v in values])


@cache
def reference(program):
    inputs, outputs, values = program()
    return pytensor.function(inputs, outputs, mode=Mode(linker="vm", optimizer=None))(*values)


def test_a_compiled_function_keeps_its_structure():
    one = jaxify(pytensor.function([X], X * 2, mode="FAST_COMPILE"))
    assert one(XS).shape == (3,)
    several = jaxify(pytensor.function([X], [X * 2], mode="FAST_COMPILE"))
    (actual,) = several(XS)
    assert isinstance(several(XS), list) and actual.shape == (3,)
    nothing = jaxify(pytensor.function([X], [], mode="FAST_COMPILE", on_unused_input="ignore"))
    assert nothing(XS) == []


def test_a_compiled_function_of_no_outputs():
    counter = pytensor.shared(0.0, name="counter")
    compiled = pytensor.function([X], None, mode="FAST_COMPILE", on_unused_input="ignore")
    assert jaxify(compiled)(XS) == compiled(XS) == []
    stateful = pytensor.function([], updates={counter: counter + 1}, mode="FAST_COMPILE")
    with pytest.raises(StatefulFunctionError, match="updates the shared variables counter"):
        jaxify(stateful)()


def test_a_compiled_function_keeps_givens_and_names():
    w = pytensor.shared(np.array([1.0, 2.0, 3.0]), name="w")
    compiled = pytensor.function(
        [X, In(Y, name="other")], X + w + Y, givens={w: w * 10}, mode="FAST_COMPILE"
    )
    f = jaxify(compiled)
    assert str(f.__signature__) == "(x, other)"
    for args, kwargs in [((XS, YS), {}), ((), {"x": XS, "other": XS})]:
        chex.assert_trees_all_close(np.asarray(f(*args, **kwargs)), compiled(*args, **kwargs))
    w.set_value(np.array([0.0, 0.0, 1.0]))
    chex.assert_trees_all_close(np.asarray(f(XS, YS)), compiled(XS, YS))


@pytest.mark.parametrize("compile_first", [True, False])
def test_an_input_whose_value_is_a_shared_variable_is_read_afresh(compile_first):
    # The only default that PyTensor 3 still takes. It cannot be given in a call.
    default = pytensor.shared(np.float64(2.5), name="default")
    inputs = [X, In(A, value=default)]
    compiled = pytensor.function(inputs, X * A, mode="FAST_COMPILE")
    f = jaxify(compiled) if compile_first else jaxify(inputs, X * A)
    chex.assert_trees_all_close(np.asarray(f(XS)), compiled(XS))
    default.set_value(7.0)
    chex.assert_trees_all_close(np.asarray(f(XS)), compiled(XS))


def test_reading_leaves_the_compiled_function_alone():
    compiled = pytensor.function([X, Y], [X * Y, (X + Y).sum()], mode=FAST_RUN)
    before = pytensor.dprint(compiled, file="str")
    jaxify(compiled)(XS, YS)
    assert pytensor.dprint(compiled, file="str") == before
    chex.assert_trees_all_close(compiled(XS, YS), [XS * YS, (XS + YS).sum()])


# -- variables ------------------------------------------------------------------------------------------


Pair = namedtuple("Pair", ["first", "second"])


@jax.tree_util.register_dataclass
@dataclass
class Point:
    at: object
    height: object


@pytest.mark.parametrize(
    "build",
    [
        lambda u, v: u,
        lambda u, v: [u],
        lambda u, v: (u, v),
        lambda u, v: {"b": u, "a": v},
        lambda u, v: {"deep": [(u,), {"v": v}], "none": None},
        lambda u, v: Pair(u, [v, v]),
        lambda u, v: Point(u, v),
        lambda u, v: [],
        lambda u, v: (u, X, A),
    ],
    ids=["one", "list", "tuple", "dict", "nested", "namedtuple", "dataclass", "empty", "inputs"],
)
def test_outputs_keep_their_structure(build):
    f = jaxify([X, A], build(X * A, X.sum()))
    actual = f(XS, 2.0)
    values = {"X": XS, "A": np.asarray(2.0)}
    expected = build(XS * 2.0, XS.sum())
    expected = jax.tree.map(
        lambda v: values[v.name.upper()] if isinstance(v, pt.TensorVariable) else np.asarray(v),
        expected,
        is_leaf=lambda v: isinstance(v, pt.TensorVariable),
    )
    chex.assert_trees_all_equal_structs(actual, expected)
    chex.assert_trees_all_close(actual, expected)


def test_a_constant_output():
    f = jaxify([X], [X, pt.constant(2.5), 3.0, np.arange(2)])
    actual = f(XS)
    assert [x.dtype for x in actual] == ["float64", "float32", "float32", "int64"]
    assert isinstance(actual[1], jax.Array)


def test_names_by_keyword_and_by_position():
    f = jaxify([X, A], X * A, name="scaled")
    expected = XS * 2.0
    for actual in (f(XS, 2.0), f(XS, a=2.0), f(x=XS, a=2.0), f(a=2.0, x=XS)):
        chex.assert_trees_all_close(np.asarray(actual), expected)
    assert str(f.__signature__) == "(x, a)" and f.__name__ == "scaled"


def test_doubled_and_odd_names_go_by_position_only():
    u, v, w = pt.dscalar("same"), pt.dscalar("same"), pt.dscalar("not a name")
    named, keyword = pt.dscalar("named"), pt.dscalar("lambda")
    f = jaxify([u, v, w, keyword, named], u + 10 * v + 100 * w + 1000 * keyword + 10000 * named)
    assert float(f(1.0, 2.0, 3.0, 4.0, named=5.0)) == 54321
    with pytest.raises(MissingInputError, match="no input named 'same'"):
        f(1.0, 2.0, 3.0, 4.0, same=2.0, named=1.0)
    unnamed = jaxify([pt.dscalar(), A], [A])
    assert float(unnamed(1.0, 2.0)[0]) == 2


@pytest.mark.parametrize("as_dict", [True, False])
def test_givens(as_dict):
    w = pytensor.shared(XS, name="w")
    replaced = {X: w * 2, A: pt.constant(0.5, dtype="float64")}
    f = jaxify([Y], X * A + Y, givens=replaced if as_dict else list(replaced.items()))
    chex.assert_trees_all_close(np.asarray(f(YS)), XS + YS)


def test_a_shared_variable_is_no_input():
    w = pytensor.shared(XS, name="w")
    f = jaxify([A], w * A)
    assert list(f.__signature__.parameters) == ["a"]
    chex.assert_trees_all_close(np.asarray(f(2.0)), XS * 2)


def test_updates_are_refused_when_called():
    counter = pytensor.shared(0.0, name="counter")
    f = jaxify([A], A + counter, updates={counter: counter + 1})
    with pytest.raises(StatefulFunctionError, match=r"counter.*f.apply\(ctx.*f.stateful\(\)"):
        f(1.0)


def test_the_users_graph_stays_as_it_was():
    y = pt.log(pt.exp(X).sum())
    before = pytensor.dprint(y, file="str")
    jaxify([X], y)(XS)
    assert pytensor.dprint(y, file="str") == before


# -- graphs ---------------------------------------------------------------------------------------------


def test_a_function_graph():
    graph = FunctionGraph([X, A], [X * A], clone=True)
    f = jaxify(graph)
    chex.assert_trees_all_close(np.asarray(f(XS, a=2.0)), XS * 2)
    several = jaxify(FunctionGraph([X], [X.sum(), X * 2], clone=True))
    actual = several(XS)
    assert isinstance(actual, list)
    chex.assert_trees_all_close([np.asarray(v) for v in actual], [XS.sum(), XS * 2])


def test_a_function_graph_with_a_shared_variable():
    w = pytensor.shared(XS, name="w")
    f = jaxify(FunctionGraph([w, A], [w * A], clone=False))
    chex.assert_trees_all_close(np.asarray(f(2.0)), XS * 2)
    w.set_value(XS + 1)
    chex.assert_trees_all_close(np.asarray(f(2.0)), XS * 2 + 2)


def test_a_frozen_graph_and_one_that_is_used_elsewhere():
    graph = FunctionGraph([X], [pt.exp(X).sum()], clone=True)
    jaxify(graph)
    assert [str(n.op) for n in graph.toposort()] == ["Exp", "Sum{axes=None}"]


# -- Python functions -----------------------------------------------------------------------------------


def test_a_python_function_of_pytrees():
    def model(params, x, *, scale=2.0, flags=None):
        assert flags is None
        return {"mean": params["w"] @ x + params["b"][0], "scale": scale * params["b"][1]}

    f = jaxify(model)
    params = {"w": MS, "b": (0.5, np.array([1.0, 2.0]))}
    actual = f(params, XS, scale=3.0)
    expected = {"mean": MS @ XS + 0.5, "scale": np.array([3.0, 6.0])}
    chex.assert_trees_all_close(actual, expected, rtol=1e-12)
    assert f.__name__ == "model"
    gradients = jax.grad(lambda p: f(p, XS)["mean"].sum())(jax.tree.map(jnp.asarray, params))
    chex.assert_trees_all_close(gradients["w"], np.tile(XS, (3, 1)), rtol=1e-12)


def test_a_python_function_is_traced_once_for_each_signature():
    traced = []

    def double(x):
        traced.append(x.type)
        return 2 * x

    f = jaxify(double)
    f(XS)
    f(XS + 1)
    f(np.ones(7))  # another length: the same type
    assert len(traced) == 1
    f(np.ones(1))  # a length of 1 broadcasts, so it is another type
    assert len(traced) == 2 and traced[-1].broadcastable == (True,)
    f(np.ones(3, "float32"))
    f(np.ones((3, 3)))
    f(np.ones((1, 3)))
    f(1.5)
    assert len(traced) == 6
    jax.jit(f)(XS)
    jax.vmap(f)(MS)  # of rows as long as XS
    assert len(traced) == 6
    assert (f(1.5).dtype, f(2).dtype, f(np.ones(3, "float32")).dtype) == (
        "float64",
        "int64",
        "float32",
    )


def test_a_length_of_one_broadcasts_in_a_python_function():
    f = jaxify(lambda x, y: x + y)
    chex.assert_trees_all_close(
        np.asarray(f(np.ones((1, 3)), np.ones((2, 1)))), np.full((2, 3), 2.0)
    )


def test_a_python_function_may_return_none_and_constants():
    assert jaxify(lambda x: None)(XS) is None
    actual = jaxify(lambda x: (x, 1.0))(XS)
    assert isinstance(actual, tuple) and float(actual[1]) == 1.0


def test_a_python_function_with_a_loop():
    def cumulative(xs, decay):
        return scan(lambda x, s: decay * s + x, sequences=[xs], outputs_info=[pt.zeros(())])

    f = jaxify(cumulative)
    expected = [0.3, -0.55, 0.825]
    chex.assert_trees_all_close(np.asarray(f(XS, 0.5)), np.array(expected), rtol=1e-12)
    assert jax.jit(jax.grad(lambda d: f(XS, d)[-1]))(0.5).shape == ()


def test_a_module_level_python_function_pickles():
    f = pickle.loads(pickle.dumps(jaxify(module_level)))
    chex.assert_trees_all_close(np.asarray(f(XS)), XS * 3)


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_program_of_which_a_part_was_evaluated_in_python_pickles(backend):
    """PyTensor keeps a function on the node of a Blockwise, in the step of a loop too."""
    matrices = np.arange(24.0).reshape(2, 3, 4)
    product = pt.matmul(matrices, matrices.transpose(0, 2, 1))
    x = pt.dmatrix("x")
    steps = scan(
        lambda row, m: pt.linalg.solve(m, row), sequences=[x], non_sequences=[product[0] + 1]
    )
    pytensor.function([x], steps, mode=Mode("py", None))(np.ones((2, 3)))
    f = jaxify([x], [product * x.sum(), steps], backend=backend)
    pickled = pickle.dumps(f)
    assert len(pickle.dumps(f)) == len(pickled)
    chex.assert_trees_all_close(pickle.loads(pickled)(np.ones((2, 3))), f(np.ones((2, 3))))


def module_level(x):
    return 3 * x


def test_a_python_function_refuses_what_is_no_array():
    f = jaxify(lambda x: x)
    with pytest.raises(LoopTypeError, match="takes arrays, numbers.*static_argnames='kind'"):
        f("text")
    with pytest.raises(LoopTypeError, match="is a PyTensor variable"):
        f(X)


def test_a_shared_variable_listed_as_an_input_is_refused():
    x, s = pt.dvector("x"), pytensor.shared(np.ones(2), name="s")
    with pytest.raises(TypeError, match="shared variable s is listed as an input.*givens"):
        jaxify([s], s * 2)
    np.testing.assert_array_equal(jaxify([x], s * 2, givens={s: x})([3.0, 4.0]), [6.0, 8.0])
