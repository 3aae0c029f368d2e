"""``NumbaFunction``: a program as a function of NumPy arrays, compiled by Numba."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from pytensor.graph.fg import FunctionGraph

from loopax.base.lock import TRACING
from loopax.base.uninterrupted import import_uninterrupted
from loopax.calling.arguments import Arguments
from loopax.calling.backend import backend_named
from loopax.calling.function import ProgramFunction
from loopax.calling.kept import KeptValues
from loopax.ir.program import EarlyPart, Program
from loopax.lowering import NATIVE_PASSES, OPTIMIZERS, passes_with, run_passes
from loopax.lowering.early_part import early_part
from loopax.lowering.finiteness import Finiteness
from loopax.numba_backend.callable.crossing import TARGET

# What becomes of an ``Assert``: it raises. With "nan" so does what is not finite.
CHECKS = ("raise", "nan")


class NumbaFunction(ProgramFunction):
    """A function of NumPy arrays that runs as one native function, made by `loopax.jaxify`.

    It takes the program's inputs by position or by name and returns what the program returns, in its
    structure, in new arrays; a tensor without axes is a 0-d array. It changes nothing that it is given:
    of a generator, the next state is in the result, if the program returns it. Shared variables are
    read at every call. `loopax.grad`, `value_and_grad` and `vmap` take it, and threads may call it.

    The program is written when the function is made, so that errors come there, and compiled at the
    first call. A pickled one is compiled again.

    Parameters
    ----------
    program
        In the IR, lowered to loops.
    on_missing
        ``"callback"`` or ``"raise"``: what becomes of ops without a conversion to Numba.
    checks
        One of `CHECKS`: ``"nan"`` raises where a state, a row of a trace or an output is not finite; the
        program has a flag for that.
    optimize
        One of `loopax.lowering.OPTIMIZERS`: what its passes were, and those of its derivatives are.

    Raises
    ------
    UnsupportedOpError
        The program has ops or types that cannot be written; all of them are listed.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax import jaxify
    >>> x = pt.dvector("x")
    >>> f = jaxify([x], {"size": x.size, "total": x.sum()}, backend="numba")
    >>> f([1.0, 2.0])
    {'size': array(2), 'total': array(3.)}
    """

    # An attribute of each function, where the class would have a method: Python finds it without one
    # call more, and the checks of `entry` may take no longer than that.
    __slots__ = ("__call__",)

    backend_name = "numba"

    if TYPE_CHECKING:
        __call__: Callable[..., Any]

    def __init__(
        self,
        program: Program,
        *,
        on_missing: str = "callback",
        checks: str = CHECKS[0],
        optimize: str = OPTIMIZERS[0],
    ) -> None:
        self.program = program
        self.on_missing = on_missing
        self.checks = checks
        self.optimize = optimize
        self._prepare()

    def _prepare(self) -> None:
        program = import_uninterrupted("loopax.numba_backend.callable.program")  # and Numba
        arguments = self._arguments = Arguments(self.program, TARGET)
        self._of_all: Any = None
        self._compiled: Any = None
        with TRACING:
            part = self._part = early_part(self.program)
            graph = self.program.graph if part is None else part.rest
            self._native = program.compile_program(graph, on_missing=self.on_missing)
        if part is None:
            self._of_all = self._native.entry([*arguments.whats, *arguments.shared_whats])
        else:
            self._early = KeptValues(part.early, _in_order)
            self._rest = self._native.entry(self._whats())
        self.__call__ = self._refuse if self.program.updates else self._direct()
        self._describe(arguments)

    @property
    def early_part(self) -> EarlyPart | None:
        return self._part

    @property
    def options(self) -> dict[str, Any]:
        return {"on_missing": self.on_missing, "checks": self.checks, "optimize": self.optimize}

    @property
    def source(self) -> str:
        """The program as text: Python, as Numba compiles it.

        It is written anew for small lengths that its loops use, at the first call with them; then this is
        what was written last.
        """
        return self._native.source

    @property
    def compiled(self) -> Any:
        """The native function itself, made by Numba, for native code of yours to call.

        It takes an array for each input and then for each shared variable, 0-d ones as arrays too, and
        does not look whether they fit. It returns a tuple: all arrays that the program returns, without
        their structure, in the order of ``jax.tree.leaves``, and then the next values of what it updates.

        Examples
        --------
        >>> import numba, numpy as np, pytensor.tensor as pt
        >>> from loopax import jaxify
        >>> x = pt.dvector("x")
        >>> square = jaxify([x], {"value": (x**2).sum()}, backend="numba").compiled
        >>> @numba.njit
        ... def total(rows):
        ...     result = 0.0
        ...     for row in rows:
        ...         (value,) = square(row)
        ...         result += value.item()
        ...     return result
        >>> total(np.eye(3))
        3.0
        """
        from loopax.numba_backend.callable.array_function import compiled_array_function

        with TRACING:
            if self._compiled is None:
                graph = self.program.graph
                if self.program.has_flag:  # who calls it would have to know what the flag is
                    graph = FunctionGraph(graph.inputs, graph.outputs[:-1], clone=True)
                self._compiled = compiled_array_function(graph, self.__name__)
        return self._compiled

    def apply(self, context: Any = None, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The pure form of a call: ``context, out = f.apply(context, *inputs)``.

        Shared variables are read from ``context``, and the context returned has their next values.

        Raises
        ------
        StatefulFunctionError
            The context lacks a value that the program needs.
        LoopTypeError
            A value or an argument has another type than its variable.

        Examples
        --------
        >>> import numpy as np, pytensor, pytensor.tensor as pt
        >>> from loopax import jaxify
        >>> x, total = pt.dscalar("x"), pytensor.shared(np.float64(0.0), name="total")
        >>> f = jaxify([x], total, updates={total: total + x}, backend="numba")
        >>> ctx, before = f.apply(f.init_context(), 2.0)
        >>> ctx["total"], before
        (array(2.), array(0.))
        """
        context = self._own_context(context)
        if kwargs or len(args) != len(self.program.inputs):
            args = self._arguments.in_order(args, kwargs)
        values = context.read(self.program)
        kept = self._kept(values)
        if kept is None:
            outs = self._whole(*args, *values)
        else:
            outs = self._rest(*args, *(values[k] for k in self._part.left), *kept)
        if self.program.has_flag:
            if outs.pop():
                raise self._finiteness.error(lambda f: f.apply(context, *args)[1])
        n = self.program.n_returned
        return context.written(self.program, outs[n:]), self.program.build(outs[:n])

    def as_jax(self) -> Any:
        """The program for JAX, whose transformations take it; it stays native on the CPU.

        Elsewhere, and where JAX has no native form of it, it is JAX's operations; see `loopax.jaxify`.

        Returns
        -------
        A `JaxFunction`.

        Raises
        ------
        UnsupportedOpError
            With ``on_missing="raise"``: an op of the program has no conversion to JAX.

        Examples
        --------
        >>> import jax, numpy as np, pytensor.tensor as pt
        >>> from loopax import jaxify
        >>> x = pt.dvector("x")
        >>> native = jaxify([x], (x**2).sum(), backend="numba")
        >>> jax.grad(native.as_jax())(np.array([1.0, 2.0])).tolist()
        [2.0, 4.0]
        """
        backend = backend_named("jax")
        program = self.program.before_passes()
        with TRACING:
            run_passes(program.graph, passes_with(self.optimize, backend.passes))
            asked = {"checks": self.checks, "loops": "native", "optimize": self.optimize}
            options = backend.options(True, self.on_missing, **asked)
            return backend.function(program, **options)

    def _whats(self) -> list[str]:
        """What the inputs are of what is left when the part that follows from shared variables is known."""
        part, whats = self._part, self._arguments.shared_whats
        named = [*self._arguments.whats, *(whats[k] for k in part.left)]
        return [*named, *["What follows from shared variables"] * len(part.early.outputs)]

    def _direct(self) -> Any:
        """A call, of the arguments alone."""
        program, part = self.program, self._part
        options = {"in_order": self._arguments.in_order, "build": program.build}
        if program.has_flag:
            options["flagged"] = self._not_finite
        if part is None:
            whats = [*self._arguments.whats, *self._arguments.shared_whats]
            return self._native.entry(whats, cells=[s.storage for s in program.shared], **options)

        def whole(*args: Any) -> Any:
            outs = self._whole(*args, *(s.value for s in program.shared))
            if program.has_flag and outs.pop():
                raise self._not_finite(args)
            return program.build(outs)

        return self._native.entry(
            self._whats(),
            cells=[program.shared[k].storage for k in part.left],
            kept=lambda: self._kept([s.value for s in program.shared]),
            count=len(part.early.outputs),
            whole=whole,
            **options,
        )

    def _kept(self, shared: Sequence[Any]) -> Any:
        """What follows from these values of the shared variables; None where it is to be computed anew."""
        if self._part is None:
            return None
        arrays = [shared[k] for k in self._part.reads]
        return self._early(arrays) if all(isinstance(x, np.ndarray) for x in arrays) else None

    def _whole(self, *values: Any) -> Any:
        """The program of all inputs; written when it is needed first."""
        from loopax.numba_backend.callable.program import compile_program

        with TRACING:
            if self._of_all is None:
                program = compile_program(self.program.graph, on_missing=self.on_missing)
                whats = [*self._arguments.whats, *self._arguments.shared_whats]
                self._of_all = program.entry(whats)
        return self._of_all(*values)

    def _not_finite(self, args: Sequence[Any]) -> Exception:
        """What is raised where the flag of a call is up."""
        if self.error_in_rows is not None and (found := self.error_in_rows(args, {})) is not None:
            return found
        return self._finiteness.error(lambda f: f(*args))

    @cached_property
    def _finiteness(self) -> Finiteness:
        """What says, after a call whose flag is up, where that came from."""
        options = {"on_missing": self.on_missing, "optimize": self.optimize}
        return Finiteness.of(self.program, NATIVE_PASSES, partial(NumbaFunction, **options))

    def _refuse(self, *args: Any, **kwargs: Any) -> None:
        self._refuse_updates()

    def __getstate__(self) -> dict[str, Any]:
        return {"program": self.program, "error_in_rows": self.error_in_rows, **self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()


def _in_order(values: Sequence[Any]) -> list[Any]:
    """Arrays as `entry` passes them on without a copy."""
    return [np.array(x, order="C") for x in values]
