"""``SharedContext``: the values of a program's shared variables, as a pytree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.sparse import BCOO
from pytensor.compile.executor import Function

from loopax.ir.errors import LoopTypeError, StatefulFunctionError
from loopax.ir.program import Program, Shared
from loopax.jax_backend.context_file import read_into, write
from loopax.jax_backend.crossing import accept, accept_batch, current, release
from loopax.jax_backend.generators import is_key
from loopax.jax_backend.layout import Layout


@jax.tree_util.register_pytree_with_keys_class
class SharedContext(Mapping[str, Any]):
    """The values of the shared variables of one or more functions, by name: an immutable pytree.

    ``jf.init_context()`` makes one from what the variables hold, `SharedContext.of` one for several
    functions. A variable without a name is called ``shared``; the second of a name has ``_1`` behind
    it. Nothing of it is shared with PyTensor, and nothing in it ever changes. As a pytree it has one
    subtree for each variable, with its name as the key: ``jax.jit``, ``vmap``, ``lax.scan``,
    ``device_put`` and checkpoint libraries take it.

    >>> import numpy as np, pytensor
    >>> from loopax import jaxify
    >>> total = pytensor.shared(np.float64(1.0), name="total")
    >>> jf = jaxify([], total * 2, updates={total: total + 1})
    >>> ctx, out = jf.apply(jf.init_context())
    >>> ctx.get(total), ctx.set(total, 9.0)["total"], total.get_value()
    (Array(2., dtype=float64), array(9.), array(1.))
    """

    __slots__ = ("_layout", "_values")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, layout: Layout, values: Sequence[Any]) -> None:
        self._layout = layout
        self._values = tuple(values)

    @classmethod
    def of(cls, *functions: Any) -> SharedContext:
        """One context for several functions: a variable that they share has one value.

        Parameters
        ----------
        functions
            What `loopax.jaxify` returned, or compiled ``pytensor.function``s.
        """
        found = {id(s.storage): s for f in functions for s in _shared_by(f)}
        return cls.holding([*found.values()])

    @classmethod
    def holding(cls, shared: Sequence[Shared]) -> SharedContext:
        """The values that these shared variables hold now."""
        layout = Layout.of(shared)
        return cls(layout, [_on_device(s, n) for s, n in zip(shared, layout.names, strict=True)])

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], Layout]:
        keys = map(jax.tree_util.DictKey, self._layout.names)
        return list(zip(keys, self._values, strict=True)), self._layout

    def tree_flatten(self) -> tuple[tuple[Any, ...], Layout]:
        return self._values, self._layout

    @classmethod
    def tree_unflatten(cls, layout: Layout, values: Sequence[Any]) -> SharedContext:
        return cls(layout, values)

    def __getitem__(self, key: Any) -> Any:
        return self._values[self._layout.find(key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.names)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return self is other  # Mapping's would ask arrays for their truth

    def __repr__(self) -> str:
        values = (f"{n}: {_kind(x)}" for n, x in zip(self._layout.names, self._values, strict=True))
        return f"SharedContext({', '.join(values)})"

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a shared variable, or of that name; ``default`` where there is none."""
        try:
            return self[key]
        except KeyError:
            return default

    def set(self, key: Any, value: Any) -> SharedContext:
        """A context with another value of one variable. The variable itself stays as it is.

        Parameters
        ----------
        key
            A shared variable, or a name.
        value
            What the variable's type can hold: an array or a tracer, a key or a NumPy ``Generator``.
            With leading axes before its own it is a value for each member of a batch, for ``jax.vmap``.

        Raises
        ------
        KeyError
            There is no such variable.
        LoopTypeError
            The type cannot hold the value.
        """
        k = self._layout.find(key)
        held, name = self._layout.shared[k].variable.type, self._layout.names[k]
        values = list(self._values)
        values[k] = accept_batch(value, held, f"The value of {name!r}")
        return SharedContext(self._layout, values)

    def replicate(self, n: int) -> SharedContext:
        """``n`` contexts along a new leading axis, each with generators of its own.

        ``jax.vmap(jf.apply)`` runs them side by side: chains, particles, ensembles.
        """
        return jax.tree.map(
            lambda x: _replicated(x, n), self, is_leaf=lambda x: isinstance(x, BCOO)
        )

    def including(self, program: Program) -> SharedContext:
        """With the values that a program needs and this context lacks, as they are now."""
        places = self._layout.positions(program.shared)
        new = [s for s, k in zip(program.shared, places, strict=True) if k is None]
        if not new:
            return self
        layout = Layout.of([*self._layout.shared, *new])
        return SharedContext(layout, (*self._values, *SharedContext.holding(new)._values))

    def read(self, program: Program) -> list[Any]:
        """The values of a program's shared variables, in its order.

        Raises
        ------
        StatefulFunctionError
            One is missing, or it is not clear which one is meant.
        LoopTypeError
            One has another type: a batch of values outside of ``jax.vmap``, for instance.
        """
        places = self._places(program)
        for k, s in zip(places, program.shared, strict=True):
            ndim = getattr(s.variable.type, "ndim", None)
            if ndim is not None and getattr(self._values[k], "ndim", ndim) > ndim:
                raise LoopTypeError(
                    f"The value of {self._layout.names[k]!r} in the context has rank "
                    f"{self._values[k].ndim}, but the variable has rank {ndim}: it is a batch of values. "
                    f"Run one call for each with jax.vmap({program.name}.apply)(contexts), with "
                    "in_axes=(0, None) where the arguments are the same for all."
                )
        return [
            accept(
                self._values[k],
                s.variable.type,
                f"The value of {self._layout.names[k]!r} in the context",
            )
            for k, s in zip(places, program.shared, strict=True)
        ]

    def written(self, program: Program, values: Sequence[Any]) -> SharedContext:
        """With the next values of the variables that a program updates."""
        if not values:
            return self
        places, new = self._places(program), list(self._values)
        for k, x in zip(program.updates, values, strict=True):
            new[places[k]] = x
        return SharedContext(self._layout, new)

    def _places(self, program: Program) -> list[int]:
        places = self._layout.positions(program.shared)
        if None in places:
            names = zip(program.shared_names, places, strict=True)
            raise StatefulFunctionError(
                f"The context has no value for {', '.join(n for n, k in names if k is None)}, which "
                f"{program.name} needs: it has {self._layout.listed()}. Make one with init_context() of "
                "this function, or one for several functions with loopax.SharedContext.of(f, g)."
            )
        return places  # type: ignore[return-value]

    def save(self, file: Any) -> None:
        """Write all values to an ``.npz`` file; keys as their data.

        >>> import tempfile, pathlib, numpy as np, pytensor
        >>> from loopax import jaxify
        >>> w = pytensor.shared(np.array([1.0, 2.0]), name="w")
        >>> ctx = jaxify([], w * 2).init_context()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ctx.set(w, np.array([3.0, 4.0])).save(pathlib.Path(folder) / "state.npz")
        ...     ctx.restore(pathlib.Path(folder) / "state.npz")["w"]
        Array([3., 4.], dtype=float64)
        """
        write(self, file)

    def restore(self, file: str | os.PathLike[str] | Any) -> SharedContext:
        """A context of the structure of this one, with the values that `save` wrote.

        Raises
        ------
        LoopTypeError
            The file has other variables, or one of another dtype or rank.
        """
        return read_into(self, file)


def _shared_by(f: Any) -> Sequence[Shared]:
    if isinstance(f, Function):
        inputs = zip(f.maker.inputs, f.input_storage, strict=True)
        return [Shared(spec.variable, c.storage) for spec, c in inputs if spec.value is not None]
    return f.program.shared


def _on_device(shared: Shared, name: str) -> Any:
    value = current(shared.value, shared.variable.type, f"The shared variable {name!r}")
    return release(value, shared.variable)


def _replicated(x: Any, n: int) -> Any:
    if isinstance(x, BCOO):  # JAX takes a batch of matrices for one of rank 3
        data, indices = _replicated(x.data, n), _replicated(x.indices, n)
        return BCOO((data, indices), shape=(n, *x.shape))
    if not is_key(x):
        return jnp.broadcast_to(x, (n, *jnp.shape(x)))
    flat = jax.vmap(lambda key: jax.random.split(key, n), out_axes=1)(x.reshape(-1))
    return flat.reshape((n, *x.shape))


def _kind(x: Any) -> str:
    leaves = jax.tree.leaves(x)
    if len(leaves) == 1 and hasattr(leaves[0], "dtype"):
        return f"{leaves[0].dtype}{list(leaves[0].shape)}"
    return type(x).__name__
