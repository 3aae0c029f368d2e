"""Passes that rewrite the bodies of loops keep the names and source lines of what they leave."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors

import loopax
from loopax import jaxify, scan
from loopax.base.errors import source_line
from loopax.base.upstream.pytensor import thaw
from loopax.ir.ops import inner_graph_op
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.lowering.bodies import map_bodies
from tests.support.forms import in_all_forms


def model(theta, returns):
    def day(h, r):
        h = theta[0] + theta[1] * r**2 + theta[2] * h
        h.name = "h"
        loss = pt.log(h) + r**2 / h
        loss.name = "loss"
        return h, loss

    return scan(day, theta[0], returns)[1].sum()


def nodes_behind(y):
    return {v.owner for v in ancestors([y]) if v.owner is not None}


def variables_in_bodies(graph):
    for node in graph.toposort():
        if isinstance(node.op, InnerGraphOp):
            body = node.op.unfrozen()
            yield from (v for inner in body.toposort() for v in inner.outputs)
            yield from variables_in_bodies(body)


@in_all_forms
def test_names_and_lines_survive_all_passes(form):
    theta, returns = pt.dvector("theta"), pt.dvector("returns")
    f = jaxify([theta, returns], model(theta, returns), **form)
    left = list(variables_in_bodies(f.program.graph))
    lines = {source_line(v) for v in left}
    assert any("h = theta[0] + theta[1] * r**2 + theta[2] * h" in line for line in lines)
    if "backend" in form:  # JAX's passes compute a part of h outside of the loop
        assert "h" in {v.name for v in left}


def test_a_copy_of_a_body_has_its_names():
    theta, returns = pt.dvector("theta"), pt.dvector("returns")
    (loop,) = (n.op for n in nodes_behind(model(theta, returns)) if isinstance(n.op, InnerGraphOp))
    names = {v.name for node in loop.unfrozen().toposort() for v in node.outputs}
    assert {"h", "loss"} <= names
    assert {v.name for node in thaw(loop.fgraph).toposort() for v in node.outputs} == {None}
    other = loop.with_options(name="days")
    assert other.unfrozen().outputs[0].name == loop.unfrozen().outputs[0].name == "h"


def test_a_graph_that_was_not_frozen_to_the_body_gives_it_no_names():
    x = pt.dscalar("x")
    y, z = pt.exp(x), pt.sin(x)
    y.name, z.name = "y", "z"
    frozen = FunctionGraph([x], [pt.cos(y)], clone=True).freeze()
    copy = thaw(frozen, FunctionGraph([x], [pt.cos(z)], clone=True))
    assert all(v.name is None for node in copy.toposort() for v in node.outputs)


def test_a_body_that_has_not_changed_is_not_frozen_again(monkeypatch):
    theta, returns = pt.dvector("theta"), pt.dvector("returns")
    graph = FunctionGraph([theta, returns], [model(theta, returns)], clone=False)
    frozen = []
    real = inner_graph_op.freeze
    monkeypatch.setattr(inner_graph_op, "freeze", lambda g: frozen.append(g) or real(g))
    map_bodies(graph, lambda body: None, lambda body: True)
    assert not frozen

    def written_again(body):
        node = body.outputs[0].owner
        body.replace_all(
            list(zip(node.outputs, node.op(*node.inputs, return_list=True), strict=True))
        )

    map_bodies(graph, written_again, lambda body: True)
    assert frozen


@pytest.mark.slow
def test_third_derivatives_whose_bodies_are_equal_though_written_with_other_nodes():
    a, v = pt.dscalar("a"), pt.dvector("v")

    def f(a, v):
        final, trace = scan(lambda c, r: (pt.tanh(a * c + r), c * r), a * 0.5, v)
        return final + (trace**2).sum()

    def by_hand(a, v):
        final, trace = jax.lax.scan(lambda c, r: (jnp.tanh(a * c + r), c * r), a * 0.5, v)
        return final + (trace**2).sum()

    def third(f, module):
        inner = module.hessian(f, 1)
        return module.jacobian(module.hessian(lambda a, v: inner(a, v).sum(), 0), 1)

    at = 0.7, np.array([0.5, -0.3, 1.2])
    g = jaxify([a, v], third(f, loopax)(a, v), loops="xla")
    np.testing.assert_allclose(g(*at), third(by_hand, jax)(*at), rtol=1e-10)
