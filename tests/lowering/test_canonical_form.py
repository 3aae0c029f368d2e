"""One canonical form serves both forms of a program, where both begin with the same passes."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import clone, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.linalg import inv

from loopax import cond, explain, jaxify, scan
from loopax.lowering import CANONICAL_PASSES, NATIVE_PASSES, PASSES, run_passes
from loopax.lowering.canonical import stabilize
from tests.random_programs.in_ir import program

x = pt.dvector("x")


def canonical_form(graph):
    """The form that lowering to JAX's operations leaves of ``graph``, or None."""
    forms = []
    run_passes(graph, PASSES, keep=lambda g: forms.append(clone(g.inputs, g.outputs)))
    return forms[0] if forms else None


@pytest.mark.parametrize(
    "seeds", [range(5), pytest.param(range(100, 300), marks=pytest.mark.slow)], ids=len
)
def test_native_form_of_random_programs_is_the_same(seeds):
    n_forms = 0
    for seed in seeds:
        one = program(seed)
        if (form := canonical_form(one.graph())) is None:
            continue
        n_forms += 1
        for passes in (NATIVE_PASSES, CANONICAL_PASSES):
            alone, shared = one.graph(), one.graph()
            run_passes(alone, passes)
            run_passes(shared, passes, form)
            assert equal_computations(alone.outputs, shared.outputs, alone.inputs, shared.inputs), (
                f"seed {seed}"
            )
    assert n_forms > len(seeds) // 2


def stopping(x):
    def step(c, _):
        return cond(c.sum() > 3, lambda c: c, lambda c: c * 2.0, c), None

    return scan(step, x, length=4)[0]


@pytest.mark.parametrize(
    ("build", "has_one"),
    [
        (lambda: pt.log(pt.exp(x).sum()), True),
        (lambda: scan(lambda c, _: (pt.exp(c), c), x, length=4)[1], True),
        (lambda: stopping(x), False),
        (lambda: inv(pt.outer(x[:2], x[:2]) + pt.eye(2)), False),
        (lambda: inv(pt.outer(x, x) + pt.eye(5)), True),
        (lambda: scan(lambda c, _: (inv(c + pt.eye(5)), None), pt.outer(x, x), length=4)[0], False),
    ],
)
def test_programs_with_a_form(build, has_one):
    assert (canonical_form(FunctionGraph([x], [build()], clone=True)) is not None) == has_one


def test_another_graph_has_no_form_yet():
    f = jaxify([x], pt.log(pt.exp(x).sum()), loops="native")
    assert f.program.canonical is not None
    assert f.program.before_passes().canonical is None
    assert f.program.with_watches().canonical is None


def test_a_program_is_stabilized_once(monkeypatch):
    """For its costs and as native code, and without the part that its data determine."""
    graphs = []
    rewrite = stabilize._rewrite
    monkeypatch.setattr(stabilize, "_rewrite", lambda *args: graphs.append(1) or rewrite(*args))
    data = pytensor.shared(np.arange(6.0).reshape(2, 3), "data")
    f = jaxify([x], pt.log1p(pt.exp(data @ x)).sum(), loops="native")
    np.testing.assert_allclose(f(np.ones(3)), np.logaddexp(0.0, data.get_value().sum(1)).sum())
    assert len(graphs) == 1
    assert "native code" in str(explain(f))
