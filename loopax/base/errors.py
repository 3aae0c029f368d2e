"""The error tree. Users get one of these; our own invariants use ``assert``.

A message has four parts: what was found, where (variable, op, source line), why the target cannot
do it, and a program that works.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path

from pytensor.graph.basic import Variable


class LoopaxError(Exception):
    """The base class of every error that loopax raises on purpose."""


class UnsupportedOpError(LoopaxError, NotImplementedError):
    """The program has ops that the backend cannot run; the message lists each of them.

    ``ops`` has one line for each.
    """

    def __init__(self, message: str, ops: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ops = tuple(ops) or (message,)


class DynamicShapeError(LoopaxError):
    """A shape, length or index needs a value that is known only when the program runs."""


class LoopTypeError(LoopaxError, TypeError):
    """A value has another type (dtype, rank, static shape) than the program declares for it."""


class StatefulFunctionError(LoopaxError):
    """A function with updates was called as if it had none."""


class ConvergenceError(LoopaxError, ArithmeticError):
    """An iteration did not converge within its number of iterations."""


class NonFiniteError(LoopaxError, FloatingPointError):
    """A value of a running program is NaN or infinite; see ``jaxify(..., checks="nan")``.

    Parameters
    ----------
    program
        The name of the program.
    reason
        A sentence that names the value and the place that computes it.
    steps
        The numbers of the steps that computed it, the outermost loop's first.
    row
        The row of a batch; in nested batches a row of each, the outermost first.
    """

    def __init__(
        self, program: str, reason: str, steps: Sequence[int] = (), row: Sequence[int] = ()
    ) -> None:
        super().__init__(program, reason, tuple(steps), tuple(row))
        self.program, self.reason, self.steps, self.row = self.args

    def __str__(self) -> str:
        rows = ", ".join(map(str, self.row))
        return f"{self.program}: {f'In row {rows} of the batch: ' if rows else ''}{self.reason}"

    def after(self, rows: int) -> NonFiniteError:
        """The error of a batch with ``rows`` more rows before the rows of this error."""
        row = (self.row[0] + rows, *self.row[1:]) if self.row else ()
        return NonFiniteError(self.program, self.reason, self.steps, row)

    def in_row(self, row: int) -> NonFiniteError:
        """The error of a batch in whose row ``row`` this error was raised."""
        return NonFiniteError(self.program, self.reason, self.steps, (row, *self.row))


class TimeLimitExceeded(LoopaxError, TimeoutError):
    """A block of `loopax.time_limit` has exceeded its limit."""


class MissingInputError(LoopaxError, TypeError):
    """An input is missing, passed twice, or passed under a name that the function does not have."""


class VerifyError(LoopaxError):
    """`check` found a graph that breaks the IR's rules: a bug in whatever produced it."""


class WrongGradientWarning(UserWarning):
    """A program contains a gradient that PyTensor computes incorrectly."""


# As PyTensor begins it; the operands follow where they are known.
UNEQUAL_LENGTHS = "Input dimension mismatch: the lengths of two axes differ"

_PYTHON = sysconfig.get_path("stdlib").replace("\\", "/")
_OURS = "/pytensor/", "/loopax/", f"{_PYTHON}/"


def source_line(variable: Variable) -> str:
    """The user's line that made ``variable``: ``'file.py:12, in step: y = x + 1'``, or an empty string.

    PyTensor tags variables with the stack of their creation; the innermost frame outside PyTensor,
    loopax, Python and, if there is one, all installed packages is the user's.
    """
    for libraries in (*_OURS, "/site-packages/"), _OURS:
        for stack in getattr(variable.tag, "trace", None) or ():
            for filename, line, function, code in reversed(stack):
                normal = filename.replace("\\", "/")
                if function != "make_node" and not any(library in normal for library in libraries):
                    return f"{filename}:{line}, in {function}: {code or ''}"
    return ""


def describe(variable: Variable) -> str:
    """``variable`` by name or op, with its type and source line, for use inside a message."""
    owner = variable.owner
    if variable.name:
        subject = f"'{variable.name}'"
    elif owner is not None:
        subject = f"an output of {owner.op}"
    else:
        subject = "an unnamed variable"
    line = source_line(variable)
    return f"{subject} of type {variable.type}" + (f" ({line})" if line else "")


def unexpected(error: BaseException) -> str:
    """An error of a library, or of loopax itself, with the place that raised it: for use in a sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def changes_shape(
    label: str, before: tuple[int, ...], after: tuple[int, ...], state: Variable
) -> LoopTypeError:
    """The error for a step that returns ``state``, named ``label`` by the user or "", in another shape."""
    return LoopTypeError(
        f"{label or 'A state'} of a loop changes its shape from {before} to {after}, for "
        f"{describe(state)}: every step must return a state of the shape that it received. Start with the "
        "shape of the step's result, for example pt.zeros(shape)."
    )


def undeclared(axis: int, variable: Variable, op: object) -> str:
    """The message that ``axis`` of ``variable``, of length 1, is not broadcast by ``op``."""
    return (
        f"Axis {axis} of {describe(variable)} has length 1 and would be broadcast in {op}, but its type "
        "does not say that it is broadcastable. PyTensor refuses that. Declare it, with "
        "pt.specify_broadcastable(x, axis) or an input of static shape 1, or have loopax declare it, "
        "jaxify([x, y], z, broadcasting='numpy')."
    )
