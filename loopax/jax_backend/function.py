"""``JaxFunction``: a program as a JAX callable."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.tensor.type import TensorType, integer_dtypes
from pytensor.typed_list.type import TypedListType

from loopax.ir.errors import DynamicShapeError, StatefulFunctionError
from loopax.ir.lock import TRACING
from loopax.ir.program import Program
from loopax.jax_backend.arguments import Arguments
from loopax.jax_backend.callback import refusal
from loopax.jax_backend.evaluate import Context, NeedsStatic, run
from loopax.jax_backend.lists import RaggedList, as_list
from loopax.jax_backend.stages import Stages
from loopax.jax_backend.static import is_traced
from loopax.jax_backend.support import unsupported_ops
from loopax.jax_backend.x64 import as_declared

_MOST_VARIANTS = 128  # compiled programs kept, one for each value of the static inputs


class JaxFunction(Stages):
    """A pure function of JAX arrays, made by `loopax.jaxify`.

    It takes the program's inputs by position or by name and returns what the program returns, in its
    structure. ``jax.jit``, ``grad``, ``value_and_grad``, ``vmap``, ``jvp``, ``hessian``,
    ``make_jaxpr`` and ``jax.export.export`` take it as it is. A direct call is compiled by a
    ``jax.jit`` of its own.

    Shared variables are read at every direct call, and passed to the compiled program as arguments.
    Under a transformation of the caller's, their values are captured when that trace is made.

    An input whose *value* makes a shape is found at the first call and becomes static: the program is
    compiled once for each of its values. Where a tracer arrives for such an input, there is no value,
    and `DynamicShapeError` says what to do.

    Parameters
    ----------
    program
        In the IR, lowered.
    jit
        Whether a direct call is compiled.
    on_missing
        ``"callback"`` or ``"raise"``: what becomes of ops without a JAX conversion.
    """

    def __init__(self, program: Program, *, jit: bool = True, on_missing: str = "callback") -> None:
        if on_missing not in ("callback", "raise"):
            raise ValueError(f"on_missing must be 'callback' or 'raise', got {on_missing!r}")
        if lines := unsupported_ops(program.graph, on_missing):
            raise refusal(lines)
        self.program = program
        self._jit = jit
        self._on_missing = on_missing
        self._prepare()

    def _prepare(self) -> None:
        self._arguments = Arguments(self.program)
        self._context = Context(on_missing=self._on_missing)
        self._static: frozenset[int] = frozenset()
        self._counts = [
            k
            for k, i in enumerate(self.program.inputs)
            if isinstance(i.variable.type, TensorType)
            and (i.variable.type.ndim == 0 and i.variable.type.dtype in integer_dtypes)
        ]
        self._variants: OrderedDict[Any, Any] = OrderedDict()
        self._compiled = self._variants[()] = self._variant(())
        self._warned = False
        self.__name__ = self.__qualname__ = self.program.name
        self.__doc__ = self.program.doc or f"{self.program.name}{self._arguments.signature}"
        self.__signature__ = self._arguments.signature

    def __repr__(self) -> str:
        return f"<JaxFunction {self.program.name}{self._arguments.signature}>"

    def __getstate__(self) -> dict[str, Any]:
        return {k: self.__dict__[k] for k in ("program", "_jit", "_on_missing")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.program.updated:
            raise StatefulFunctionError(
                f"{self.program.name} updates the shared variables {', '.join(self.program.updated)}: a "
                "pure function cannot. Return the new values as outputs, "
                "jaxify(inputs, [*outputs, *updates.values()]), and pass them back in as inputs."
            )
        given, concrete = self._arguments.bind(args, kwargs)
        if self.program.shared:
            given = (*given, *self._shared_values(concrete))
        static = self._static
        if not concrete:
            # Under a transformation the caller's numbers are often steps of a loop, and a loop of a
            # known number of steps can be differentiated.
            static = static | {k for k in self._counts if not is_traced(given[k])}
        while True:
            try:
                if not static:
                    return self._compiled(*given)
                return self._call_static(given, static)
            except NeedsStatic as need:
                self._make_static(need, given, static)
                static = static | need.positions

    def _shared_values(self, concrete: bool) -> list[Any]:
        values = [s.value for s in self.program.shared]
        if not concrete:
            # A trace of the caller's keeps what it captures; PyTensor changes these arrays in place.
            return [np.array(x) for x in values]
        return values

    def _make_static(self, need: NeedsStatic, given: Any, static: frozenset[int]) -> None:
        """Add inputs to the static ones; refuse where there is no value to use.

        ``static`` are those of this call: another thread may have added more meanwhile.
        """
        new = need.positions - static
        names = self._arguments.names
        traced = sorted(k for k in need.positions if is_traced(given[k]))
        if traced or not new:
            listed = ", ".join(
                f"{names[k]!r} (argument {k})" for k in traced or sorted(need.positions)
            )
            numbers = tuple(traced or sorted(need.positions))
            raise DynamicShapeError(
                f"{need.reason}. That value follows from {listed}, of which only a tracer arrives "
                "here, so a shape, length or index cannot be known. Outside of a transformation "
                f"loopax makes such inputs static by itself; under one, pass them as Python values: "
                f"jax.jit(f, static_argnums={numbers}), or functools.partial(f, {names[numbers[0]]}=...)."
            ) from None
        with TRACING:
            self._static |= new

    def _call_static(self, given: Any, static: frozenset[int]) -> Any:
        traced = [k for k in sorted(static) if is_traced(given[k])]
        if traced:
            self._make_static(
                NeedsStatic(frozenset(traced), f"{self.program.name} makes a shape of an input"),
                given,
                static,
            )
        values = {k: jax.tree.map(np.asarray, given[k]) for k in sorted(static)}
        leaves, tree = jax.tree.flatten(values)
        key = (tree, *((x.dtype.str, x.shape, x.tobytes()) for x in leaves))
        with TRACING:
            if key not in self._variants:
                self._warn_of_recompiling(values)
                self._variants[key] = self._variant(tuple(values.items()))
                if len(self._variants) > _MOST_VARIANTS:
                    self._variants.popitem(last=False)
            self._variants.move_to_end(key)
            compiled = self._variants[key]
        return compiled(*[x for k, x in enumerate(given) if k not in static])

    def _warn_of_recompiling(self, values: dict[int, Any]) -> None:
        """Say once that an array of numbers is static, when it has changed for the first time."""

        def has_numbers(x: Any) -> bool:
            return any(leaf.dtype.kind in "fc" and leaf.size > 1 for leaf in jax.tree.leaves(x))

        arrays = [k for k, x in values.items() if has_numbers(x)]
        if arrays and len(self._variants) > 1 and not self._warned:
            self._warned = True
            names = ", ".join(repr(self._arguments.names[k]) for k in arrays)
            warnings.warn(
                f"{self.program.name} makes a shape of the values of {names}, with a mask or nonzero for "
                "instance, so it is compiled again for each new value. Use pt.where(mask, x, 0) or an "
                "array of fixed length.",
                stacklevel=4,
            )

    def _variant(self, static: tuple[tuple[int, Any], ...]) -> Any:
        """The program for given values of its static inputs, as a function of the others."""
        graph, build, context = self.program.graph, self.program.build, self._context
        positions = dict(static)
        rest = [k for k in range(len(graph.inputs)) if k not in positions]

        def program(*traced: Any) -> Any:
            given: list[Any] = [positions.get(k) for k in range(len(graph.inputs))]
            for k, x in zip(rest, traced, strict=True):
                given[k] = as_declared(x, graph.inputs[k])
            with TRACING:
                outs = run(context, graph, given, range(len(given)))
            return build([_as_output(x, v) for x, v in zip(outs, graph.outputs, strict=True)])

        program.__name__ = program.__qualname__ = self.program.name
        # Under the caller's own jit, JAX before 0.12 shows the program itself, not a call of it.
        return jax.jit(program, inline=True) if self._jit else program


def _as_output(x: Any, v: Any) -> Any:
    """An array; a list as a `StackedList` or, where its rows have unequal shapes, as a list of arrays."""
    if isinstance(v.type, TypedListType):
        found = jax.tree.map(jnp.asarray, as_list(x, v.type))
        return list(found) if isinstance(found, RaggedList) else found
    return as_declared(jnp.asarray(x), v) if hasattr(v.type, "dtype") else x
