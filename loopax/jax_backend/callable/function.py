"""``JaxFunction``: a program as a JAX callable."""

from __future__ import annotations

from typing import Any

from loopax.calling.context import SharedContext
from loopax.calling.function import ProgramFunction
from loopax.ir.program import EarlyPart, Program
from loopax.jax_backend.callable.arguments import JaxArguments, wait_for
from loopax.jax_backend.callable.call_errors import is_down
from loopax.jax_backend.callable.execution import Execution
from loopax.jax_backend.callable.forms import LOOPS
from loopax.jax_backend.callable.residual import Residual
from loopax.jax_backend.callable.shared_values import SharedValues
from loopax.jax_backend.callable.stages import Stages
from loopax.jax_backend.callable.support import unsupported_ops
from loopax.jax_backend.staging.callback import refusal
from loopax.jax_backend.staging.context import CHECKS, PARALLEL
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import trimmed
from loopax.lowering import OPTIMIZERS


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

    # Slots for what is compiled or does not pickle. JAX copies the ``__dict__`` of a function to the result
    # of `jax.grad` and other transformations, and cloudpickle writes it: these must not be in it.
    __slots__ = ("_arguments", "_execution", "_residual", "_shared", "_short")

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
        """The form in which the program ran in each call so far, and the reason, if there was a choice."""
        forms = [self._execution.whole]
        if self._residual is not None:
            forms.append(self._residual.form)
        return [*(line for form in forms for line in form.remarks), *self._execution.remarks]

    def _prepare(self) -> None:
        self._arguments = JaxArguments(self.program)
        self._execution = Execution(self.program, self._options, self._arguments.names)
        self._residual = Residual.of(self._execution)
        # The fast path of a call with matching arrays: 1.5 us less, of 8. If it fails the call runs again
        # on the general path, for which donated arguments would no longer exist.
        short = not (self.program.shared or self.program.updates or self._execution.donated)
        self._short = self._execution.whole if short else None
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
                if self._execution.failures:  # tracing finds out whether something may fail
                    wait_for((outputs,))
                if flag is None or is_down(flag):
                    return trimmed(outputs)
            except Exception:  # the general path runs it again, and says why
                pass
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a direct call with arbitrary arguments."""
        self._refuse_updates()
        values, concrete = self._arguments.bind(args, kwargs)
        form = self._execution.whole
        if self.program.shared:
            residual = self._residual
            behind = None if residual is None else residual.arguments(self._shared, concrete)
            if residual is not None and behind is not None:
                form = residual.form
            else:
                behind = self._shared.at(range(len(self.program.shared)), concrete)
            values = (*values, *behind)
        return self._execution.run(form, values, concrete)[0]

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
        out, new = self._execution.run(self._execution.whole, (*inputs, *values), concrete)
        return context.written(self.program, new), out

    @property
    def early_part(self) -> EarlyPart | None:
        return None if self._residual is None else self._residual.part
