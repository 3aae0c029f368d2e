"""A third backend, in as few lines as one takes: NumPy, through the IR's `evaluate`.

It compiles nothing and has no transformations of its own: `loopax.grad` and `loopax.vmap` transform its
program as a graph. Nothing in `loopax` knows of it but the record that it registers.
"""

from collections.abc import Sequence
from typing import Any

from loopax.calling import Arguments, Backend, ProgramFunction, TracedFunction, register_backend
from loopax.ir import evaluate
from loopax.ir.evaluation.evaluate import own
from loopax.ir.program import Program
from loopax.lowering import OPTIMIZERS, PASSES
from loopax.numba_backend import NumbaContext  # its values are NumPy's, as are those here


class EvaluatedFunction(ProgramFunction):
    """A function of NumPy arrays that runs its program node by node."""

    backend_name = "evaluate"

    def __init__(
        self, program: Program, *, on_missing: str = "callback", optimize: str = "none"
    ) -> None:
        self.program, self.on_missing, self.optimize = program, on_missing, optimize
        self._arguments = Arguments(program, "NumPy")
        self._describe(self._arguments)

    @property
    def options(self) -> dict[str, Any]:
        return {"on_missing": self.on_missing, "optimize": self.optimize}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_updates()
        return self._run(args, kwargs, [s.value for s in self.program.shared])[0]

    def apply(self, context: Any, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        context = self._own_context(context)
        returned, updates = self._run(args, kwargs, context.read(self.program))
        return context.written(self.program, updates), returned

    def _run(self, args: Any, kwargs: Any, shared: Any) -> tuple[Any, list[Any]]:
        doors, program = self._arguments, self.program
        given = [*doors.in_order(args, kwargs), *shared]
        whats = [*doors.labels, *doors.shared_labels]
        accepted = [
            NumbaContext.crossing.accept(x, v.type, what)
            for x, v, what in zip(given, program.graph.inputs, whats, strict=True)
        ]
        outs = [own(x) for x in self._computed(accepted)]
        return program.build(outs[: program.n_returned]), outs[program.n_returned :]

    def _computed(self, values: Sequence[Any]) -> list[Any]:
        """The outputs of the program's graph."""
        return evaluate(self.program.graph, *values)


EVALUATE = Backend(
    name=EvaluatedFunction.backend_name,
    function=EvaluatedFunction,
    traced=TracedFunction,
    context=NumbaContext,
    passes=PASSES,
    no_jit="With backend='evaluate' nothing is compiled.",
    choices={"checks": ("raise",), "loops": ("native",), "optimize": OPTIMIZERS},
)
register_backend(EVALUATE)
