"""``Execution``: the compiled forms of a program, and the errors of calls that fail.

A call of a form returns a flag of the program's checks. If the flag is set, or the call raises, the program
runs once more where necessary: with checks of its indices, or as a report on its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from loopax.base.errors import UNEQUAL_LENGTHS
from loopax.ir.program import Program
from loopax.jax_backend.callable.arguments import JaxArguments, wait_for
from loopax.jax_backend.callable.call_errors import (
    failure_in,
    flagged_error,
    is_down,
    native_error,
    with_values,
)
from loopax.jax_backend.callable.looking import Looking
from loopax.jax_backend.callable.variant import SUSPECT, Variant
from loopax.jax_backend.callable.variants import Variants, contexts_of
from loopax.jax_backend.staging.context import Context
from loopax.jax_backend.staging.legal import IllegalLengths
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import trimmed
from loopax.lowering import PASSES, passes_with
from loopax.lowering.finiteness import Finiteness


class Execution:
    """The compiled forms of ``program``, run with ``options``.

    Parameters
    ----------
    program
        A program in the IR, lowered.
    options
        The options of a `JaxFunction`.
    names
        The names of the inputs of its graph, for messages.
    """

    def __init__(self, program: Program, options: Mapping[str, Any], names: Sequence[str]) -> None:
        self.program, self.names, self._options = program, names, options
        looks = program.has_flag  # it runs again where a value is not finite
        self.donated = frozenset(k for k, i in enumerate(program.inputs) if i.donated and not looks)
        self.contexts = contexts_of(program, options)
        self.failures = self.contexts[False, True].failures
        self._checking: dict[Variants, Variants] = {}  # variants -> variants with checked indices
        self.whole = self.variants(program.graph, names, program.as_read)

    @property
    def remarks(self) -> list[str]:
        """Remarks on the forms of loops, from direct calls."""
        return list(self.contexts[False, True].remarks)

    @property
    def optimizer(self) -> str:
        """One of `loopax.lowering.OPTIMIZERS`."""
        return str(self._options["optimize"])

    @property
    def may_be_native(self) -> bool:
        """Whether the program may run as native code."""
        return self._options["loops"] != "xla" and self.program.as_read is not None

    def run(
        self, form: Variants, values: tuple[Any, ...], concrete: bool, may_open: bool = True
    ) -> tuple[Any, Any]:
        """Run the program; return its results, and the next values of shared variables.

        A direct call returns an array of the actual rows in place of a `PaddedArray`.
        """
        if not concrete:
            return form(values, concrete)[:2]
        try:
            *results, flag = form(values, concrete, may_open)
            if self._options["checks"] == "raise" or self.failures:
                # JAX computes asynchronously, and would otherwise raise where a result is first used.
                wait_for(results)
        except Exception as error:
            failure = failure_in(str(error), self.failures)
            failure = failure or native_error(error, self._as_written(form), values)
            if failure is None:
                raise
            raise failure from None
        if flag is None or is_down(flag):
            return tuple(map(trimmed, results))
        if self.program.has_flag and not is_traced(flag):
            raise self._looked_for.error(lambda e: e.run(e.whole, values, True)[0])
        if is_traced(flag):  # inside the caller's trace the whole computation belongs to it
            return form(values, False)[:2]
        if int(flag) == SUSPECT:
            if (outside := self._index_error(form, values)) is not None:
                raise outside
            return tuple(map(trimmed, results))
        failure = flagged_error(flag, self.contexts[False, True])
        if not isinstance(failure, IllegalLengths):
            raise failure
        if may_open:
            return self.run(form, values, concrete, may_open=False)
        return tuple(map(trimmed, results))  # rows whose lengths differ give no numbers

    @cached_property
    def _looked_for(self) -> Finiteness:
        """The report on nonfinite values, for a call whose flag is set."""
        options = {**self._options, "checks": "ignore"}
        passes = passes_with(options["optimize"], PASSES)
        return Finiteness.of(
            self.program, passes, lambda p: Execution(p, options, JaxArguments(p).names)
        )

    def _looking(self) -> Looking:
        def report(args: Sequence[Any]) -> Any:
            execution = self._looked_for.function
            return execution.run(execution.whole, tuple(args), False)[0]

        return Looking(
            report,
            lambda reports: self._looked_for.error_of(reports),
            self.program.name,
            self.names,
        )

    def _index_error(self, form: Variants, values: tuple[Any, ...]) -> Exception | None:
        """The error for an index out of range in a call that has run; None if there is none.

        The program runs once more, with checks of its indices. This happens only after a result that is not
        a number, so that other calls pay nothing for the checks.
        """
        if self.donated:  # the arguments no longer exist
            return None
        if form not in self._checking:
            self._checking[form] = self.variants(
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
        text = "index is out of bounds" if isinstance(error, IndexError) else UNEQUAL_LENGTHS
        return with_values(type(error), text, graph, values, str(error))

    def _as_written(self, form: Variants) -> FunctionGraph:
        """The graph of a form; for the whole program, the graph with the user's lines."""
        if form is self.whole and self.program.as_read is not None:
            return FunctionGraph(*self.program.as_read, clone=False)
        return form.graph

    def variants(
        self,
        graph: FunctionGraph,
        names: Sequence[str],
        as_read: tuple[list[Variable], list[Variable]] | None = None,
        contexts: Mapping[tuple[bool, bool], Context] | None = None,
    ) -> Variants:
        """Make compiled functions of a graph for these contexts; see `Variant` for ``as_read``."""
        contexts = contexts or self.contexts

        def make(static: Mapping[int, Any], is_open: bool, is_direct: bool) -> Variant:
            context = contexts[is_open, is_direct]
            how = self._options["loops"], self._options["optimize"], self._options["jit"]
            # An eager `jax.grad` or `jvp` calls this with arrays that the caller still uses.
            donated = frozenset() if is_open else self.donated
            looking = self._looking() if self.program.has_flag and not is_direct else None
            return Variant(
                self.program, graph, static, context, *how, as_read, donated, looking, is_direct
            )

        # If lengths disagree, a direct call learns it from a flag and runs again: donated arrays would no
        # longer exist.
        leaves_open = contexts[True, True].checks == "flag" and not self.donated
        return Variants(graph, names, self.program, make, contexts, leaves_open)
