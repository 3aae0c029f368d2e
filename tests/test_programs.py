"""Programs that users reported give what PyTensor gives: alone, under jit, grad, vmap, hessian."""

import functools
import warnings

import jax
import numpy as np
import pytest

import loopax
from loopax.jax_backend.values.padded_array import PaddedArray
from tests.programs import composition, linalg, models, reference, special
from tests.programs.catalogue import PROGRAMS, due, not_yet, raising
from tests.support.marking import slow_where

NOW = due()


@functools.cache
def converted(program):
    """The JAX function, its arguments, and their names."""
    inputs, outputs, options = reference.declared(program)
    jf = loopax.jaxify(inputs, outputs, **options)
    first = first_call(jf) if jf.program.updates else jf
    return first, program.arguments(inputs), [var.name for var in inputs]


def first_call(jf):
    """A function with updates as what its first call returns."""
    context = jf.init_context()
    return lambda *args: jf.apply(context, *args)[1]


@pytest.fixture(autouse=True)
def says_what_it_cannot_keep():
    """Black boxes and asserts are announced by a warning; that it is given is tested elsewhere."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        yield


def over(program, names):
    """The function of the named inputs only, the others closed over; and those inputs' values."""
    jf, values, all_names = converted(program)
    places = [all_names.index(name) for name in names]

    def f(*args):
        full = list(values)
        for place, arg in zip(places, args, strict=True):
            full[place] = arg
        return jf(*full)

    return f, [values[place] for place in places]


def traced_names(program):
    """Whatever somebody else's jit may trace: all but what makes a shape."""
    _, values, names = converted(program)
    is_array = [isinstance(value, np.ndarray) for value in values]
    return [
        n for n, array in zip(names, is_array, strict=True) if array and n not in program.static
    ]


def check_arrays(got, right, program, rtol):
    for k, (g, r) in enumerate(zip(got, right, strict=True)):
        g = np.asarray(g)
        assert g.dtype == r.dtype, f"output {k}: {g.dtype}, should be {r.dtype}"
        assert g.shape == r.shape, f"output {k}: {g.shape}, should be {r.shape}"
        if program.values_match:
            np.testing.assert_allclose(g, r, rtol=rtol, atol=1e-12, err_msg=f"output {k}")


def leaves(got, program):
    """One variable is one array, a list a list, a dict a dict (JAX sorts its keys)."""
    _, outputs, _ = reference.declared(program)
    if isinstance(outputs, dict):
        assert isinstance(got, dict) and got.keys() == outputs.keys()
        return [got[key] for key in outputs]
    assert isinstance(got, list) == isinstance(outputs, list)
    return reference.leaves(got)


def check_outputs(got, program):
    """Structure, dtypes, shapes and values."""
    check_arrays(leaves(got, program), reference.expected(program), program, program.rtol)


# The test of its gradients compiles a program too, and checks its values.
@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", slow_where(lambda p: p.grad_wrt, NOW))
def test_values(program):
    jf, values, _ = converted(program)
    check_outputs(jf(*values), program)


# The gradients' jit covers a program, unless it leaves out inputs that a caller's may trace.
LEFT_OUT = [p for p in NOW if not p.grad_wrt or len(p.values) > len({*p.grad_wrt, *p.static})]


@pytest.mark.sampled(21)
@pytest.mark.parametrize("program", LEFT_OUT, ids=str)
def test_traced(program):
    """Somebody else's jit may trace it: what comes out has the right structure, dtypes and shapes."""
    f, values = over(program, traced_names(program))
    actual = leaves(jax.eval_shape(f, *values), program)
    wanted = reference.expected(program)
    # The trace of a loop that stops has as many rows as the loop may take: see test_under_jit.
    arrays = [(x, w) for x, w in zip(actual, wanted, strict=True) if not isinstance(x, PaddedArray)]
    assert [(x.dtype, x.shape) for x, _ in arrays] == [(w.dtype, w.shape) for _, w in arrays]


@pytest.mark.slow  # what it compiles is what test_values does, and test_traced traces it
@pytest.mark.parametrize("program", LEFT_OUT, ids=str)
def test_under_jit(program):
    f, values = over(program, traced_names(program))
    check_outputs(jax.jit(f)(*values), program)


# Several seconds each; the others of their themes go through the same code.
LARGE = (
    linalg.solve_triangular_both_ways,
    linalg.exponential_and_powers,
    linalg.discrete_lyapunov,
    linalg.batched_solve_and_cholesky,
    models.runge_kutta,
    models.kalman_filter,
    special.error_functions,
)


@pytest.mark.sampled(50)
@pytest.mark.parametrize("program", slow_where(LARGE.__contains__, [p for p in NOW if p.grad_wrt]))
def test_gradients_under_jit(program):
    names = sorted(program.grad_wrt, key=converted(program)[2].index)
    f, values = over(program, names)
    weights = reference.weights(program)

    def cost(*args):
        out = f(*args)
        terms = zip(weights, leaves(out, program), strict=True)
        return sum((w * y).sum() for w, y in terms if w is not None), out

    argnums = tuple(range(len(names)))
    grads, out = jax.jit(jax.grad(cost, argnums=argnums, has_aux=True))(*values)
    check_outputs(out, program)
    check_arrays(grads, reference.gradients(program), program, program.grad_rtol)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("program", [p for p in NOW if p.batch], ids=str)
def test_vmap(program):
    """Three rows at once are the three one by one (by loopax: PyTensor has judged one above)."""
    f, values = over(program, program.batch)
    rows = [np.stack([value * factor for factor in (1.0, 0.5, -1.25)]) for value in values]
    got = jax.tree.leaves(jax.vmap(f)(*rows))
    alone = [jax.tree.leaves(f(*row)) for row in zip(*rows, strict=True)]
    for g, *each in zip(got, *alone, strict=True):
        np.testing.assert_allclose(g, np.stack(each), rtol=1e-9, atol=1e-12)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "program",
    slow_where(
        lambda p: p is composition.second_order_through_a_network, [p for p in NOW if p.hessian_wrt]
    ),
)
def test_hessian(program):
    f, [value] = over(program, [program.hessian_wrt])
    np.testing.assert_allclose(
        jax.jit(jax.hessian(f))(value),
        reference.hessian(program),
        rtol=program.grad_rtol,
        atol=1e-10,
    )


@pytest.mark.parametrize("program", raising(), ids=str)
def test_says_why_it_cannot(program):
    with pytest.raises(Exception) as caught:
        jf, values, _ = converted(program)
        f, values = over(program, traced_names(program))
        jax.jit(f)(*values)
    kinds = [kind.__name__ for kind in type(caught.value).__mro__]
    assert program.error in kinds or program.error in str(caught.value)


def test_every_program_is_well_formed():
    assert len({str(p) for p in PROGRAMS}) == len(PROGRAMS)
    assert len(due()) + len(raising()) + len(not_yet()) == len(PROGRAMS)
    for p in PROGRAMS:
        inputs, _, _ = reference.declared(p)
        names = {var.name for var in inputs}
        assert len(inputs) == len(p.values), p
        wanted = {*p.static, *p.grad_wrt, *p.batch} | ({p.hessian_wrt} if p.hessian_wrt else set())
        assert wanted <= names, p
        repository, number = p.thread.rsplit(" ", 1)
        assert repository and number.isdigit(), p
