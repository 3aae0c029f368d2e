"""``Variants``: one graph of a program, compiled once for each value of its static inputs."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.type import Type
from pytensor.tensor.type import TensorType, integer_dtypes

from loopax.base.errors import DynamicShapeError
from loopax.base.lock import TRACING
from loopax.ir.program import Program
from loopax.jax_backend.callable.variant import Variant
from loopax.jax_backend.staging.context import Context
from loopax.jax_backend.staging.frame import DiffersByRow, NeedsStatic
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.crossing import is_static
from loopax.jax_backend.values.generators import is_key

_MOST_VARIANTS = 128  # compiled programs kept, one for each value of the static inputs

Make = Callable[[Mapping[int, Any], bool, bool], Variant]


def contexts_of(
    program: Program, options: Mapping[str, Any], **more: Any
) -> dict[tuple[bool, bool], Context]:
    """Contexts, keyed by whether lengths are open and whether a call is direct; they share warnings."""
    direct = transformed = "raise" if program.has_flag else options["checks"]
    if direct == "auto":
        direct, transformed = "flag" if options["jit"] else "raise", "checkify"
    closed = Context(options["on_missing"], direct, parallel=options["parallel"], **more)
    return {
        (is_open, is_direct): replace(
            closed, open_lengths=is_open, checks=direct if is_direct else transformed
        )
        for is_open in (False, True)
        for is_direct in (False, True)
    }


class Variants:
    """A graph that finds out while JAX traces it which of its inputs must be static.

    Parameters
    ----------
    graph
        Its first inputs are the inputs of ``program``.
    names
        The names of its inputs, for messages.
    program
        The program that the graph belongs to.
    make
        Makes the variant for values of the static inputs, by position; for whether lengths may be open
        (under the caller's transformation, where rows of a batch differ, and in direct calls, where that
        works); and for whether it is for direct calls.
    contexts
        The contexts of ``make``, keyed by the same two flags.
    leaves_open
        Whether direct calls may leave lengths open.
    """

    def __init__(
        self,
        graph: FunctionGraph,
        names: Sequence[str],
        program: Program,
        make: Make,
        contexts: Mapping[tuple[bool, bool], Context],
        leaves_open: bool,
    ) -> None:
        self.graph, self.names, self.contexts = graph, names, contexts
        self._program, self._make = program, make
        self._leaves_open = leaves_open
        self._static = frozenset(k for k, v in enumerate(graph.inputs) if is_static(v.type))
        self._counts = frozenset(
            k for k, i in enumerate(program.inputs) if _is_integer(i.variable.type)
        )
        self._kept: OrderedDict[Any, Variant] = OrderedDict()
        self._without_static = make({}, False, True)
        self._open_lengths = False  # in direct calls, if the rows of a batch require them
        # For direct calls with these static inputs: whether lengths are left open, once known.
        self._opens: dict[frozenset[int], bool] = {}
        self._warned = False

    @property
    def plain(self) -> Any:
        """The compiled graph as a function of all inputs; None if one of them must be static, and
        before the first call.
        """
        first = self._without_static
        return first.compiled if first.has_run and not self._static else None

    @property
    def remarks(self) -> list[str]:
        """The engines that cached variants have used on the CPU, with reasons, if there was a choice."""
        variants = (self._without_static, *self._kept.values())
        return list(dict.fromkeys(remark for v in variants for remark in v.remarks))

    def __call__(
        self, args: Sequence[Any], concrete: bool, may_open: bool = True
    ) -> tuple[Any, Any, Any]:
        """The results, the next values of updated shared variables, and the flag of the checks.

        ``concrete`` says that no tracer is among ``args``. A length that depends on their values is left
        open if it has a bound, so that the graph is compiled once. Without ``may_open``, or if that does
        not work, the values are static.

        Raises `DynamicShapeError` if an input must be static, but is a tracer.
        """
        before = static = self._static
        may_open = may_open and concrete and self._leaves_open
        if not concrete:
            # Under a transformation the caller's integers are often numbers of steps, and a loop with a
            # known number of steps can be differentiated.
            static = frozenset(k for k in static | self._counts if not is_traced(args[k]))
        lasting = True
        while True:
            if may_open and self._opens.get(static, False):
                results = self._with_open_lengths(args, static)
                if results is not None:
                    return results
                may_open = False
            try:
                if not static and concrete and not self._open_lengths:
                    return self._without_static.run(args)
                return self._call_variant(args, static, concrete)
            except DiffersByRow:
                # A row of a batch is traced, so no argument can become static: the batch works as under
                # jit, or not at all.
                if not concrete or self._open_lengths:
                    raise
                with TRACING:
                    self._open_lengths, self._static = True, before
                static = before
            except (DynamicShapeError, NeedsStatic) as need:
                if may_open and self._opens.setdefault(static, True):
                    results = self._with_open_lengths(args, static)
                    if results is not None:
                        return results
                if isinstance(need, DynamicShapeError):  # it changes from step to step of a loop
                    raise
                # If calls work with open lengths, a further static input is static in this call alone.
                lasting = lasting and not self._opens.get(static, False)
                self._make_static(need, args, static, lasting)
                static = static | need.positions

    def _with_open_lengths(self, args: Sequence[Any], static: frozenset[int]) -> Any:
        """Call the graph with only these inputs static; None if that does not work.

        A failing call fails again with known lengths, and then says why. In a caller's trace, numbers that
        the caller passes are known, and so are lengths that depend on them.
        """
        try:
            results = self._call_variant(args, static, True, open_lengths=True)
            return None if any(map(is_traced, jax.tree.leaves(results))) else results
        except (NeedsStatic, DynamicShapeError):
            self._opens[static] = False
        except Exception:  # with known lengths the same arguments raise a better message
            pass
        return None

    def _call_variant(
        self,
        args: Sequence[Any],
        static: frozenset[int],
        concrete: bool,
        open_lengths: bool | None = None,
    ) -> tuple[Any, Any, Any]:
        values = {k: jax.tree.map(_known, args[k]) for k in sorted(static)}
        leaves, tree = jax.tree.flatten(values)
        if open_lengths is None:
            open_lengths = self._open_lengths or not concrete
        key = (concrete, open_lengths, tree, *map(_identity, leaves))
        with TRACING:
            if key not in self._kept:
                self._warn_of_recompiling(values)
                self._kept[key] = self._make(values, open_lengths, concrete)
                if len(self._kept) > _MOST_VARIANTS:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            variant = self._kept[key]
        traced = [x for k, x in enumerate(args) if k not in static]
        return variant.run(traced) if concrete else variant.compiled(*traced)

    def _make_static(
        self, need: NeedsStatic, args: Sequence[Any], static: frozenset[int], lasting: bool
    ) -> None:
        """Add inputs to the static ones; raise if one has no usable value.

        ``static`` are the static inputs of this call: another thread may have added more meanwhile. With
        ``lasting`` the inputs are static in later calls, too.
        """
        traced = sorted(k for k in need.positions if is_traced(args[k]))
        if traced or not need.positions - static:
            raise DynamicShapeError(need.refusal or self._refusal(need, traced)) from None
        if lasting:
            with TRACING:
                self._static |= need.positions

    def _refusal(self, need: NeedsStatic, traced: Sequence[int]) -> str:
        names = self.names
        numbers = tuple(traced or sorted(need.positions))
        of_program = len(self._program.inputs)
        kinds = [f"argument {k}" if k < of_program else "a shared variable" for k in numbers]
        listed = ", ".join(f"{names[k]!r} ({kind})" for k, kind in zip(numbers, kinds, strict=True))
        first = names[numbers[0]]
        if numbers[0] < of_program:
            fix = f"jax.jit(f, static_argnums={numbers}), or functools.partial(f, {first}=...)"
        else:
            fix = f"f.apply(context.set({first!r}, 3), ...) inside of it"
        return (
            f"{need.reason}. That value follows from {listed}, of which only a tracer arrives "
            "here, so a shape, length or index cannot be known. Outside of a transformation "
            f"loopax makes such inputs static by itself; under one, pass them as Python values: {fix}."
            f"{need.advice}"
        )

    def _warn_of_recompiling(self, values: Mapping[int, Any]) -> None:
        """Warn once that an array of numbers is static, when it changes for the first time."""
        arrays = [k for k, x in values.items() if k in self._static and _has_numbers(x)]
        direct = any(concrete and not is_open for concrete, is_open, *_ in self._kept)
        if arrays and direct and not self._warned:
            self._warned = True
            names = ", ".join(repr(self.names[k]) for k in arrays)
            warnings.warn(
                f"{self._program.name} makes a shape of the values of {names}, for example with a mask "
                "or nonzero, so it is compiled again for each new value. Use pt.where(mask, x, 0) or "
                "an array of fixed length.",
                stacklevel=4,
            )


def _is_integer(t: Type) -> bool:
    return isinstance(t, TensorType) and t.ndim == 0 and t.dtype in integer_dtypes


def _has_numbers(x: object) -> bool:
    arrays = [leaf for leaf in jax.tree.leaves(x) if isinstance(leaf, np.ndarray)]
    return any(a.dtype.kind in "fc" and a.size > 1 for a in arrays)


def _known(x: object) -> Any:
    """Convert a static value to the form that the program sees: NumPy; slices and keys are kept."""
    return x if isinstance(x, slice) or is_key(x) else np.asarray(x)


def _identity(x: object) -> Any:
    """A hashable key; equal static values have equal keys."""
    if isinstance(x, slice):
        return x.start, x.stop, x.step
    data = np.asarray(jax.random.key_data(x) if is_key(x) else x)
    return data.dtype.str, data.shape, data.tobytes()
