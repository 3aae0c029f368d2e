"""The report on the first nonfinite value, after a call of a program with a flag."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph

from loopax.base.errors import NonFiniteError
from loopax.base.lock import TRACING
from loopax.ir.program import Program
from loopax.lowering.finiteness.locate import Locations
from loopax.lowering.finiteness.places import error_of_reports
from loopax.lowering.finiteness.program import locating_program
from loopax.lowering.order import run_passes


@dataclass(frozen=True)
class Finiteness:
    """A function of the inputs of a program that returns a report, and the meaning of that report.

    It is compiled at its first call, which happens only after a nonfinite value.
    """

    function: Any
    locations: Locations
    name: str

    @classmethod
    def of(
        cls,
        program: Program,
        passes: Iterable[Callable[[FunctionGraph], None]],
        function: Callable[[Program], Any],
    ) -> Finiteness:
        """The finiteness check of ``program``; ``function`` is the class of a backend, with its options."""
        with TRACING, config.change_flags(traceback__limit=0):
            new, locations = locating_program(program)
            run_passes(new.graph, passes)
            return cls(function(new), locations, program.name)

    def error(self, call: Callable[[Any], Any]) -> NonFiniteError:
        """The error for the report that `function` gives for ``call``."""
        return self.error_of(np.asarray(call(self.function)))

    def error_of(self, report: np.ndarray) -> NonFiniteError:
        """The error for a report, or for the first row of a batch of reports that has a finding."""
        return error_of_reports(report, self.locations.n_axes, self.locations.places, self.name)
