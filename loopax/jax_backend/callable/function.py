"""``JaxFunction``: a program as a JAX callable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from loopax.calling.context import SharedContext
from loopax.calling.function import ProgramFunction
from loopax.ir.program import EarlyPart, Program
from loopax.jax_backend.callable.arguments import JaxArguments, wait_for
from loopax.jax_backend.callable.call_errors import (
    failure_in,
    flagged_error,
    is_down,
    native_error,
    with_values,
)
from loopax.jax_backend.callable.forms import LOOPS
from loopax.jax_backend.callable.looking import Looking
from loopax.jax_backend.callable.shared_values import EarlyValues, SharedValues
from loopax.jax_backend.callable.stages import Stages
from loopax.jax_backend.callable.support import unsupported_ops
from loopax.jax_backend.callable.variant import SUSPECT, Variant
from loopax.jax_backend.callable.variants import Variants, contexts_of
from loopax.jax_backend.staging.callback import refusal
from loopax.jax_backend.staging.frame import CHECKS, PARALLEL, Context
from loopax.jax_backend.staging.legal import IllegalLengths
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import trimmed
from loopax.lowering import OPTIMIZERS, PASSES, passes_with, run_passes
from loopax.lowering.early_part import early_part, early_part_as_read
from loopax.lowering.finiteness import Finiteness


class JaxFunction(Stages, ProgramFunction):
    """A pure function of JAX arrays, made by `loopax.jaxify`.

    It takes the program's inputs by position or by name and returns the program's outputs, in their
    structure. ``jax.jit``, ``grad``, ``value_and_grad``, ``vmap``, ``jvp``, ``hessian``, ``make_jaxpr``
    and ``jax.export.export`` take it as it is. A direct call is compiled by a ``jax.jit`` of its own.

    Shared variables are read at every direct call, and passed to the compiled program as arguments.
    Under the caller's own transformation, their values are captured when JAX traces.

    An input whose *value* sets a shape is detected at the first call and becomes static: the program is
    compiled once for each of its values. A tracer has no value, so for such an input it raises a
    `DynamicShapeError` that says what to do.

    A result may have a length that is known only when the program runs, for example the positions in a
    mask or the steps of a loop that stops. A direct call returns it as an array of the actual rows, and
    is compiled once if their number has a known bound. Under the caller's own transformation it is a
    `PaddedArray`.

    A direct call donates inputs as a jitted function with ``donate_argnums`` does. Under the caller's
    own transformation nothing is donated.

    Parameters
    ----------
    program
        A program in the IR, lowered.
    jit
        Whether a direct call is compiled.
    on_missing
        ``"callback"`` or ``"raise"``: the treatment of ops without a JAX conversion.
    checks
        One of `CHECKS`: the treatment of assertions about traced values. With ``"nan"`` they raise, and
        so does a value that is not finite; the program has a flag for that.
    loops
        One of `LOOPS`: whether the program is native code on the CPU, if possible.
    parallel
        One of `PARALLEL`: whether its loops take all steps at once, if possible.
    optimize
        One of `loopax.lowering.OPTIMIZERS`: the optimizer of the program, and of its native code.
    """

    # What is compiled, and what does not pickle. JAX copies the ``__dict__`` of a function to what
    # `jax.grad` and the other transformations make of it, and cloudpickle writes that: these must not be
    # in it.
    __slots__ = (
        "_arguments",
        "_checking",
        "_contexts",
        "_donated",
        "_early",
        "_failures",
        "_finiteness",
        "_part",
        "_rest",
        "_shared",
        "_short",
        "_whole",
    )

    backend_name = "jax"

    def __init__(
        self,
        program: Program,
        *,
        jit: bool = True,
        on_missing: str = "callback",
        checks: str = CHECKS[0],
        loops: str = LOOPS[0],
        parallel: bool | str = PARALLEL[0],
        optimize: str = OPTIMIZERS[0],
    ) -> None:
        if on_missing not in ("callback", "raise"):
            raise ValueError(f"on_missing must be 'callback' or 'raise', got {on_missing!r}")
        if lines := unsupported_ops(program.graph, on_missing):
            raise refusal(lines)
        self.program = program
        self._options: dict[str, Any] = {
            "jit": jit,
            "on_missing": on_missing,
            "checks": checks,
            "loops": loops,
            "parallel": parallel,
            "optimize": optimize,
        }
        self._prepare()

    @property
    def options(self) -> dict[str, Any]:
        return dict(self._options)

    @property
    def remarks(self) -> list[str]:
        """The forms in which it ran in the calls so far, and why, if there was a choice."""
        forms = [self._whole] if self._rest is None else [self._whole, self._rest]
        context = self._contexts[False, True]
        return [*(line for form in forms for line in form.remarks), *context.remarks]

    def _prepare(self) -> None:
        self._arguments = JaxArguments(self.program)
        inputs = enumerate(self.program.inputs)
        looks = self.program.has_flag  # and is called again where a value is not finite
        self._donated = frozenset(k for k, i in inputs if i.donated and not looks)
        self._finiteness: Finiteness | None = None
        self._contexts = contexts_of(self.program, self._options)
        self._failures = self._contexts[False, True].failures
        self._checking: dict[Variants, Variants] = {}  # with checks of indices, by the form without
        self._whole = self._variants(
            self.program.graph, self._arguments.names, self.program.as_read
        )
        self._rest = self._without_early_part()
        # What a call with arrays that fit comes down to: 1.5 us less than the whole way, of 8. It may find
        # that something fails, and be done once more, for which donated arguments would be gone.
        short = not (self.program.shared or self.program.updates or self._donated)
        self._short = self._whole if short else None
        self._shared = SharedValues(self.program, self._arguments.shared_labels)
        self._describe(self._arguments)

    def __getstate__(self) -> dict[str, Any]:
        return {"program": self.program, "_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        short = self._short
        if (
            short is not None
            and (compiled := short.plain) is not None
            and not kwargs
            and self._arguments.fit(args)
        ):
            try:
                outputs, _, flag = compiled(*args)
                if self._failures:  # that something may fail is found out by tracing it
                    wait_for((outputs,))
                if flag is None or is_down(flag):
                    return trimmed(outputs)
            except Exception:  # what fails is run once more, to say why
                pass
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A direct call, whatever it is given."""
        self._refuse_updates()
        values, concrete = self._arguments.bind(args, kwargs)
        form = self._whole
        if self.program.shared:
            rest, part = self._rest, self._part
            kept = self._early.now() if rest is not None else None
            if rest is None or part is None or kept is None:
                values = (*values, *self._shared.at(range(len(self.program.shared)), concrete))
            else:
                form = rest
                values = (*values, *self._shared.at(part.left, concrete), *kept)
        return self._run(form, values, concrete)[0]

    def apply(
        self, context: SharedContext | None = None, /, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """The pure form of a call: ``context, out = f.apply(context, *inputs)``.

        Shared variables are read from ``context``, and the context returned has their next values.
        ``jax.jit``, ``grad`` and ``vmap`` take this form of a program with state, and ``jax.lax.scan``
        takes it as a body, with the context as the carry.

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
        context = self._own_context(context)
        inputs, concrete = self._arguments.bind(args, kwargs)
        values = context.read(self.program)
        concrete = concrete and not any(map(is_traced, values))
        out, new = self._run(self._whole, (*inputs, *values), concrete)
        return context.written(self.program, new), out

    @property
    def early_part(self) -> EarlyPart | None:
        return self._part

    def _without_early_part(self) -> Variants | None:
        """The program but for the part that follows from shared variables alone, if it has one."""
        if self.program.has_flag:  # where it is up the whole runs once more, of all values
            self._part = None
            return None
        divided = early_part_as_read if self._may_be_native else early_part
        part = self._part = divided(self.program)
        if part is None:
            return None
        names = self._arguments.names
        n = len(self.program.inputs)
        left = [names[n + k] for k in part.left]
        early = f"what follows from {' and '.join(names[n + k] for k in part.reads)}"
        count = len(part.rest.inputs) - n - len(left)
        self._early = EarlyValues(self.program, part)
        names = [*names[:n], *left, *[early] * count]
        if not self._may_be_native:
            return self._variants(part.rest, names)
        graph = part.rest.clone()
        run_passes(graph, passes_with(self._options["optimize"], PASSES))
        return self._variants(graph, names, (part.rest.inputs, part.rest.outputs))

    @property
    def _may_be_native(self) -> bool:
        return self._options["loops"] != "xla" and self.program.as_read is not None

    def _run(
        self, form: Variants, values: tuple[Any, ...], concrete: bool, may_open: bool = True
    ) -> tuple[Any, Any]:
        """The results of the program, and the next values of the shared variables that it updates.

        Of a direct call a `PaddedArray` is an array of the rows that there are.
        """
        if not concrete:
            return form(values, concrete)[:2]
        try:
            *results, flag = form(values, concrete, may_open)
            if self._options["checks"] == "raise" or self._failures:
                # JAX does not wait for what it computes, and so would raise where that is looked at.
                wait_for(results)
        except Exception as error:
            failure = failure_in(str(error), self._failures)
            failure = failure or native_error(error, self._as_written(form), values)
            if failure is None:
                raise
            raise failure from None
        if flag is None or is_down(flag):
            return tuple(map(trimmed, results))
        if self.program.has_flag and not is_traced(flag):
            raise self._looked_for.error(lambda f: f._run(f._whole, values, True)[0])
        if is_traced(flag):  # all that is computed in a trace of the caller's is part of it
            return form(values, False)[:2]
        if int(flag) == SUSPECT:
            if (outside := self._index_error(form, values)) is not None:
                raise outside
            return tuple(map(trimmed, results))
        failure = flagged_error(flag, self._contexts[False, True])
        if not isinstance(failure, IllegalLengths):
            raise failure
        if may_open:
            return self._run(form, values, concrete, may_open=False)
        return tuple(map(trimmed, results))  # of rows that differ: no numbers

    @property
    def _looked_for(self) -> Finiteness:
        """The report on which value is not finite, where the flag of a call is up."""
        if self._finiteness is None:
            options = {**self._options, "checks": "ignore"}
            passes = passes_with(self._options["optimize"], PASSES)
            self._finiteness = Finiteness.of(self.program, passes, partial(JaxFunction, **options))
        return self._finiteness

    def _looking(self) -> Looking:
        def report(args: Sequence[Any]) -> Any:
            f = self._looked_for.function
            return f._run(f._whole, tuple(args), False)[0]

        return Looking(
            report,
            lambda reports: self._looked_for.error_of(reports),
            self.program.name,
            self._arguments.names,
        )

    def _index_error(self, form: Variants, values: tuple[Any, ...]) -> Exception | None:
        """The error of an index out of range in a call that has run; None where there is none.

        The program runs once more, with checks of its indices. Only a result that is no number leads here,
        so that these cost nothing elsewhere.
        """
        if self._donated:  # what it was given is gone
            return None
        if form not in self._checking:
            self._checking[form] = self._variants(
                form.graph,
                form.names,
                contexts=contexts_of(self.program, self._options, checks_indices=True),
            )
        checking = self._checking[form]
        *_, flag = checking(values, True, may_open=False)
        if flag is None or int(flag) < 0:
            return None
        error = flagged_error(flag, checking.contexts[False, True])
        graph = self._as_written(form)
        return with_values(type(error), "index is out of bounds", graph, values, str(error))

    def _as_written(self, form: Variants) -> FunctionGraph:
        """The graph of a form, with the user's lines if it is the whole program."""
        if form is self._whole and self.program.as_read is not None:
            return FunctionGraph(*self.program.as_read, clone=False)
        return form.graph

    def _variants(
        self,
        graph: FunctionGraph,
        names: Sequence[str],
        as_read: tuple[list[Variable], list[Variable]] | None = None,
        contexts: Mapping[tuple[bool, bool], Context] | None = None,
    ) -> Variants:
        """A graph as compiled functions, in these contexts; see `Variant` for ``as_read``."""
        contexts = contexts or self._contexts

        def make(static: Mapping[int, Any], is_open: bool, is_direct: bool) -> Variant:
            context = contexts[is_open, is_direct]
            how = self._options["loops"], self._options["optimize"], self._options["jit"]
            # An eager `jax.grad` or `jvp` calls what it transforms with arrays that the caller still has.
            donated = frozenset() if is_open else self._donated
            looking = self._looking() if self.program.has_flag and not is_direct else None
            return Variant(
                self.program, graph, static, context, *how, as_read, donated, looking, is_direct
            )

        # Where lengths do not fit one another a direct call is told by a flag, and done once more: donated
        # arrays would be gone.
        leaves_open = contexts[True, True].checks == "flag" and not self._donated
        return Variants(graph, names, self.program, make, contexts, leaves_open)
