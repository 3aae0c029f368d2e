"""``JaxFunction``: a program as a JAX callable."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import TensorType, integer_dtypes

from loopax.calling.function import ProgramFunction
from loopax.calling.kept import Kept, KeptValues
from loopax.ir.errors import DynamicShapeError
from loopax.ir.lock import TRACING
from loopax.ir.program import Program
from loopax.jax_backend.callable.arguments import JaxArguments
from loopax.jax_backend.callable.context import JaxContext
from loopax.jax_backend.callable.stages import Stages
from loopax.jax_backend.callable.support import unsupported_ops
from loopax.jax_backend.callable.variant import Variant
from loopax.jax_backend.kernels.choice import LOOPS
from loopax.jax_backend.staging.callback import refusal
from loopax.jax_backend.staging.frame import CHECKS, Context, NeedsStatic
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.crossing import accept, current, is_static
from loopax.jax_backend.values.generators import is_key
from loopax.lowering.early_part import early_part


@dataclass(frozen=True, eq=False)
class _Form:
    """A graph that is run, and the names of its inputs."""

    graph: FunctionGraph
    names: tuple[str, ...]


_MOST_VARIANTS = 128  # compiled programs kept, one for each value of the static inputs


class JaxFunction(Stages, ProgramFunction):
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
    checks
        One of `CHECKS`: what becomes of assertions about values that are traced.
    loops
        One of `LOOPS`: whether the program is native code on the CPU, where it can be.
    """

    backend_name = "jax"

    def __init__(
        self,
        program: Program,
        *,
        jit: bool = True,
        on_missing: str = "callback",
        checks: str = CHECKS[0],
        loops: str = LOOPS[0],
    ) -> None:
        if on_missing not in ("callback", "raise"):
            raise ValueError(f"on_missing must be 'callback' or 'raise', got {on_missing!r}")
        if lines := unsupported_ops(program.graph, on_missing):
            raise refusal(lines)
        self.program = program
        self._jit = jit
        self._on_missing = on_missing
        self._checks = checks
        self._loops = loops
        self._prepare()

    @property
    def options(self) -> dict[str, Any]:
        return {
            "jit": self._jit,
            "on_missing": self._on_missing,
            "checks": self._checks,
            "loops": self._loops,
        }

    @property
    def remarks(self) -> list[str]:
        """What it ran as on the CPU in the calls so far, and why, where there was a choice."""
        return list(dict.fromkeys(said for one in self._evaluated for said in one.remarks))

    def _prepare(self) -> None:
        self._arguments = JaxArguments(self.program)
        closed = Context(self._on_missing, self._checks)
        self._contexts = [closed, replace(closed, open_lengths=True)]  # they warn once, together
        self._static = {
            form: frozenset(k for k, v in enumerate(form.graph.inputs) if is_static(v.type))
            for form in self._forms()
        }
        self._counts = [
            k
            for k, i in enumerate(self.program.inputs)
            if isinstance(i.variable.type, TensorType)
            and (i.variable.type.ndim == 0 and i.variable.type.dtype in integer_dtypes)
        ]
        self._variants: OrderedDict[Any, Any] = OrderedDict()
        self._evaluated: list[Variant] = []
        self._compiled = {form: self._variant(form, ()) for form in self._static}
        # What a call with arrays that fit comes down to: 1.5 us less than the whole way, of 8.
        plain = not (self.program.shared or self.program.updates or self._static[self._whole])
        self._short = self._compiled[self._whole] if plain and self._checks != "raise" else None
        self._all = range(len(self.program.shared))
        self._devices = {
            k: self._kept_on_device(k)
            for k, s in enumerate(self.program.shared)
            if isinstance(s.variable.type, TensorType)
        }
        self._warned = False
        self._describe(self._arguments)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("program", "_jit", "_on_missing", "_checks", "_loops")
        return {k: self.__dict__[k] for k in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        short = self._short
        if short is not None and not kwargs and self._arguments.fit(args):
            try:
                return short(*args)[0]
            except NeedsStatic:
                pass
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A direct call, whatever it is given."""
        self._refuse_updates()
        given, concrete = self._arguments.bind(args, kwargs)
        form = self._whole
        if self.program.shared:
            kept = self._kept() if self._rest is not None else None
            if kept is None:
                given = (*given, *self._shared_values(self._all, concrete))
            else:
                form = self._rest
                given = (*given, *self._shared_values(self._left, concrete), *kept)
        return self._run(form, given, concrete)[0]

    def apply(self, context: JaxContext, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The pure form of a call: ``context, out = f.apply(context, *inputs)``.

        Shared variables are read from ``context``, and the context returned has their next values. It
        is what ``jax.jit``, ``grad`` and ``vmap`` take where a program keeps something, and
        ``jax.lax.scan`` takes it as a body, with the context as the carry.

        Raises
        ------
        StatefulFunctionError
            The context lacks a value that the program needs.
        LoopTypeError
            A value or an argument has another type than its variable.

        Examples
        --------
        >>> import jax, numpy as np, pytensor, pytensor.tensor as pt
        >>> from loopax import jaxify
        >>> x, total = pt.dscalar("x"), pytensor.shared(np.float64(0.0), name="total")
        >>> f = jaxify([x], total, updates={total: total + x})
        >>> ctx, before = jax.lax.scan(f.apply, f.init_context(), np.arange(3.0))
        >>> ctx["total"], before
        (Array(3., dtype=float64), Array([0., 0., 1.], dtype=float64))
        """
        given, concrete = self._arguments.bind(args, kwargs)
        self._refuse_context(context)
        values = context.read(self.program)
        concrete = concrete and not any(map(is_traced, values))
        out, new = self._run(self._whole, (*given, *values), concrete)
        return context.written(self.program, new), out

    def _forms(self) -> list[_Form]:
        """The program as a whole; and without the part that follows from shared variables alone."""
        names = tuple(self._arguments.names)
        self._whole, self._rest = _Form(self.program.graph, names), None
        part = early_part(self.program) if self._loops != "native" else None
        if part is None:
            return [self._whole]
        n = len(self.program.inputs)
        left = [names[n + k] for k in part.left]
        of = " and ".join(names[n + k] for k in part.reads)
        count = len(part.rest.inputs) - n - len(left)
        self._rest = _Form(part.rest, (*names[:n], *left, *[f"what follows from {of}"] * count))
        self._left, self._reads = part.left, part.reads
        self._early = KeptValues(part.early, _on_device)
        return [self._whole, self._rest]

    def _kept(self) -> Any:
        """The values that follow from the shared variables as they are, or None where there are none."""
        arrays = [self.program.shared[k].value for k in self._reads]
        if not all(isinstance(x, np.ndarray) for x in arrays) or not jax.config.jax_enable_x64:
            return None
        return self._early(arrays)

    def _run(self, form: _Form, given: tuple[Any, ...], concrete: bool) -> tuple[Any, Any]:
        """What the program returns, and the next values of what it updates."""
        if self._checks != "raise" or not concrete:
            return self._results(form, given, concrete)
        try:  # JAX does not wait for what it computes, and so would raise where that is looked at
            return jax.block_until_ready(self._results(form, given, concrete))
        except Exception as error:
            said = str(error)
            failures = [f for f in self._contexts[0].failures if str(f) in said]
            if not failures:
                raise
            # One message may be the beginning of another.
            raise max(failures, key=lambda f: len(f.message)).error() from None

    def _results(self, form: _Form, given: tuple[Any, ...], concrete: bool) -> tuple[Any, Any]:
        static = self._static[form]
        if not concrete:
            # Under a transformation the caller's numbers are often steps of a loop, and a loop of a
            # known number of steps can be differentiated.
            known = {*static, *self._counts}
            static = frozenset(k for k in known if not is_traced(given[k]))
        while True:
            try:
                if not static and concrete:
                    return self._compiled[form](*given)
                return self._call_variant(form, given, static, concrete)
            except NeedsStatic as need:
                self._make_static(form, need, given, static)
                static = static | need.positions

    def _shared_values(self, positions: Iterable[int], concrete: bool) -> list[Any]:
        """What shared variables hold now. Of arrays, what a direct call reads stays on the device."""
        shared, whats = self.program.shared, self._arguments.shared_whats
        keeps = concrete and jax.config.jax_enable_x64
        values = []
        for k in positions:
            x = shared[k].value
            if keeps and type(x) is np.ndarray and k in self._devices:
                values.append(self._devices[k]([x]))
            else:
                values.append(current(x, shared[k].variable.type, whats[k]))
        return values

    def _kept_on_device(self, k: int) -> Kept:
        """The value of shared variable ``k`` on the device, made anew where it has changed."""
        held, what = self.program.shared[k].variable.type, self._arguments.shared_whats[k]

        def make(copies: list[np.ndarray]) -> Any:
            with jax.ensure_compile_time_eval():
                return jnp.asarray(accept(copies[0], held, what))

        return Kept(make)

    def _make_static(
        self, form: _Form, need: NeedsStatic, given: Any, static: frozenset[int]
    ) -> None:
        """Add inputs to the static ones; refuse where there is no value to use.

        ``static`` are those of this call: another thread may have added more meanwhile.
        """
        new = need.positions - static
        names = form.names
        traced = sorted(k for k in need.positions if is_traced(given[k]))
        if (traced or not new) and need.refusal:
            raise DynamicShapeError(need.refusal) from None
        if traced or not new:
            listed = ", ".join(
                f"{names[k]!r} ({self._arguments.kind(k)})"
                for k in traced or sorted(need.positions)
            )
            numbers = tuple(traced or sorted(need.positions))
            if numbers[0] < len(self.program.inputs):
                fix = (
                    f"jax.jit(f, static_argnums={numbers}), or "
                    f"functools.partial(f, {names[numbers[0]]}=...)"
                )
            else:
                fix = f"f.apply(context.set({names[numbers[0]]!r}, 3), ...) inside of it"
            raise DynamicShapeError(
                f"{need.reason}. That value follows from {listed}, of which only a tracer arrives "
                "here, so a shape, length or index cannot be known. Outside of a transformation "
                f"loopax makes such inputs static by itself; under one, pass them as Python values: {fix}."
            ) from None
        with TRACING:
            self._static[form] |= new
            self._short = None

    def _call_variant(self, form: _Form, given: Any, static: frozenset[int], concrete: bool) -> Any:
        values = {k: jax.tree.map(_known, given[k]) for k in sorted(static)}
        leaves, tree = jax.tree.flatten(values)
        key = (concrete, form is self._whole, tree, *map(_identity, leaves))
        with TRACING:
            if key not in self._variants:
                self._warn_of_recompiling(form, values)
                self._variants[key] = self._variant(form, tuple(values.items()), not concrete)
                if len(self._variants) > _MOST_VARIANTS:
                    self._variants.popitem(last=False)
            self._variants.move_to_end(key)
            compiled = self._variants[key]
        return compiled(*[x for k, x in enumerate(given) if k not in static])

    def _warn_of_recompiling(self, form: _Form, values: dict[int, Any]) -> None:
        """Say once that an array of numbers is static, when it has changed for the first time."""

        def has_numbers(x: Any) -> bool:
            arrays = [leaf for leaf in jax.tree.leaves(x) if isinstance(leaf, np.ndarray)]
            return any(a.dtype.kind in "fc" and a.size > 1 for a in arrays)

        arrays = [k for k, x in values.items() if has_numbers(x)]
        direct = [key for key in self._variants if key[0]]
        if arrays and direct and not self._warned:
            self._warned = True
            names = ", ".join(repr(form.names[k]) for k in arrays)
            warnings.warn(
                f"{self.program.name} makes a shape of the values of {names}, with a mask or nonzero for "
                "instance, so it is compiled again for each new value. Use pt.where(mask, x, 0) or an "
                "array of fixed length.",
                stacklevel=4,
            )

    def _variant(
        self, form: _Form, static: tuple[tuple[int, Any], ...], open_lengths: bool = False
    ) -> Any:
        """The program for given values of its static inputs, as a function of the others."""
        build, n_returned = self.program.build, self.program.n_returned
        evaluate = Variant(
            form.graph,
            dict(static),
            self._contexts[open_lengths],
            self.program.name,
            self._loops if self._jit else "xla",
            self.program.as_read if form is self._whole else None,
        )

        self._evaluated.append(evaluate)

        def program(*traced: Any) -> Any:
            outs = evaluate(*traced)
            return build(outs[:n_returned]), tuple(outs[n_returned:])

        program.__name__ = program.__qualname__ = self.program.name
        # Under the caller's own jit, JAX before 0.12 shows the program itself, not a call of it.
        return jax.jit(program, inline=True) if self._jit else program


def _on_device(values: Any) -> list[Any]:
    """Values for the compiled program. They are made outside of whatever trace is under way."""
    with jax.ensure_compile_time_eval():
        return [jnp.array(x) for x in values]


def _known(x: Any) -> Any:
    """A static value as the program is to see it: NumPy; slices, and keys, as they are."""
    return x if isinstance(x, slice) or is_key(x) else np.asarray(x)


def _identity(x: Any) -> Any:
    """What two equal static values have in common, hashable."""
    if isinstance(x, slice):
        return x.start, x.stop, x.step
    data = np.asarray(jax.random.key_data(x) if is_key(x) else x)
    return data.dtype.str, data.shape, data.tobytes()
