"""Arguments by the names of JAX and PyTensor, or in another order: errors that say what to write."""

import functools
import inspect

import jax
import pytensor
import pytensor.tensor as pt
import pytest
from jax import lax

import loopax
from loopax.base.errors import LoopTypeError
from loopax.frontend.loops import keywords

X = pt.dvector("x")
TABLES = {
    "scan": (keywords.SCAN, [lax.scan, pytensor.scan]),
    "map": (keywords.MAP, [lax.map]),
    "reduce": (keywords.REDUCE, []),
    "filter": (keywords.FILTER, []),
    "fori_loop": (keywords.FORI_LOOP, [lax.fori_loop]),
    "while_loop": (keywords.WHILE_LOOP, [lax.while_loop]),
    "cond": (keywords.COND, [lax.cond]),
}
# Options that are no part of what a loop computes, and parameters that have no name.
OPTIONS = {"_split_transpose", "mode", "profile", "allow_gc", "strict", "return_list", "operands"}


@pytest.mark.parametrize("name", TABLES)
def test_the_fix_names_arguments_that_the_function_has(name):
    function, (fixes, _) = getattr(loopax, name), TABLES[name]
    parameters = inspect.signature(function).parameters
    assert not fixes.keys() & parameters.keys()
    for keyword, fix in fixes.items():
        with pytest.raises(
            TypeError, match=f"loopax.{name} has no argument '{keyword}': .*"
        ) as error:
            function(**{keyword: None})
        assert fix in str(error.value)


@pytest.mark.parametrize("name", [name for name, (_, others) in TABLES.items() if others])
def test_each_argument_of_the_others_is_known_or_has_a_fix(name):
    fixes, others = TABLES[name]
    known = inspect.signature(getattr(loopax, name)).parameters.keys() | fixes.keys() | OPTIONS
    for other in others:
        assert inspect.signature(other).parameters.keys() - known == set()


@pytest.mark.parametrize("keyword", ["static_argnames", "static_argnums", "loop", "donate_argnums"])
def test_options_of_jit_and_native(keyword):
    with pytest.raises(TypeError, match=f"loopax.native has no argument '{keyword}': "):
        loopax.native(lambda x: x, **{keyword: "x"})
    assert loopax.native(lambda x: 2 * x)(2.0) == jax.jit(lambda x: 2 * x)(2.0)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda f: loopax.map(X, f), r"f of map\(f, xs\) must be a function, got x "),
        (lambda f: loopax.filter(X, f), r"pred of filter\(pred, xs\) must be a function, got x "),
        (
            lambda f: loopax.reduce(0.0, f, X),
            r"f of reduce\(f, init, xs\) must be a function, got 0.0 ",
        ),
    ],
    ids=["map", "filter", "reduce"],
)
def test_arguments_in_another_order(call, message):
    with pytest.raises(LoopTypeError, match=message):
        call(lambda *xs: xs[0])


@pytest.mark.parametrize("start", [3, (3, 1.5)], ids=["one leaf", "a tuple"])
def test_a_body_before_its_condition(start):
    with pytest.raises(LoopTypeError, match=r"write while_loop\(cond, body, init\)\."):
        loopax.while_loop(lambda c: c, lambda c: (c[0] if isinstance(c, tuple) else c) < 9, start)
    # A bool is a carry, too.
    assert not loopax.while_loop(lambda c: c, lambda c: c & (2 * X.sum() > 1e9), True).eval(
        {X: [1.0]}
    )


@pytest.mark.parametrize(
    "call, name, fix",
    [
        (lambda: loopax.scan(lambda c, x: (c, x), 0.0, X, lenght=3), "lenght", "is 'length'"),
        (lambda: loopax.while_loop(None, None, 0, max_step=3), "max_step", "is 'max_steps'"),
        (
            lambda: loopax.filter(None, X, parallel=True),
            "parallel",
            "it has pred, xs, strict, name",
        ),
        (lambda: loopax.native(None, check="nan"), "check", "is 'checks'"),
        (lambda: loopax.jaxify([X], X, loop="xla"), "loop", "is 'loops'"),
    ],
)
def test_an_argument_that_is_misspelt(call, name, fix):
    with pytest.raises(TypeError, match=f"has no .*'{name}': .*{fix}"):
        call()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: loopax.scan(lambda c: (c, c), 0.0, X), r"step\(carry, x\), but .* are \(c\)"),
        (lambda: loopax.map(lambda a, b: a, (X, X)), r"f\(x\), but .* are \(a, b\): missing .*'b'"),
        (lambda: loopax.reduce(lambda c: c, 0.0, X), r"f\(carry, x\), but"),
        (lambda: loopax.filter(lambda x, y: x > y, X), r"pred\(x\), but"),
        (lambda: loopax.fori_loop(0, 3, lambda c: c, 1.0), r"body\(i, carry\), but"),
        (lambda: loopax.while_loop(lambda: True, lambda c: c, 1.0), r"cond\(carry\), but"),
        (
            lambda: loopax.cond(X[0] > 0, lambda x: x, lambda: X, X),
            r"false_fn\(operands\[0\]\), but .* are \(\)",
        ),
    ],
)
def test_a_step_with_another_number_of_parameters(call, message):
    with pytest.raises(LoopTypeError, match=f"called as {message}"):
        call()


def test_steps_of_any_kind_of_function():
    """Methods, partial functions, ops and functions without a signature are steps too."""
    assert loopax.reduce(pt.maximum, 0.0, X).eval({X: [1.0, 3.0]}) == 3.0
    assert loopax.reduce(functools.partial(pt.add, 1.0), 0.0, X).eval({X: [1.0, 3.0]}) == 6.0
    assert loopax.map(X.__class__.sum, pt.outer(X, X)).eval({X: [1.0, 3.0]}).tolist() == [4.0, 12.0]
