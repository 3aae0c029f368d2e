"""``Backend``: what programs can become, as a record. All that differs between backends is asked of it.

`loopax.jaxify`, `loopax.grad` and its kin, `loopax.explain` and the contexts know no backend by name, but
for the one that is used where none is asked for.
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
    """What `loopax.jaxify` returns, and what becomes of it by a transformation."""

    backend_name: ClassVar[str]
    __name__: str
    # Of a batch that looks for nan: the error of a call's first row that has one, by the function of a row.
    error_in_rows: Callable[[Sequence[Any], Mapping[str, Any]], Exception | None] | None = None

    @property
    def backend(self) -> Backend:
        return backend_named(self.backend_name)

    @cached_property
    def context_class(self) -> type[Any]:
        """The class of its contexts. Each `apply` asks for it."""
        return self.backend.context

    if not TYPE_CHECKING:  # to a checker it is an error

        def __getattr__(self, name: str) -> Any:
            if name in ("owner", "type"):  # asked of what should be a variable
                raise AttributeError(
                    f"{self!r} is a function, and no variable of PyTensor: it has no {name!r}. Its "
                    "gradient is loopax.grad(f), and jax.grad(f) in JAX; that of a variable is "
                    "pytensor.grad(y, x)."
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def remarks(self) -> Sequence[str]:
        """What its backend has to say of the calls so far, a line each."""
        return ()

    def as_read(self, *args: Any, **kwargs: Any) -> FunctionGraph:
        """A copy of the program, as it was before the first pass, for a call's arguments.

        Raises
        ------
        TypeError
            There is none, or it needs other arguments.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Backend:
    """A backend.

    Parameters
    ----------
    name
        What ``jaxify(..., backend=name)`` asks for; the ``backend_name`` of its functions.
    function
        The class of its callables: ``function(program, on_missing=...)``, and ``jit=...`` where that is an
        option, of a program in the IR that the passes have gone over.
    traced
        The class of plain Python functions, a `loopax.calling.TracedFunction`.
    context
        The class of the values of shared variables, a `loopax.calling.SharedContext`.
    passes
        Those that a program goes through, in order.
    no_jit
        Where ``jit=False`` is no option: a sentence that says what there is in its place.
    choices
        What ``jaxify(..., checks=, loops=, parallel=, optimize=)`` may be, for each the default first.
        ``function`` takes those that leave a choice.
    transformations
        ``{"grad": g}``, ``"value_and_grad"``, ``"jacobian"``, ``"hessian"``, ``"vmap"``: from one of its
        callables, and the options of the function of that name in `loopax`, to another; ``"jvp"``,
        ``"hvp"``, ``"vjp"``: as those of `loopax`. What is not there is done to the program, as a graph,
        which is then built anew.
    donates
        Whether its functions take the memory of the inputs of a program that are ``donated``.
    keeps_calls
        Whether it takes instances of a graph with a loop in it as calls of one function.
    after_fork
        The name of the backend that goes on in a process forked from one in which this has compiled
        something; None where this one can.
    refusal
        The error that is raised where a program cannot be imported, from the importer's, the graph and
        ``on_missing``: it may list more that cannot run.
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

    def options(self, jit: bool, on_missing: str, **asked: Any) -> dict[str, Any]:
        """The options of `loopax.jaxify` that ``function`` takes; ``asked`` are those of `choices`.

        Raises
        ------
        ValueError
            One has a value that it cannot have.
        """
        if on_missing not in ("callback", "raise"):
            raise ValueError(f"on_missing must be 'callback' or 'raise', got {on_missing!r}")
        chosen: dict[str, Any] = {"on_missing": on_missing}
        for option, values in self.choices.items():
            value = asked.get(option)
            if value is not None and value not in values:
                raise ValueError(
                    f"{option} must be one of {values} with backend={self.name!r}, got {value!r}"
                )
            if len(values) > 1:
                chosen[option] = values[0] if value is None else value
        if self.no_jit is None:
            return {"jit": jit, **chosen}
        if jit is not True:
            raise ValueError(f"jit={jit!r} goes with backend={DEFAULT!r}. {self.no_jit}")
        return chosen

    def __reduce__(self) -> Any:
        return backend_named, (self.name,)


def register_backend(backend: Backend) -> None:
    """Make ``backend`` known to `loopax.jaxify`, by its name."""
    assert backend.name not in _BACKENDS, f"there is a backend of the name {backend.name!r}"
    _BACKENDS[backend.name] = backend


def backend_named(name: str) -> Backend:
    """The backend of that name.

    Raises
    ------
    ValueError
        There is none.
    """
    if name not in _BACKENDS:
        raise ValueError(f"backend must be one of {tuple(_BACKENDS)}, got {name!r}")
    return _BACKENDS[name]
