"""Types of `jaxify`'s arguments and results for type checkers, and the errors on its options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    overload,
)

from pytensor.graph.fg import FunctionGraph

from loopax import frontend
from loopax.calling import DEFAULT, TracedFunction, backend_named
from loopax.frontend.mistakes import similar
from loopax.jax_backend import JaxTracedFunction

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = ParamSpec("P")
M = TypeVar("M", "classmethod[Any, Any, Any]", "staticmethod[Any, Any]")

# The backends of loopax. A backend registered by others is passed as cast(Any, "its name").
BackendName: TypeAlias = Literal["jax", "numba"]
# Pytrees of variables. PyTensor does not annotate the types of most of its variables.
Inputs: TypeAlias = "Sequence[Any] | Mapping[Any, Any] | DataclassInstance"


class Model(Protocol):
    """A model of PyMC, which has no types."""

    value_vars: Any

    def logp(self, *args: object, **kwargs: object) -> Any: ...


def is_pymc_model(fn: object) -> bool:
    """Whether ``fn`` is a model, without importing PyMC."""
    names = {"Model", "BaseModel"}
    return any(
        c.__name__ in names and c.__module__.startswith("pymc.model") for c in type(fn).__mro__
    )


class BuildOptions(TypedDict, total=False):
    """Options that `loopax.pymc.logp` takes, too; `jaxify` documents them."""

    jit: bool
    on_missing: Literal["callback", "raise"]
    checks: Literal["auto", "checkify", "raise", "ignore", "nan"] | None
    loops: Literal["auto", "native", "xla"] | None
    parallel: Literal["auto"] | bool
    optimize: Literal["none", "egraph"] | None


class Options(BuildOptions, total=False):
    """All options except ``backend``, which determines the type of the callable."""

    donate: frontend.Donate | None
    static_argnames: str | Sequence[str]
    broadcasting: Literal["strict", "numpy"]
    name: str | None


class Decorator(Protocol):
    """The type of ``jaxify(backend="numba")``."""

    @overload
    def __call__(self, fn: M, /) -> M: ...
    @overload
    def __call__(self, fn: Callable[P, Any], /) -> TracedFunction[P]: ...


class JaxDecorator(Protocol):
    """The type of ``jaxify()``."""

    @overload
    def __call__(self, fn: M, /) -> M: ...
    @overload
    def __call__(self, fn: Callable[P, Any], /) -> JaxTracedFunction[P]: ...


# Options of `pytensor.function`, `jax.jit` and earlier transpilers, and how to write them here.
_IN_PLACE_OF = {
    "mode": "choose the compiler with backend='jax' or 'numba'. To stay with PyTensor's functions, use "
    "pytensor.function(inputs, outputs, mode='LOOPAX'), or 'LOOPAX_NUMBA'",
    "linker": "choose the compiler with backend='jax' or 'numba'",
    "jacobian": "to leave out the transformations' Jacobians, use loopax.pymc.logp(model, jacobian=False)",
    "inputs": "the inputs come first, without a name: jaxify([x, y], outputs)",
    "output": "it is called outputs: jaxify([x, y], outputs)",
    "model": "a PyMC model comes first, without a name: jaxify(model)",
    "donate_argnums": "it is called donate: jaxify([x, y], z, donate=0)",
    "donate_argnames": "it is called donate: jaxify([x, y], z, donate='x')",
    "static_argnums": "arguments of a Python function are static by name, static_argnames='mode', and "
    "loopax finds inputs whose values make a shape at the first call",
    "on_unused_input": "jaxify accepts unused inputs",
    "allow_input_downcast": "jaxify refuses values that would lose digits: convert them, x.astype(...)",
}


def refuse_options(unknown: Iterable[str], options: Sequence[str]) -> None:
    """Raise for the first of ``unknown``, which is not one of the ``options`` of `jaxify`."""
    for option in unknown:
        why = _IN_PLACE_OF.get(option) or similar(option, options)
        raise TypeError(f"jaxify has no option {option!r}: {why}.")


def donated_inputs(
    fn: object, donate: frontend.Donate | None, backend: str, jit: bool
) -> frontend.Donated:
    """The inputs named by ``donate``, by numbers and names, if any can be donated."""
    inputs = fn.inputs if isinstance(fn, FunctionGraph) else () if callable(fn) else fn
    asked = frontend.donated_arguments(donate, inputs)
    if asked and not backend_named(backend).donates:
        raise ValueError(
            f"donate={donate!r} works only with backend={DEFAULT!r}: with backend={backend!r} a call "
            "leaves its arguments unchanged, and Python frees their memory after your last reference. "
            "Leave donate out."
        )
    if asked and not jit:
        raise ValueError(
            f"donate={donate!r} works only with jit=True: only a compiled program can reuse the memory "
            "of its arguments. Under your own jax.jit, write jax.jit(f, donate_argnums=...)."
        )
    return asked
