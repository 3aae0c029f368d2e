"""``Residual``: a program without the part that depends on shared variables alone."""

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
    """The compiled rest of a program, which runs after its early ``part``."""

    part: EarlyPart
    form: Variants
    early: EarlyValues

    @classmethod
    def of(cls, execution: Execution) -> Residual | None:
        """The residual of a program; None if it has no early part."""
        program = execution.program
        if program.has_flag:  # when the flag is up, the whole program runs again from all values
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
        """The arguments after the program's inputs; None if the early values are not available."""
        values = self.early.now()
        return None if values is None else [*shared.at(self.part.left, concrete), *values]
