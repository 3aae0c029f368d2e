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
from loopax.calling.memo import MemoizedValues
from loopax.ir.program import EarlyPart, Program
from loopax.lowering import NATIVE_PASSES, OPTIMIZERS, passes_with, run_passes
from loopax.lowering.early_part import early_part
from loopax.lowering.finiteness import Finiteness
from loopax.numba_backend.callable.conversion import TARGET

# An ``Assert`` raises. With "nan" values that are not finite raise too.
CHECKS = ("raise", "nan")


class NumbaFunction(ProgramFunction):
    """A function of NumPy arrays that runs as one native function, made by `loopax.jaxify`.

    It takes the program's inputs by position or by name and returns the program's outputs, in their
    structure, in new arrays; a tensor without axes is a 0-d array. It does not change its arguments:
    the next state of a generator is in the result, if the program returns it. Shared variables are read
    at every call. `loopax.grad`, `value_and_grad` and `vmap` take it, and threads may call it.

    The source is written at construction, which raises all errors of conversion, and compiled at the
    first call. A function loaded by pickle takes its code from the cache on disk, or is compiled again.

    Parameters
    ----------
    program
        A program in the IR, lowered to loops.
    on_missing
        ``"callback"`` runs ops without a conversion to Numba as Python, ``"raise"`` refuses them.
    checks
        One of `CHECKS`: ``"nan"`` raises if a state, a row of a trace or an output is not finite; the
        program has a flag for that.
    optimize
        One of `loopax.lowering.OPTIMIZERS`: the optimizer of the program, and of its derivatives.

    Raises
    ------
    UnsupportedOpError
        The program has ops or types without a native form; all of them are listed.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax import jaxify
    >>> x = pt.dvector("x")
    >>> f = jaxify([x], {"size": x.size, "total": x.sum()}, backend="numba")
    >>> f([1.0, 2.0])
    {'size': array(2), 'total': array(3.)}
    """

    # An attribute of each function in place of a method of the class, which would cost one more call,
    # as long as all checks of `entry`.
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
        self._compiled: Any = None
        with TRACING:
            part = self._part = early_part(self.program)
            graph = self.program.graph if part is None else part.residual
            self._native = program.compile_program(graph, on_missing=self.on_missing)
        if part is not None:
            self._early = MemoizedValues(part.early, _in_order)
            self._residual = self._native.entry(self._labels(part))
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
        """The program as text: the Python source that Numba compiles.

        loopax writes it again at the first call with other small lengths that its loops use; this is
        the latest text.
        """
        return self._native.source

    @property
    def compiled(self) -> Any:
        """The native function itself, a Numba dispatcher, for your own native code to call.

        It takes an array for each input and then for each shared variable, 0-d ones as arrays too,
        without checks. It returns a tuple: all returned arrays of the program, without their structure,
        in the order of ``jax.tree.leaves``, and then the next values of updated variables.

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
                if self.program.has_flag:  # a caller would not know the flag
                    graph = FunctionGraph(graph.inputs, graph.outputs[:-1], clone=True)
                self._compiled = compiled_array_function(graph, self.__name__)
        return self._compiled

    def apply(self, context: Any = None, /, *args: object, **kwargs: object) -> tuple[Any, Any]:
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
        part, early = self._part, self._early_values(values)
        if part is None or early is None:
            outs = self._whole(*args, *values)
        else:
            outs = self._residual(*args, *(values[k] for k in part.left), *early)
        if self.program.has_flag:
            if outs.pop():
                raise self._finiteness.error(lambda f: f.apply(context, *args)[1])
        n = self.program.n_returned
        return context.written(self.program, outs[n:]), self.program.build(outs[:n])

    def as_jax(self) -> Any:
        """Convert the program to a JAX function, which stays native on the CPU.

        On other devices, and for programs without a native form, it runs as JAX's operations; see
        `loopax.jaxify`.

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
            requested = {"checks": self.checks, "loops": "native", "optimize": self.optimize}
            options = backend.options(True, self.on_missing, **requested)
            return backend.function(program, **options)

    @property
    def _all_labels(self) -> list[str]:
        return [*self._arguments.labels, *self._arguments.shared_labels]

    def _labels(self, part: EarlyPart) -> list[str]:
        """Labels of the inputs of the residual program, which excludes the early part."""
        shared_labels = self._arguments.shared_labels
        labels = [*self._arguments.labels, *(shared_labels[k] for k in part.left)]
        return [*labels, *["What follows from shared variables"] * len(part.early.outputs)]

    def _direct(self) -> Any:
        """The function of the arguments alone, which reads shared variables at each call."""
        program, part = self.program, self._part
        options = {"in_order": self._arguments.in_order, "build": program.build}
        if program.has_flag:
            options["flagged"] = self._not_finite
        if part is None:
            cells = [s.storage for s in program.shared]
            return self._native.entry(self._all_labels, cells=cells, **options)

        def whole(*args: object) -> Any:
            outs = self._whole(*args, *(s.value for s in program.shared))
            if program.has_flag and outs.pop():
                raise self._not_finite(args)
            return program.build(outs)

        return self._native.entry(
            self._labels(part),
            cells=[program.shared[k].storage for k in part.left],
            early_values=lambda: self._early_values([s.value for s in program.shared]),
            count=len(part.early.outputs),
            whole=whole,
            **options,
        )

    def _early_values(self, shared: Sequence[Any]) -> Any:
        """Cached results of the early part for ``shared``; None if the whole program must run."""
        if self._part is None:
            return None
        arrays = [shared[k] for k in self._part.reads]
        return self._early(arrays) if all(isinstance(x, np.ndarray) for x in arrays) else None

    def _whole(self, *values: object) -> Any:
        """Run the program on all its inputs."""
        with TRACING:
            run = self._entry_of_all
        return run(*values)

    @cached_property
    def _entry_of_all(self) -> Any:
        """The program of all inputs as a function of Python values, written at its first use."""
        from loopax.numba_backend.callable.program import compile_program

        program = self._native
        if self._part is not None:
            program = compile_program(self.program.graph, on_missing=self.on_missing)
        return program.entry(self._all_labels)

    def _not_finite(self, args: Sequence[Any]) -> Exception:
        """The error of a call whose flag is set."""
        if self.error_in_rows is not None and (error := self.error_in_rows(args, {})) is not None:
            return error
        return self._finiteness.error(lambda f: f(*args))

    @cached_property
    def _finiteness(self) -> Finiteness:
        """The search for the first nonfinite value, after a call whose flag is set."""
        options: dict[str, Any] = {"on_missing": self.on_missing, "optimize": self.optimize}
        return Finiteness.of(self.program, NATIVE_PASSES, partial(NumbaFunction, **options))

    def _refuse(self, *args: object, **kwargs: object) -> None:
        self._refuse_updates()

    def __getstate__(self) -> dict[str, Any]:
        return {"program": self.program, "error_in_rows": self.error_in_rows, **self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()


def _in_order(values: Sequence[Any]) -> list[Any]:
    """Copy arrays to C order, which `entry` passes on without a copy."""
    return [np.array(x, order="C") for x in values]
