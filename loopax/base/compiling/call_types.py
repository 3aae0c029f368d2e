"""Type inference that resolves each function and argument types once, not at each call.

Numba resolves the type of a call by trying all templates of the function, dozens for a product: 0.2
ms for each line, again in each round of propagation. An emitted function has thousands of calls of
some thirty kinds.

Numba also compiles a function again for each literal among its arguments: a triangular solve four
times, for two flags, at 0.2 s. LLVM puts the values in where it inlines the function.
"""

from __future__ import annotations

from typing import Any

from numba import types

from loopax.base.upstream.numba import NopythonTypeInference, compiler, register_pass


class CallTypes:
    """A typing context that caches the types of calls while one function is typed.

    A new call is resolved by ``context`` itself, since templates are made for it and hold it.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._known: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(
        self, function: object, args: Any, keywords: dict[str, types.Type]
    ) -> Any:
        if _is_inner(function):
            args = map(types.unliteral, args)
        key = (function, tuple(args), tuple(sorted(dict(keywords).items())))
        if key not in self._known:
            self._known[key] = self._context.resolve_function_type(function, key[1], keywords)
        return self._known[key]


def _is_inner(function: Any) -> bool:
    """Whether a function is compiled by `njit_inner`: such functions read no literal types."""
    is_function = isinstance(function, types.Dispatcher)
    return is_function and "no_cpython_wrapper" in function.dispatcher.targetoptions


@register_pass(mutates_CFG=True, analysis_only=False)
class EmittedTypeInference(NopythonTypeInference):  # type: ignore[misc]  # Numba has no types
    """Numba's type inference, with `CallTypes`."""

    def run_pass(self, state: compiler.StateDict) -> bool:
        context, state.typingctx = state.typingctx, CallTypes(state.typingctx)
        try:
            return super().run_pass(state)
        finally:
            state.typingctx = context
