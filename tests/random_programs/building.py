"""A graph from the text of a program: as it is written, for the reference, or written out."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor import sparse, typed_list
from pytensor.compile.builders import OpFromGraph
from pytensor.scan.utils import until

import loopax
from tests.random_programs.description import Program, declaration, lines
from tests.random_programs.plain import PLAIN_STEP
from tests.random_programs.written_out import Flat

try:  # 3.3 moved it; the old path warns
    from pytensor.conditional.op import ifelse
except ImportError:
    from pytensor.ifelse import ifelse

__all__ = ["Graph", "OpFromGraph", "build", "ifelse", "sparse", "typed_list", "until"]

COMMON = {"np": np, "pt": pt, "nan": np.nan, "inf": np.inf}


@dataclass
class Graph:
    """A program's variables. ``values`` has those of all of them, where it is written out."""

    inputs: list[Any]
    outputs: list[Any]
    shared: dict[str, Any]
    updates: dict[Any, Any]
    names: dict[str, Any]
    flat: Flat | None = None


def namespace(how: str) -> tuple[dict[str, Any], Flat | None]:
    """``how``: "written", "reference" (steps are not rewritten either), or "flat" (without loops)."""
    if how == "flat":
        flat = Flat()
        return COMMON | flat.namespace(), flat
    mine: Any = pytensor
    if how == "reference":
        scan = partial(pytensor.scan, mode=PLAIN_STEP)
        mine = SimpleNamespace(scan=scan, shared=pytensor.shared, grad=pytensor.grad)
    rest = {
        "pytensor": mine,
        "loopax": loopax,
        "ifelse": ifelse,
        "OpFromGraph": OpFromGraph,
        "sparse": sparse,
        "typed_list": typed_list,
        "until": until,
    }
    return COMMON | rest, None


def build(program: Program, how: str = "written", values: Sequence[Any] | None = None) -> Graph:
    """The program's graph. ``values``, of its inputs: of a flat one, where its own are not meant."""
    names, flat = namespace(how)
    for x in program.inputs:
        exec(declaration(x), names)
        if flat is not None:
            flat.values.known[names[x.name]] = x.value
    if flat is not None and values is not None:
        for x, value in zip(program.given, values, strict=True):
            flat.values.known[names[x.name]] = value
    exec("\n".join(lines(program.statements)), names)
    return Graph(
        [names[x.name] for x in program.given],
        [pt.as_tensor(names[name]) for name in program.outputs],
        {x.name: names[x.name] for x in program.shared},
        {names[s]: names[v] for s, v in program.updates},
        names,
        flat,
    )
