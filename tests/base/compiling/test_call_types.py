"""Type inference asks Numba once for each function and types of arguments."""

from numba import njit
from numba.core import types
from numba.core.typing.context import BaseContext

from loopax.base.compiling.call_types import CallTypes
from loopax.base.compiling.pipeline import EmittedCode, njit_inner


def test_calls_of_equal_types_are_resolved_once(monkeypatch):
    asked = []
    real = BaseContext.resolve_function_type

    def noted(self, function, args, keywords):
        asked.append((function, tuple(args)))
        return real(self, function, args, keywords)

    monkeypatch.setattr(BaseContext, "resolve_function_type", noted)

    def emitted(a, b, n):
        c = a * b
        d = c * a
        e = d * n  # a float times an integer is another call
        f = e * n
        return f * c

    assert njit(pipeline_class=EmittedCode)(emitted)(2.0, 3.0, 4) == emitted(2.0, 3.0, 4)
    products = [args for function, args in asked if "mul" in str(function)]
    assert sorted(map(str, products)) == ["(float64, float64)", "(float64, int64)"]


def test_what_is_not_known_is_asked_of_the_context_itself():
    class Context:
        other = 5

        def resolve_function_type(self, function, args, keywords):
            return self, function, args, keywords

    context = Context()
    memo = CallTypes(context)
    assert memo.other == 5
    first = memo.resolve_function_type(len, (types.int64,), ())
    assert first == (context, len, (types.int64,), ())
    assert memo.resolve_function_type(len, (types.int64,), {}) is first
    assert memo.resolve_function_type(len, (types.int32,), {}) is not first


def test_literals_do_not_compile_a_function_of_ours_again():
    @njit_inner
    def plus(n, flag):
        return n + 1 if flag else n

    def emitted(n):
        return plus(n, True) + plus(n, False) + plus(3, True) + plus(4, False)

    assert njit(pipeline_class=EmittedCode)(emitted)(5) == 5 + 1 + 5 + 3 + 1 + 4
    assert plus.signatures == [(types.int64, types.boolean)]


def test_a_function_of_somebody_else_may_read_literals():
    @njit
    def entry(values, k):
        return values[k]

    def emitted(n):
        return entry((n, 2.5), 1)

    assert njit(pipeline_class=EmittedCode)(emitted)(5) == 2.5
