"""``Backend``: a record of everything in which backends differ.

`loopax.jaxify`, `loopax.grad` and the other transformations, `loopax.explain` and the contexts know no
backend by name, except for the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pytensor.graph.fg import FunctionGraph

from loopax.base.errors import UnsupportedOpError

DEFAULT: Literal["jax"] = "jax"
_BACKENDS: dict[str, Backend] = {}


class BackendFunction:
    """The class of functions that `loopax.jaxify` and the transformations return."""

    backend_name: ClassVar[str]
    __name__: str
    # For a batch with checks for nan: the error of the first row with a nan, from the function of one
    # row.
    error_in_rows: Callable[[Sequence[Any], Mapping[str, Any]], Exception | None] | None = None

    @property
    def backend(self) -> Backend:
        return backend_named(self.backend_name)

    @cached_property
    def context_class(self) -> type[Any]:
        """The class of the backend's contexts. Each `apply` reads it."""
        return self.backend.context

    if not TYPE_CHECKING:  # a type checker reports it

        def __getattr__(self, name: str) -> Any:
            if name in ("owner", "type"):  # attributes of variables
                raise AttributeError(
                    f"{self!r} is a function, not a PyTensor variable: it has no {name!r}. "
                    "Differentiate a function with loopax.grad(f), or jax.grad(f) in JAX, and a "
                    "variable with pytensor.grad(y, x)."
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def remarks(self) -> Sequence[str]:
        """Notes of the backend on the calls so far, a line each."""
        return ()

    def as_read(self, *args: Any, **kwargs: Any) -> FunctionGraph:
        """A copy of the program, as it was before the first pass, for a call's arguments.

        Raises
        ------
        TypeError
            The function has no program as read, or needs other arguments.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Backend:
    """A backend.

    Parameters
    ----------
    name
        The name in ``jaxify(..., backend=name)``; the ``backend_name`` of its functions.
    function
        The class of its callables: ``function(program, on_missing=...)``, and ``jit=...`` where that
        is an option, for a program in the IR after the passes.
    traced
        The class of plain Python functions, a `loopax.calling.TracedFunction`.
    context
        The class of the values of shared variables, a `loopax.calling.SharedContext`.
    passes
        The passes over a program, in order.
    no_jit
        If ``jit=False`` is not an option: a sentence that names the alternative.
    choices
        The values of the options in ``jaxify(..., checks=, loops=, parallel=, optimize=)``, the
        default first. ``function`` takes the options with more than one value.
    transformations
        ``{"grad": g}``, ``"value_and_grad"``, ``"jacobian"``, ``"hessian"``, ``"vmap"``: from one of
        its callables, and the options of the function of that name in `loopax`, to another;
        ``"jvp"``, ``"hvp"``, ``"vjp"``: as in `loopax`. A transformation that is missing is applied
        to the program's graph, which is then rebuilt.
    donates
        Whether its functions reuse the memory of inputs that are ``donated``.
    keeps_calls
        Whether it accepts instances of a graph with a loop in it as calls of one function.
    after_fork
        The name of the backend to use in a process forked after this one has compiled something; None
        where this one works there.
    refusal
        The error for a program that cannot be imported, from the importer's error, the graph and
        ``on_missing``: it may list more ops that cannot run.
    """

    name: str
    function: Callable[..., BackendFunction]
    traced: Callable[..., BackendFunction]
    context: type[Mapping[str, Any]]
    passes: tuple[Callable[[FunctionGraph], None], ...]
    no_jit: str | None = None
    choices: Mapping[str, tuple[Any, ...]] = field(
        default_factory=lambda: {"checks": ("raise",), "loops": ("native",), "optimize": ("none",)}
    )
    transformations: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    donates: bool = False
    keeps_calls: bool = False
    after_fork: str | None = None
    refusal: Callable[[UnsupportedOpError, FunctionGraph, str], UnsupportedOpError] = (
        lambda error, graph, on_missing: error
    )

    def options(self, jit: bool, on_missing: str, **option_values: object) -> dict[str, Any]:
        """The options of `loopax.jaxify` that ``function`` takes; ``option_values`` are for `choices`.

        Raises `ValueError` if an option has a value that is not among its `choices`.
        """
        if on_missing not in ("callback", "raise"):
            raise ValueError(f"on_missing must be 'callback' or 'raise', got {on_missing!r}")
        chosen: dict[str, Any] = {"on_missing": on_missing}
        for option, values in self.choices.items():
            value = option_values.get(option)
            if value is not None and value not in values:
                raise ValueError(
                    f"{option} must be one of {values} with backend={self.name!r}, got {value!r}"
                )
            if len(values) > 1:
                chosen[option] = values[0] if value is None else value
        if self.no_jit is None:
            return {"jit": jit, **chosen}
        if jit is not True:
            raise ValueError(f"jit={jit!r} works only with backend={DEFAULT!r}. {self.no_jit}")
        return chosen

    def __reduce__(self) -> Any:
        return backend_named, (self.name,)


def register_backend(backend: Backend) -> None:
    """Register ``backend`` under its name, for `loopax.jaxify`."""
    assert backend.name not in _BACKENDS, f"there is a backend of the name {backend.name!r}"
    _BACKENDS[backend.name] = backend


def backend_named(name: str) -> Backend:
    """The backend of that name.

    Raises `ValueError` if there is none.
    """
    if name not in _BACKENDS:
        raise ValueError(f"backend must be one of {tuple(_BACKENDS)}, got {name!r}")
    return _BACKENDS[name]
