"""Two-stage evaluation of a graph under a JAX trace.

Values known while JAX traces (constants, shapes, static arguments, and whatever depends on these alone) are
NumPy values, computed by each Op's own ``perform``. Only the rest is traced. So
``x.shape[0]`` is a number, and an ``arange``, ``alloc``, ``reshape``, slice or ``n_steps`` that
depends on it just works. Loop bodies, calls and branches are evaluated by the same few lines, each
in a `Frame` of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import integer_dtypes
from pytensor.tensor.type_other import MakeSlice

from loopax.base.errors import DynamicShapeError, LoopTypeError, describe
from loopax.base.upstream.jax import InconclusiveDimensionOperation as Inconclusive
from loopax.base.upstream.jax import jax_config
from loopax.ir import Scan
from loopax.ir.evaluation.first_failure import arguments_in_words
from loopax.ir.ops.bounds import is_unbounded
from loopax.ir.sizes.dim_expr import asked_length
from loopax.jax_backend.staging.context import Context
from loopax.jax_backend.staging.frame import Frame, NeedsStatic
from loopax.jax_backend.staging.intervals import has_open_length, inputs_of_length, known_interval
from loopax.jax_backend.staging.legal import or_refused
from loopax.jax_backend.staging.registry import find_leaf_rule, find_rule, find_trace_rule
from loopax.jax_backend.staging.static import fold, is_traced
from loopax.jax_backend.staging.symbolic import as_taken, explained
from loopax.jax_backend.staging.symbolic import fold as fold_lengths
from loopax.jax_backend.staging.wrapping import refuse_wrapped
from loopax.jax_backend.values.padded_array import PaddedArray, cut_if_known
from loopax.jax_backend.values.x64 import as_declared, refuse_narrowed


@dataclass(frozen=True)
class Site:
    """One node being converted, as a rule sees it."""

    node: Apply
    used: tuple[bool, ...]
    frame: Frame

    @property
    def op(self) -> Any:
        return self.node.op

    @property
    def context(self) -> Context:
        return self.frame.context

    @property
    def out(self) -> Any:
        return self.node.outputs[0]

    def static(self, k: int) -> Any:
        """Input ``k`` as a NumPy value; see `Frame.static_value`.

        A traced integer may have only one possible value, such as the length of ``bincount(x % 5,
        minlength=5)``.
        """
        v = self.node.inputs[k]
        if is_traced(self.frame.read(v)) and getattr(v.type, "dtype", "") in integer_dtypes:
            interval = known_interval(self.frame, v) if v.type.ndim == 0 else None
            if interval is not None and interval[0] == interval[1]:
                return np.asarray(interval[0], dtype=v.type.dtype)
        return self.frame.static_value(self.node.inputs[k], self.node)

    def run(
        self, graph: AbstractFunctionGraph, inputs: Sequence[Any], origins: Sequence[Any]
    ) -> list[Any]:
        """Evaluate an inner graph; ``origins`` are as in `Frame`."""
        return run(self.context, graph, inputs, origins, self.frame)

    def run_apart(self, graph: AbstractFunctionGraph, inputs: Sequence[Any]) -> list[Any]:
        """Evaluate a graph from its inputs alone, ignoring facts that are known about them here."""
        return run(self.context, graph, inputs, ["an argument of a function"] * len(inputs))

    def pull_back(
        self,
        graph: AbstractFunctionGraph,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        cotangents: Sequence[Any],
    ) -> list[Any]:
        """Evaluate the graph of a pullback of the node, from a `PullbackRule`."""
        # In forward mode a pullback runs before the node's outputs are in the frame.
        for v, x in zip(self.node.outputs, outputs, strict=True):
            self.frame.values.setdefault(v, x)
        unknown = ["a cotangent of a pullback"] * len(cotangents)
        values = [*inputs, *outputs, *cotangents]
        origins = [*self.node.inputs, *self.node.outputs, *unknown]
        return run(self.context, graph, values, origins, self.frame, self.node)

    def frame_of(
        self, graph: AbstractFunctionGraph, inputs: Sequence[Any], origins: Sequence[Any]
    ) -> Frame:
        """Evaluate ``graph``, and return the frame that holds its values."""
        return run_frame(self.context, graph, inputs, origins, self.frame)


def run(
    context: Context,
    graph: AbstractFunctionGraph,
    inputs: Sequence[Any],
    origins: Sequence[Any],
    parent: Frame | None = None,
    pulled: Apply | None = None,
) -> list[Any]:
    """Evaluate ``graph``: outputs are NumPy values if static, JAX values if traced."""
    frame = run_frame(context, graph, inputs, origins, parent, pulled)
    return [frame.read(v) for v in frame.plan.outputs]


def run_frame(
    context: Context,
    graph: AbstractFunctionGraph,
    inputs: Sequence[Any],
    origins: Sequence[Any],
    parent: Frame | None = None,
    pulled: Apply | None = None,
) -> Frame:
    """Evaluate all nodes of ``graph``; return the frame with all values."""
    steps = context.plan(graph)
    known = dict(zip(steps.inputs, inputs, strict=True))
    frame = Frame(context, steps, known, origins, parent, pulled)
    for node, used in steps.steps:
        values = [frame.read(v) for v in node.inputs]
        outs = fold(node, values)
        if outs is None:
            outs = fold_lengths(node, values)
        if outs is None:
            try:
                outs = convert(Site(node, used, frame), as_taken(node, values))
            except (Inconclusive, TypeError, ValueError) as error:
                if (explanation := explained(error, node)) is not error:
                    raise explanation from error
                _note_node(error, node, values)
                raise
        frame.values.update(zip(node.outputs, outs, strict=True))
    return frame


def _note_node(error: Exception, node: Apply, values: Sequence[Any]) -> None:
    """Add a note on the innermost node whose rule raised ``error``: JAX's message does not name it."""
    if not isinstance(error, LoopTypeError | DynamicShapeError | NeedsStatic) and not any(
        note.startswith(_RAISED_BY) for note in getattr(error, "__notes__", ())
    ):
        error.add_note(f"{_RAISED_BY}{arguments_in_words(node, values)}.")


_RAISED_BY = "In the program, "


def convert(site: Site, values: Sequence[Any]) -> list[Any]:
    """Convert a node that is not static; each output has the dtype that its variable declares."""
    if (length := _asked_length(site)) is not None:
        return [np.asarray(length, site.out.type.dtype)]
    if not jax_config.jax_enable_x64:
        values = _in_32_bits(site, values)
    values = [cut_if_known(x) for x in values]
    if not any(isinstance(x, PaddedArray) for x in values) and not has_open_length(
        site.frame, site.node, values
    ):
        return convert_arrays(site, values)
    outs = find_trace_rule(site.op)(site, *values)
    if not isinstance(outs, tuple | list):
        outs = [outs]
    declared = [_declared(x, v) for x, v in zip(outs, site.node.outputs, strict=True)]
    return [_of_known_length(site, x, v) for x, v in zip(declared, site.node.outputs, strict=True)]


def _asked_length(site: Site) -> int | None:
    """The known length that the node reads from a shape that also has a length known only at run time."""
    asked = asked_length(site.out) if isinstance(site.op, Subtensor) else None
    x = None if asked is None else site.frame.values.get(asked.of)
    if asked is None or not isinstance(x, PaddedArray) or asked.axis == x.axis:
        return None
    return int(np.shape(x.data)[asked.axis])


def _of_known_length(site: Site, x: object, v: Variable) -> Any:
    """Convert ``x`` to an array if the graph shows its length: a row for each step, taken or not.

    It becomes `no_number` if it has another length, since an op cannot raise while a program runs.
    """
    if not isinstance(x, PaddedArray) or not hasattr(x.data, "dtype"):
        return x
    n = site.frame.length(v, x.axis)
    if n is None:
        return x
    data = x.fitted(n).data
    return or_refused(site.context, x.length == n, data)


def _in_32_bits(site: Site, values: Sequence[Any]) -> Sequence[Any]:
    """Prepare ``values`` for JAX's 32-bit mode; refuse integers that do not fit, or that may overflow.

    Exempt are indices, and the trip count of a loop without a bound, which is clipped to the largest
    integer.
    """
    if is_unbounded(site.out):
        most = np.iinfo(jax.dtypes.canonicalize_dtype("int64")).max
        return [np.minimum(x, most) if isinstance(x, np.ndarray) else x for x in values]
    first, last = 0, len(values)
    if isinstance(site.op, Scan):
        first = 1
    elif isinstance(site.op, Subtensor | MakeSlice):
        last = 1 if isinstance(site.op, Subtensor) else 0
    elif isinstance(site.op, IncSubtensor):
        last = 2
    for x, v in zip(values[first:last], site.node.inputs[first:last], strict=True):
        refuse_narrowed(x, v, f", an operand of {site.op} for {describe(site.out)}")
    refuse_wrapped(site.frame, site.node)
    return values


def _declared(x: object, v: Variable) -> Any:
    if isinstance(x, PaddedArray) and not isinstance(x.data, tuple | list | dict):
        return x.with_data(as_declared(x.data, v))
    return as_declared(x, v)


def convert_arrays(site: Site, values: Sequence[Any]) -> list[Any]:
    """Convert a node if no value is a `PaddedArray`, or if its rule takes padded arrays as well."""
    op_rule = find_rule(site.op) or find_leaf_rule()
    outs = op_rule(site, *values)
    if not isinstance(outs, tuple | list):
        outs = [outs]
    return [
        as_declared(x, v) if used else x
        for x, v, used in zip(outs, site.node.outputs, site.used, strict=True)
    ]


def refuse_trace(site: Site) -> NoReturn:
    """Raise an error: the op must know the length of an array, but it is not known.

    Raises `NeedsStatic` if the length depends on inputs of the program alone, for example a mask: it is
    known if these are static; `DynamicShapeError` if it depends on the number of steps that a loop takes.
    """
    traces = [v for v in site.node.inputs if isinstance(site.frame.read(v), PaddedArray)]
    refuse_lengths(site.frame, traces, f"{site.op}, for {describe(site.out)}, ")


def refuse_lengths(frame: Frame, traces: Sequence[Variable], who: str) -> NoReturn:
    """Raise an error: ``who`` reads variables that are a `PaddedArray`."""
    refusal = (
        f"{who}must know while JAX traces how many rows there are, and "
        "there are as many as a loop takes steps before it stops, or a mask has places. What works with "
        "such a trace: "
        "elementwise functions, sums, products, extrema, any and all along it, dot products, sorting, "
        "indices, slices, concatenation, loops over it, and returning it, as a loopax.PaddedArray. Else "
        "mask one of fixed length: let the loop take all its steps with a state `done` that stays true, "
        "and pt.where(pt.arange(n_steps) < n_done, trace, 0)."
    )
    each = [inputs_of_length(frame, v) for v in traces]
    if each and all(each):
        raise NeedsStatic(frozenset().union(*each), refusal, refusal)
    raise DynamicShapeError(refusal)
