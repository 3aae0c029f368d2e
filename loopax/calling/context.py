"""``SharedContext``: the values of a program's shared variables by name; each backend has a subclass."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, ClassVar, Self

import numpy as np
from pytensor.compile.executor import Function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from loopax.base.errors import StatefulFunctionError
from loopax.calling.backend import DEFAULT, backend_named
from loopax.calling.context_file import read_arrays, write_arrays
from loopax.calling.conversion import Crossing
from loopax.calling.layout import Layout
from loopax.ir.named_axes import without_names
from loopax.ir.program import Program, Shared


class SharedContext(Mapping[str, Any]):
    """The values of the shared variables of one or more functions, by name. Immutable.

    ``f.init_context()`` and `of`, for several functions or variables, make a context of the current
    values; ``SharedContext({a: value, b: value})`` has other values. Pass a context to any function, of
    any backend, that reads some of its variables. A variable without a name is called ``shared``, and a
    second variable with the same name gets the suffix ``_1``. A context shares nothing with PyTensor
    and never changes.

    Parameters
    ----------
    values
        The values of shared variables, by variable.

    Raises
    ------
    TypeError
        A key is not a shared variable.
    LoopTypeError
        A variable's type cannot hold its value.

    >>> import numpy as np, pytensor
    >>> from loopax import SharedContext, jaxify
    >>> a, b = pytensor.shared(1.0, name="a"), pytensor.shared(2.0, name="b")
    >>> ctx = SharedContext({a: 3.0, b: 4.0})
    >>> [float(jaxify([], a * b, backend=name).apply(ctx)[1]) for name in ("jax", "numba")]
    [12.0, 12.0]
    """

    __slots__ = ("_layout", "_values")
    __hash__ = None  # type: ignore[assignment]

    crossing: ClassVar[Crossing]  # of the backend

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        return object.__new__(backend_named(DEFAULT).context if cls is SharedContext else cls)  # type: ignore[return-value]

    def __init__(self, values: Mapping[Any, Any] | Layout, of_layout: Sequence[Any] = ()) -> None:
        if isinstance(values, Layout):
            self._layout, self._values = values, tuple(of_layout)
            return
        self._layout = layout = Layout.of([_shared(v) for v in values])
        self._values = tuple(
            self.crossing.accept_copy(x, s.variable.type, f"The value of {name!r}")
            for x, s, name in zip(values.values(), layout.shared, layout.names, strict=True)
        )

    @classmethod
    def of(cls, *functions: object) -> SharedContext:
        """A context for several functions; a variable that they share has one value.

        Parameters
        ----------
        functions
            Functions from `loopax.jaxify`, compiled PyTensor functions, or shared variables. The first
            function of loopax determines the backend.
        """
        kinds = [f.context_class for f in functions if hasattr(f, "context_class")]
        entries = {id(s.storage): s for f in functions for s in _shared_by(f)}
        kind: Any = cls if cls is not SharedContext else backend_named(DEFAULT).context
        return (kinds[0] if kinds else kind).holding([*entries.values()])

    def to(self, backend: str) -> SharedContext:
        """The context in the form of ``backend``; this context itself if it already has that form.

        A NumPy generator becomes a key derived from its state, and a key a generator seeded with it:
        the two draw different numbers.

        Raises
        ------
        StatefulFunctionError
            The values are traced, or are batches of values.
        """
        kind: Any = backend_named(backend).context
        return self if isinstance(self, kind) else kind.converted(self)

    @classmethod
    def converted(cls, context: SharedContext) -> Self:
        """A context of another backend in the form of this one; see `to`."""
        values = []
        for name, s, x in zip(
            context._layout.names, context._layout.shared, context._values, strict=True
        ):
            declared, current = s.variable.type, s.value if s.storage else None
            try:
                plain = context.crossing.stored(x, declared, current)
            except Exception as error:  # a tracer of JAX, a batch
                raise StatefulFunctionError(
                    f"The value of {name!r} in the context, {context._kind(x)}, is not a single known "
                    "value, so it cannot move to another backend. Convert the context outside of "
                    "transformations, and a batch one context at a time."
                ) from error
            values.append(cls.crossing.accept_copy(plain, declared, f"The value of {name!r}"))
        return cls(context._layout, values)

    @classmethod
    def holding(cls, shared: Sequence[Shared]) -> Self:
        """A context of the values that these shared variables hold now."""
        layout = Layout.of(shared)
        return cls(
            layout,
            [
                cls.crossing.snapshot(s.value, s.variable, f"The shared variable {name!r}")
                for s, name in zip(shared, layout.names, strict=True)
            ],
        )

    def __getitem__(self, key: str | Variable) -> Any:
        return self._values[self._layout.find(key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.names)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return self is other  # Mapping's would ask arrays for their truth

    def __repr__(self) -> str:
        values = zip(self._layout.names, self._values, strict=True)
        return f"{type(self).__name__}({', '.join(f'{n}: {self._kind(x)}' for n, x in values)})"

    def get(self, key: str | Variable, default: object = None) -> Any:
        """The value of a shared variable or a name; ``default`` if there is none."""
        try:
            return self[key]
        except KeyError:
            return default

    def set(self, key: str | Variable, value: object) -> Self:
        """A context with another value of one variable. The variable itself stays as it is.

        Parameters
        ----------
        key
            A shared variable, or a name.
        value
            A value that a function takes for an input of the variable's type. In JAX, with further
            leading axes, it is a value for each member of a batch, for ``jax.vmap``.

        Raises
        ------
        KeyError
            There is no such variable.
        LoopTypeError
            The type cannot hold the value.
        """
        k = self._layout.find(key)
        declared, name = self._layout.shared[k].variable.type, self._layout.names[k]
        values = list(self._values)
        values[k] = self.crossing.accept_copy(value, declared, f"The value of {name!r}")
        return type(self)(self._layout, values)

    @abstractmethod
    def replicate(self, n: int) -> Any:
        """``n`` contexts, each with its own generators."""

    def including(self, program: Program) -> Self:
        """The context with the current values of a program's variables that this context lacks."""
        positions = self._layout.positions(program.shared)
        missing = [s for s, k in zip(program.shared, positions, strict=True) if k is None]
        if not missing:
            return self
        layout = Layout.of([*self._layout.shared, *missing])
        return type(self)(layout, (*self._values, *self.holding(missing)._values))

    def read(self, program: Program) -> list[Any]:
        """The values of a program's shared variables, in its order.

        Raises
        ------
        StatefulFunctionError
            A value is missing, or is ambiguous.
        LoopTypeError
            A value has another type.
        """
        return [
            self.crossing.accept(
                self._values[k],
                s.variable.type,
                f"The value of {self._layout.names[k]!r} in the context",
            )
            for k, s in zip(self._positions(program), program.shared, strict=True)
        ]

    def written(self, program: Program, values: Sequence[Any]) -> Self:
        """The context with the next values of the variables that a program updates."""
        if not values:
            return self
        positions, next_values = self._positions(program), list(self._values)
        for k, x in zip(program.updates, values, strict=True):
            next_values[positions[k]] = x
        return type(self)(self._layout, next_values)

    def is_concrete(self) -> bool:
        """Whether the values are concrete, not traced, and may be kept."""
        return True

    def _positions(self, program: Program) -> list[int]:
        positions = self._layout.positions(program.shared)
        if None in positions:
            names = zip(program.shared_names, positions, strict=True)
            missing = [n for n, k in names if k is None]
            copied = [n for n in missing if n in self._layout.names]
            why = f"it has {self._layout.listed()}"
            if copied:
                why += (
                    f", but its {', '.join(copied)} belong to another function: a copy of a function, by "
                    "pickle too, has shared variables of its own"
                )
            raise StatefulFunctionError(
                f"The context has no value for {', '.join(missing)}, which {program.name} needs: {why}. "
                "Make a context with init_context() of this function, or one for several functions with "
                "loopax.SharedContext.of(f, g)."
            )
        return positions  # type: ignore[return-value]

    def save(self, file: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write all values to an ``.npz`` file; the states of generators as numbers.

        >>> import tempfile, pathlib, numpy as np, pytensor
        >>> from loopax import jaxify
        >>> w = pytensor.shared(np.array([1.0, 2.0]), name="w")
        >>> ctx = jaxify([], w * 2).init_context()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ctx.set(w, np.array([3.0, 4.0])).save(pathlib.Path(folder) / "state.npz")
        ...     ctx.restore(pathlib.Path(folder) / "state.npz")["w"]
        Array([3., 4.], dtype=float64)
        """
        write_arrays(file, self._arrays())

    def restore(self, file: str | os.PathLike[str] | IO[bytes]) -> Self:
        """A context with this structure and the values that `save` wrote.

        Raises
        ------
        LoopTypeError
            The variables in the file, their dtypes or their ranks differ from the context.
        """
        return self._with_arrays(read_arrays(file))

    @abstractmethod
    def _kind(self, x: object) -> str:
        """A word for a value, for ``repr``."""

    @abstractmethod
    def _arrays(self) -> Iterable[tuple[str, np.ndarray]]:
        """The values as arrays, for a file."""

    @abstractmethod
    def _with_arrays(self, arrays: dict[str, np.ndarray]) -> Self:
        """The context with the values that `_arrays` turned into arrays."""


def _shared(variable: object) -> Shared:
    """The entry of a shared variable, with the type of a plain tensor where axes are named."""
    if not isinstance(variable, SharedVariable):
        raise TypeError(
            "A context holds values of shared variables, which pytensor.shared(value, name='w') "
            f"makes; got {variable!r} of type {type(variable).__name__}. Pass a dict of variables and "
            "values, SharedContext({w: value}), or a function that jaxify returned, "
            "SharedContext.of(f)."
        )
    return Shared(without_names(variable).type(name=variable.name), variable.container.storage)


def _shared_by(f: Any) -> Sequence[Shared]:
    if isinstance(f, SharedVariable):
        return [_shared(f)]
    if isinstance(f, Function):
        inputs = zip(f.maker.inputs, f.input_storage, strict=True)
        return [Shared(spec.variable, c.storage) for spec, c in inputs if spec.value is not None]
    return f.program.shared
