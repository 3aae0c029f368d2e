"""Arguments by the names of JAX and PyTensor, or in another order: errors that say what to write."""

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
