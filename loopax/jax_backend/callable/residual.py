"""``Residual``: a program without the part that follows from shared variables alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopax.ir.program import EarlyPart
from loopax.jax_backend.callable.execution import Execution
from loopax.jax_backend.callable.shared_values import EarlyValues, SharedValues
from loopax.jax_backend.callable.variants import Variants
from loopax.lowering import PASSES, passes_with, run_passes
from loopax.lowering.early_part import early_part, early_part_as_read


@dataclass(frozen=True, eq=False)
class Residual:
    """The residual of a program behind its early ``part``, in compiled form."""

    part: EarlyPart
    form: Variants
    early: EarlyValues

    @classmethod
    def of(cls, execution: Execution) -> Residual | None:
        """The residual of a program; None if it has no early part."""
        program = execution.program
        if program.has_flag:  # where it is up the whole runs once more, of all values
            return None
        divided = early_part_as_read if execution.may_be_native else early_part
        part = divided(program)
        if part is None:
            return None
        names, n = execution.names, len(program.inputs)
        left = [names[n + k] for k in part.left]
        early = f"what follows from {' and '.join(names[n + k] for k in part.reads)}"
        count = len(part.residual.inputs) - n - len(left)
        names = [*names[:n], *left, *[early] * count]
        values = EarlyValues(program, part)
        if not execution.may_be_native:
            return cls(part, execution.variants(part.residual, names), values)
        graph = part.residual.clone()
        run_passes(graph, passes_with(execution.optimizer, PASSES))
        as_read = part.residual.inputs, part.residual.outputs
        return cls(part, execution.variants(graph, names, as_read), values)

    def arguments(self, shared: SharedValues, concrete: bool) -> list[Any] | None:
        """The arguments behind the inputs of the program; None if the early values are not to be had."""
        values = self.early.now()
        return None if values is None else [*shared.at(self.part.left, concrete), *values]
