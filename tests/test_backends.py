"""A backend is a record: a third one, written in tests/, runs what users reported.

One program of each theme runs in `make test`, all of them in `make test-all`.
"""

import pickle
import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import SharedContext, StatefulFunctionError, jaxify
from loopax.calling import register_backend
from tests.programs import reference
from tests.programs.catalogue import due
from tests.support.compare import assert_trees_close
from tests.support.evaluating_backend import EVALUATE, EvaluatedFunction

pytestmark = pytest.mark.both_stacks

DUE = due()
# What a transformation of the program as it was read cannot do.
BY_GRAPH = {
    # https://github.com/aesara-devs/aesara/issues/46: what overflows is rewritten in the value, and its
    # derivative is taken before that. PyTensor 3.3 rewrites that one too.
    "special-log_of_a_sum_of_exponentials": pytest.mark.xfail(
        pytensor.__version__.startswith("3.0."),
        raises=AssertionError,
        strict=True,
        reason="overflows in PyTensor 3.0",
    )
}


def programs(chosen):
    """Parameters, the first of each theme quick."""
    themes, actual = set(), []
    for p in chosen:
        actual.append(pytest.param(p, id=str(p), marks=[pytest.mark.slow] * (p.theme in themes)))
        themes.add(p.theme)
    return actual


def evaluated(inputs, outputs, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what a program announces is tested elsewhere
        return jaxify(inputs, outputs, backend="evaluate", **options)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("program", programs(DUE))
def test_values(program):
    inputs, outputs, options = reference.parts(program)
    f = evaluated(inputs, outputs, **options)
    values = program.arguments(inputs)
    actual = f.apply(f.init_context(), *values)[1] if f.program.updates else f(*values)
    if isinstance(outputs, dict):
        assert actual.keys() == outputs.keys()
        actual = {key: actual[key] for key in outputs}
    rtol = program.rtol if program.values_match else 1e-7  # draws are those of NumPy
    assert_trees_close(reference.leaves(actual), [*reference.expected(program)], rtol)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", programs([p for p in DUE if p.grad_wrt]))
def test_gradients(program, request):
    if (mark := BY_GRAPH.get(str(program))) is not None:
        request.applymarker(mark)
    inputs, outputs, options = reference.parts(program)
    weighted = zip(reference.weights(program), reference.leaves(outputs), strict=True)
    cost = sum((w * out).sum() for w, out in weighted if w is not None)
    wrt = tuple(k for k, v in enumerate(inputs) if v.name in program.grad_wrt)
    f = loopax.grad(evaluated(inputs, cost, **options), argnums=wrt)
    assert isinstance(f, EvaluatedFunction)
    slopes = list(f(*program.arguments(inputs)))
    assert_trees_close(slopes, reference.gradients(program), program.grad_rtol)


@pytest.mark.parametrize("program", programs([p for p in DUE if p.batch]))
def test_vmap(program):
    """Three rows at once are the three one by one."""
    inputs, outputs, options = reference.parts(program)
    f = evaluated(inputs, outputs, **options)
    values = program.arguments(inputs)
    axes = [0 if v.name in program.batch else None for v in inputs]
    rows = [[x * k if a == 0 else x for x, a in zip(values, axes, strict=True)] for k in (1, 0.5)]
    given = [np.stack(x) if a == 0 else x[0] for *x, a in zip(*rows, axes, strict=True)]
    actual = reference.leaves(loopax.vmap(f, in_axes=axes)(*given))
    alone = [reference.leaves(f(*row)) for row in rows]
    assert_trees_close(list(actual), [np.stack(each) for each in zip(*alone, strict=True)], 1e-9)


# -- what is asked of the record ---------------------------------------------------------------------

X = pt.dvector("x")
XS = np.array([1.0, -2.0])


def test_its_options():
    assert evaluated([X], X, on_missing="raise").options["on_missing"] == "raise"
    with pytest.raises(ValueError, match="jit=False works only with.*nothing is compiled"):
        jaxify([X], X, backend="evaluate", jit=False)
    with pytest.raises(ValueError, match="on_missing must be"):
        jaxify([X], X, backend="evaluate", on_missing="ask")
    with pytest.raises(AssertionError, match="there is a backend of the name 'evaluate'"):
        register_backend(EVALUATE)


def test_a_python_function_and_its_derivatives():
    f = jaxify(lambda a: (a**3).sum(), backend="evaluate")
    np.testing.assert_array_equal(f(XS), -7.0)
    assert pickle.loads(pickle.dumps(f.build)).backend is EVALUATE
    value, slope = loopax.value_and_grad(f)(XS)
    np.testing.assert_array_equal(value, -7.0)
    np.testing.assert_array_equal(slope, 3 * XS**2)
    each = loopax.vmap(loopax.grad(f))(np.stack([XS, 2 * XS]))
    np.testing.assert_array_equal(each, [3 * XS**2, 12 * XS**2])


def test_its_passes_are_those_that_are_explained():
    twice = [loopax.fori_loop(0, 3, lambda i, c: pt.sin(c), X) for _ in range(2)]
    explained = loopax.explain(evaluated([X], twice))
    assert [s.name for s in explained.stages] == ["merge_loops"]
    assert explained.counts_lowered.loops == 1


def test_its_contexts():
    total = pytensor.shared(np.float64(1.0), name="total")
    f = evaluated([X], total, updates={total: total + X.sum()})
    context, before = f.apply(f.init_context(), XS)
    assert (before, context["total"], total.get_value()) == (1.0, 0.0, 1.0)
    assert f.stateful()(XS) == 1.0
    assert isinstance(context, SharedContext) and type(SharedContext.of(f)) is type(context)
    of_jax = jaxify([X], total).init_context()
    assert isinstance(of_jax, SharedContext)
    assert type(f.apply(of_jax, XS)[0]) is type(context)
    with pytest.raises(StatefulFunctionError, match="has no derivative"):
        loopax.grad(f)
    assert type(SharedContext.of(f, jaxify([X], total))) is type(context)
