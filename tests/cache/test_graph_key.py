"""Keys of graphs: equal where all results are, in every process; none where nobody can know."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

import loopax
from loopax.cache.graph_key import keyed
from loopax.importer.import_graph import import_graph

ROOT = Path(__file__).resolve().parents[2]


def key(inputs, outputs, *parts):
    graph = FunctionGraph(inputs, outputs, clone=True)
    import_graph(graph)
    actual = keyed(graph.inputs, graph.outputs, *parts)
    return None if actual is None else actual.key


def with_loop(decay=0.5, name="x", **options):
    x = pt.dvector(name)
    total, _ = loopax.scan(lambda s, r: (decay * s + r, None), 0.0, x, **options)
    return [x], [total]


def with_branch(threshold):
    x = pt.dvector("x")
    return [x], [loopax.cond(x[0] > threshold, pt.exp, pt.log, x)]


def elementwise(f, dtype="float64", shape=(None,)):
    x = pt.tensor("x", dtype=dtype, shape=shape)
    return [x], [f(x)]


def test_equal_programs_have_equal_keys():
    for make in (with_loop, lambda: with_branch(0.0), lambda: elementwise(pt.exp)):
        assert key(*make()) == key(*make()) is not None


@pytest.mark.parametrize(
    "other",
    [
        with_loop(0.25),
        with_loop(name="y"),
        with_loop(reverse=True),
        with_loop(unroll=2),
        with_loop(checkpoint="sqrt"),
        with_branch(0.0),
        with_branch(1.0),
        elementwise(pt.exp),
        elementwise(pt.log),
        elementwise(pt.exp, "float32"),
        elementwise(pt.exp, shape=(3,)),
        elementwise(lambda x: x[::2]),
        elementwise(lambda x: x[1::2]),
        elementwise(lambda x: x.sum(keepdims=True)),
        elementwise(lambda x: x + np.arange(3.0)),
        elementwise(lambda x: x + np.arange(1.0, 4.0)),
        elementwise(lambda x: pt.switch(x > 0, 0.0, x)),
        elementwise(lambda x: pt.switch(x > 0, -0.0, x)),
        elementwise(lambda x: pytensor.raise_op.Assert("one")(x, (x > 0).all())),
        elementwise(lambda x: pytensor.raise_op.Assert("two")(x, (x > 0).all())),
    ],
)
def test_another_program_has_another_key(other, seen={}):  # noqa: B006  # all of them, by their key
    assert (actual := key(*other)) is not None
    assert actual != key(*with_loop())
    assert seen.setdefault(actual, other) is other


def test_parts_count():
    program = with_loop()
    actual = [
        key(*program, *parts) for parts in [(), (1,), (1.0,), ("1",), ((1,),), (len,), (max,)]
    ]
    assert None not in actual
    assert len(set(actual)) == len(actual)


def test_what_graph_a_node_is_in_does_not_count():
    """Two nodes with one op, and with two equal ones: PyTensor makes one of these when it likes."""
    x = pt.dvector("x")
    shared = pt.exp(pt.exp(x))
    own = pt.exp(pytensor.tensor.elemwise.Elemwise(pytensor.scalar.exp)(x))
    assert key([x], [shared]) == key([x], [own])


class Doubled(Op):
    """A user's: tomorrow it may be something else."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = 2 * inputs[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: Doubled()(x),
        lambda x: loopax.scan(lambda s, _: (Doubled()(s), None), x, length=3)[0],
        lambda x: loopax.from_jax(lambda v: 2 * v)(x),
    ],
    ids=["an op", "in a step", "a function of JAX"],
)
def test_what_is_a_users_has_no_key(make):
    x = pt.dvector("x")
    assert key([x], [make(x)]) is None


class Broken(Op):
    """An installed package's, as far as one can see, whose attributes are not all there."""

    __props__ = ("missing",)
    __module__ = "pytensor.tensor"

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0]


def test_an_op_that_cannot_be_looked_at():
    x = pt.dvector("x")
    assert keyed([x], [Broken()(x)]) is None


def test_constants_of_every_kind():
    x = pt.dvector("x")
    for dtype in ("bool", "int8", "uint64", "float16", "float32", "complex128"):
        for values in (np.ones(3, dtype), np.ones((2, 6), dtype)[0, ::2], np.array(1, dtype)):
            assert keyed([x], [x * pt.constant(values)]) is not None
    dates = np.array(["2020-01-01"], dtype="datetime64[D]")
    assert keyed([x], [x], dates) is None


def test_a_users_function_among_the_parts():
    assert key(*with_loop(), lambda: None) is None


IN_A_PROCESS = """
from tests.cache.test_graph_key import key, with_branch, with_loop
print(key(*with_loop()), key(*with_branch(1.0)))
"""


@pytest.mark.slow
def test_other_processes_have_the_same_keys():
    """Two that hash strings differently; the flags of this one are those of tests."""

    def keys(seed):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-c", IN_A_PROCESS]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.split()

    first = keys(7)
    assert keys(8) == first
    assert len(set(first)) == 2 and "None" not in first
