"""Ops as users write them."""

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op


class SameType(Op):
    """An op of one array, whose output has the type of it; a subclass has the ``perform``."""

    __props__: tuple[str, ...] = ()

    def make_node(self, x: Any) -> Apply:
        x = pt.as_tensor(x)
        return Apply(self, [x], [x.type()])
