"""Types of a callable in words: ``program: (x: float64[?], n: int64[]) -> {'value': float64[]}``."""

from __future__ import annotations

from collections.abc import Sequence

from pytensor.graph.type import Type
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type_other import NoneTypeT, SliceType
from pytensor.typed_list.type import TypedListType

from loopax.ir.program import Program


class _Word:
    """A leaf whose ``repr`` is a word without quotation marks."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def type_in_words(t: Type) -> str:
    """``float64[?, 3]``, ``csr[float64]``, ``generator``, ``list of float64[?]``, ``slice``, ``None``."""
    match t:
        case TypedListType(ttype=of_items):
            return f"list of {type_in_words(of_items)}"
        case RandomType():
            return "generator"
        case SliceType():
            return "slice"
        case NoneTypeT():
            return "None"
    shape = ", ".join("?" if n is None else str(n) for n in getattr(t, "shape", ()))
    kind = f"{t.format} " if isinstance(t, SparseTensorType) else ""
    return f"{kind}{getattr(t, 'dtype', t)}[{shape}]"


def type_text(program: Program, names: Sequence[str]) -> str:
    """The signature of a program with the types of its inputs, by these names, and outputs."""
    inputs = [
        f"{name}: {type_in_words(i.variable.type)}"
        for name, i in zip(names, program.inputs, strict=True)
    ]
    leaves = [_Word(type_in_words(v.type)) for v in program.graph.outputs[: program.n_returned]]
    try:
        returned = repr(program.build(leaves))
    except Exception:  # a class of the user's that can only hold arrays
        returned = repr(leaves)
    return f"{program.name}: ({', '.join(inputs)}) -> {returned}"
