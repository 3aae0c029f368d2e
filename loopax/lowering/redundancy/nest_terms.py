"""The common terms of several sums or products are combined once.

    p = a * b * c,  q = 2 * a * b * c * d * e * f  ->  q = 2 * (p * d * e * f)
    p = a * b * c * d * e * x,  q = a * b * c * d * e * y  ->  s = a * b * c * d * e,  p = s * x,  q = s * y

First, a sum or product that is part of a longer one replaces its terms there. Then the terms of each are
ordered by how many sums or products contain them, and common prefixes are shared.

Condition: floats of one dtype, elementwise, of six terms or more.

Reason: PyTensor's canonical forms flatten products and sums even where something else reads the inner one.
In the gradient of a chain of n operations each adjoint is the previous one times one factor, so that there
are n products of up to n factors; 160 operations took 90 s to compile, and 6 s for half of them.
It changes the order of the terms, so that results may differ in the last digit.

In the literature: common subexpression elimination within sums and products; reassociation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import or_
from typing import Any

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.math import add, mul

from loopax.facts.elementwise import is_elementwise
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import replace_outputs

# Few terms are better left in their order, which the backend chooses.
_WHOLE, _PART = 6, 3
_MOST = 1000  # most sums or products of a body: every pair is compared


def nest_terms(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and then on its bodies."""
    for scalar_op, combine in ((ps.Mul, mul), (ps.Add, add)):
        groups: dict[str, list[Apply]] = defaultdict(list)
        for node in graph.toposort():
            if _is_fold(node, scalar_op):
                groups[node.outputs[0].type.dtype].append(node)
        for nodes in groups.values():
            if 1 < len(nodes) <= _MOST:
                _nest(graph, nodes, combine)
    map_bodies(graph, nest_terms, where=lambda body: bool(body.apply_nodes))


def _is_fold(node: Apply, scalar_op: type) -> bool:
    if not is_elementwise(node, scalar_op):
        return False
    dtype = node.outputs[0].type.dtype
    return dtype.startswith("float") and all(v.type.dtype == dtype for v in node.inputs)


@dataclass
class _Fold:
    """A sum or product, with a bit mask of its nonconstant terms."""

    node: Apply
    mask: int

    @property
    def size(self) -> int:
        return self.mask.bit_count()

    @property
    def constants(self) -> list[Variable]:
        return [v for v in self.node.inputs if isinstance(v, Constant)]


def _nest(graph: FunctionGraph, nodes: list[Apply], combine: Op) -> None:
    terms: dict[int, Variable] = {}
    # Smaller ones first: a larger one can then use the smaller ones that it contains.
    folds = sorted(_folds(nodes, terms), key=lambda f: f.size)
    if folds[-1].size < _WHOLE:
        return
    combined = {
        f.mask: f.node.outputs[0] for f in reversed(folds) if f.size >= _PART and not f.constants
    }
    long = [f for f in folds if f.size >= _WHOLE]
    rests = {f.node: _rest(f, [m for m in combined if m != f.mask]) for f in long}
    shared = _Shared([mask for mask, _ in rests.values()], terms, combine)
    new: dict[Variable, Any] = {}
    for f in long:
        mask, parts = rests[f.node]
        operands = [*f.constants, *shared.operands(mask), *(combined[part] for part in parts)]
        if len(operands) < len(f.node.inputs):
            new[f.node.outputs[0]] = operands[0] if len(operands) == 1 else combine(*operands)
    # Last nodes first: new nodes read old ones, and would bring back nodes that have been replaced.
    for node in reversed(nodes):
        old = node.outputs[0]
        if old in new and old.type.is_super(new[old].type):
            replace_outputs(graph, {old: new[old]}, "nest_terms")


def _folds(nodes: list[Apply], terms: dict[int, Variable]) -> Iterator[_Fold]:
    """A `_Fold` for each of ``nodes``; fills ``terms`` with the term of each bit."""
    bits: dict[tuple[Variable, int], int] = {}
    for node in nodes:
        seen: dict[Variable, int] = defaultdict(int)
        mask = 0
        for v in node.inputs:
            if not isinstance(v, Constant):
                bit = bits.setdefault((v, seen[v]), len(bits))
                seen[v] += 1  # the second occurrence of a term counts as another term
                terms[bit] = v
                mask |= 1 << bit
        yield _Fold(node, mask)


def _rest(f: _Fold, masks: list[int]) -> tuple[int, list[int]]:
    """Cover ``f`` by ``masks``, largest first: the remaining terms, and the masks used."""
    parts, mask = [], f.mask
    for m in masks:
        if m & mask == m:
            parts.append(m)
            mask &= ~m
    return mask, parts


class _Shared:
    """Sums or products of the terms in some masks, with shared common prefixes."""

    def __init__(self, masks: list[int], terms: dict[int, Variable], combine: Op) -> None:
        self._terms, self._combine = terms, combine
        self._users = Counter(bit for mask in masks for bit in _bits(mask))
        self._beginnings = Counter(p for mask in masks for p in self._prefixes(mask))
        self._made: dict[int, Any] = {}

    def _order(self, mask: int) -> list[int]:
        return sorted(_bits(mask), key=lambda bit: (-self._users[bit], bit))

    def _prefixes(self, mask: int) -> list[int]:
        return list(accumulate((1 << bit for bit in self._order(mask)), or_))

    def operands(self, mask: int) -> list[Any]:
        """The operands to combine for the terms of ``mask``: the longest shared prefix, and the rest."""
        order, prefixes = self._order(mask), self._prefixes(mask)
        head: Any = None
        done = 0
        for k, prefix in enumerate(prefixes, 1):
            users = self._beginnings[prefix]
            after = self._beginnings[prefixes[k]] if k < len(prefixes) else 0
            if k - done + (head is not None) < 2 or users < 2 or after == users or k < _PART:
                continue
            if prefix not in self._made:
                new = [self._terms[bit] for bit in order[done:k]]
                self._made[prefix] = self._combine(*([] if head is None else [head]), *new)
            head, done = self._made[prefix], k
        return [*([] if head is None else [head]), *(self._terms[bit] for bit in order[done:])]


def _bits(mask: int) -> list[int]:
    return [k for k in range(mask.bit_length()) if mask >> k & 1]
