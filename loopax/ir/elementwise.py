"""Which function an elementwise op computes."""

from __future__ import annotations

from typing import Any

from pytensor.tensor.elemwise import Elemwise


def is_elementwise(node: Any, *scalar_ops: type) -> bool:
    """Whether ``node``, which may be None, computes one of ``scalar_ops`` for each element.

    >>> import pytensor.scalar as ps, pytensor.tensor as pt
    >>> is_elementwise((pt.dvector() + 1).owner, ps.Add, ps.Sub)
    True
    """
    op = None if node is None else node.op
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, scalar_ops)
