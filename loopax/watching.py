"""The function `watched`: a function that also returns the watched values of its program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytensor.tensor as pt
from pytensor.configdefaults import config

from loopax.base.errors import LoopTypeError
from loopax.base.lock import TRACING
from loopax.builders import Builder
from loopax.by_backend import program_of
from loopax.calling import TracedFunction
from loopax.ir.program import Program
from loopax.jax_backend.values.record import Record, Rows
from loopax.lowering.watching import Exposed, expose
from loopax.transpile import jaxify


def watched(f: Callable[..., Any], last: int | None = None) -> Any:
    """Return a function that computes ``f`` and a record of its watched values: ``(outputs, record)``.

    Parameters
    ----------
    f
        A function from `loopax.jaxify`, or a Python function of variables, which goes through `jaxify`.
        It is built again, with the same backend and options.
    last
        The number of last rows to keep of each value; None: all rows.

    Returns
    -------
    A function of the same kind, so ``jax.vmap``, ``jax.jit``, and ``jax.grad`` with ``has_aux=True``
    take it. ``record["s"]`` is the value that `loopax.watch` named ``"s"``, or that a
    ``pytensor.printing.Print("s")`` marks, which then does not print. ``record["s"].values`` has a row
    for each evaluation, ``record["s"].steps`` the numbers of the steps, with one column for each of
    several loops, the outermost first. Steps of a branch that was not taken have no row.

    Raises
    ------
    LoopTypeError
        ``last`` is not a number of rows, or values inside different numbers of loops share a name.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> import loopax
    >>> r = pt.dvector("r")
    >>> def day(variance, r):
    ...     variance = loopax.watch(0.1 + 0.1 * r**2 + 0.8 * variance, "variance")
    ...     return variance, pt.log(variance)
    >>> f = loopax.jaxify([r], loopax.scan(day, 1.0, r)[1].sum())
    >>> total, record = loopax.watched(f, last=2)(np.array([1.0, 2.0, 3.0]))
    >>> record["variance"].values, record["variance"].steps
    (array([1.3 , 2.04]), array([1, 2]))
    """
    if last is not None and not (isinstance(last, int) and not isinstance(last, bool) and last > 0):
        raise LoopTypeError(
            f"last must be a number of rows from 1 on, or None for all rows, got {last!r}."
        )
    function: Any = getattr(f, "of_point", f)
    if isinstance(function, TracedFunction):
        build = replace(function.build, expose=Exposing(last))  # type: ignore[type-var]
        return type(function)(function.__wrapped__, build, function.__name__, function.instance)
    if not hasattr(function, "backend"):
        return watched(jaxify(function), last)
    program = program_of(function)
    with TRACING:
        return Builder(function.backend, function.options, expose=Exposing(last))(
            program.with_watches()
        )


class Exposing:
    """Changes an imported program to return ``(outputs, record)``."""

    def __init__(self, last: int | None) -> None:
        self.last = last

    def __call__(self, program: Program) -> None:
        graph, build = program.graph, program.build
        n = program.n_returned
        assert not program.updates and not program.has_flag
        with config.change_flags(traceback__limit=0):
            items = expose(graph, self.last)
            rows = [x for item in items for x in _rows(item)]
        _refuse_unlike(items)
        names = [item.name for item in items]
        is_some = [item.present is not None for item in items]
        last = self.last
        for x in rows:
            graph.add_output(x)

        def built(leaves: Iterable[Any]) -> Any:
            leaves = list(leaves)
            remaining = iter(leaves[n:])
            watched = [
                Rows(next(remaining), next(remaining), next(remaining) if some else None)
                for some in is_some
            ]
            return build(leaves[:n]), Record(names, watched, last)

        program.build = built


def _rows(item: Exposed) -> list[Any]:
    steps = item.steps
    columns = pt.stack(steps, axis=1) if steps else pt.zeros((1, 0), dtype="int64")
    return [item.value, columns, *([] if item.present is None else [item.present])]


def _refuse_unlike(items: list[Exposed]) -> None:
    """Raise if one name stands for rows that do not form one array."""
    first: dict[str, Exposed] = {}
    for item in items:
        if item.name is None:
            continue
        other = first.setdefault(item.name, item)
        if len(other.steps) != len(item.steps) or other.value.type.ndim != item.value.type.ndim:
            raise LoopTypeError(
                f"Two watched values have the name {item.name!r}, with {len(other.steps)} and "
                f"{len(item.steps)} loops around them, and {other.value.type.ndim - 1} and "
                f"{item.value.type.ndim - 1} axes. Use two names. A value that the condition of a "
                "while_loop watches is one of them, since loopax computes the condition before the loop "
                "and in it: watch it in the body."
            )
