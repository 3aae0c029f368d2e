"""Type inference asks Numba once for each function and types of arguments."""

from numba import njit
from numba.core import types
from numba.core.typing.context import BaseContext

from loopax.base.compiling.call_types import CallTypes
from loopax.base.compiling.pipeline import EmittedCode


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
