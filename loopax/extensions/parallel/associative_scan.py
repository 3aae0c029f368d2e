"""``AssociativeScan``: all prefixes of a row of elements that are combined by an associative operation.

    (e1, e2, e3, ...)  ->  (e1, e1 * e2, e1 * e2 * e3, ...)

An element is a few arrays; each is an input, and an output, with a leading axis of elements. The semantics
are defined by the body, a plain loop, which also provides values, derivatives, batches and native code. A
backend may combine elements in any grouping.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.tensor.type import TensorType

from loopax.base.errors import LoopTypeError
from loopax.base.upstream.pytensor import freeze
from loopax.ir.ops.call import Call
from loopax.ir.ops.calling_convention import INDEX_TYPE, BodyArgs, BodyOuts, ScanArgs, ScanOptions
from loopax.ir.ops.scan import Scan


class AssociativeScan(Call):
    """A `Call` of the loop that combines elements sequentially, with the combining function.

    Parameters
    ----------
    body
        The loop, ``[*rows of elements] -> [*prefixes]``.
    combine
        ``[*first, *second] -> [*both]``, an associative operation.
    reverse
        Whether the prefixes begin at the last element: ``(..., e2 * e3, e3)``, with the later one first
        among the arguments of ``combine``, as in `jax.lax.associative_scan`.
    name
        For printing.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax.extensions.parallel.associative_scan import AssociativeScan
    >>> x = pt.dvector("x")
    >>> op = AssociativeScan.of(lambda a, b: [a[0] * b[0]], [x])
    >>> op(x).eval({x: [1.0, 2.0, 3.0]})
    array([1., 2., 6.])
    """

    def __init__(
        self,
        body: FrozenFunctionGraph,
        combine: FrozenFunctionGraph,
        reverse: bool = False,
        name: str = "associative scan",
    ) -> None:
        super().__init__(body, None, name)
        self.combine, self.reverse = combine, reverse

    @classmethod
    def of(
        cls,
        combine: Callable[[list[Any], list[Any]], Sequence[Any]],
        rows: Sequence[Variable],
        reverse: bool = False,
        name: str = "associative scan",
    ) -> AssociativeScan:
        """Build the op for ``rows`` of elements; ``combine(first, second)`` combines two, as lists.

        Raises `LoopTypeError` if ``combine`` returns another type than it takes.
        """
        kinds = [TensorType(x.type.dtype, (None,) * (x.type.ndim - 1)) for x in rows]
        first, second = [t() for t in kinds], [t() for t in kinds]
        both = [pt.as_tensor(v) for v in combine(first, second)]
        for k, (v, t) in enumerate(zip(both, kinds, strict=True)):
            if v.type.dtype != t.dtype or v.type.ndim != t.ndim:
                raise LoopTypeError(
                    f"combine of {name} takes elements whose part {k} is of type {t}, but returns one "
                    f"of type {v.type}. It must return the type that it takes, because its results are "
                    "combined again."
                )
        nexts = [t.filter_variable(v) for v, t in zip(both, kinds, strict=True)]
        graph = freeze(FunctionGraph([*first, *second], nexts, clone=True))
        step = BodyArgs(INDEX_TYPE(), second, first, [])
        loop = Scan.from_body(step, BodyOuts(nexts, nexts), ScanOptions(name, reverse=reverse))
        symbols = [TensorType(t.dtype, (None, *t.shape))() for t in kinds]
        begin, others = (-1, slice(None, -1)) if reverse else (0, slice(1, None))
        outs = loop.bind(
            ScanArgs(
                symbols[0].shape[0] - 1,
                [x[others] for x in symbols],
                [x[begin] for x in symbols],
                [],
            )
        )
        prefixes = []
        for x, trace in zip(symbols, loop.split_outputs(outs).traces, strict=True):
            ends = [trace, x[-1:]] if reverse else [x[:1], trace]
            prefixes.append(x.type.filter_variable(pt.concatenate(ends)))
        body = freeze(FunctionGraph(symbols, prefixes, clone=True))
        return cls(body, graph, reverse, name)

    def with_body(self, body: FrozenFunctionGraph) -> AssociativeScan:
        return AssociativeScan(body, self.combine, self.reverse, self.name)

    @property
    def asks_for_all_steps_at_once(self) -> bool:
        return True

    def _key(self) -> tuple[Any, ...]:
        return self.fgraph, self.combine, self.reverse

    def __str__(self) -> str:
        return f"AssociativeScan{{{self.name}}}"
