"""Python expressions, with the locals that they read, and with their value where they are literals.

    a[i, 0]                            ->  a[i, 0]             reads a and i
    call("index", k, n + 1)            ->  index(k, n + 1)     reads k and n
    expr("{} if {} else {}", x, c, y)  ->  x if c else y       reads x, c and y
    literal(np.float32(0.5))           ->  np.float32(0.5)     is 0.5

Python's operators combine expressions and integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

_ANY, _SUM, _PRODUCT, _ATOM = range(4)  # precedence of an expression


class Expr:
    """An expression: its ``text``, the ``names`` of its locals, and its ``value`` if it is a literal.

    Expressions of equal text are equal.
    """

    __slots__ = ("_rank", "names", "text", "value")

    def __init__(
        self, text: str, names: tuple[str, ...] = (), value: float | None = None, rank: int = _ATOM
    ) -> None:
        self.text, self.names, self.value, self._rank = text, names, value, rank

    @property
    def is_name(self) -> bool:
        """Whether the expression is a single local."""
        return self.names == (self.text,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        raise TypeError("an f-string would forget which locals an expression reads: use `expr`")

    # -- arrays and objects ----------------------------------------------------------------------

    def __getitem__(self, at: Index | Sequence[Index]) -> Expr:
        """``a[i, j]``; the index of a 0-d array is the empty tuple."""
        index = [at] if isinstance(at, int | Expr) else at
        text = ", ".join(map(text_of, index)) or "()"
        return Expr(f"{as_operand(self)}[{text}]", names_of((self, *index)))

    __iter__ = None  # or Python would ask for a[0], a[1] and so on

    @property
    def T(self) -> Expr:
        return Expr(f"{as_operand(self)}.T", self.names)

    def length(self, axis: int) -> Expr:
        """``a.shape[axis]``"""
        return Expr(f"{as_operand(self)}.shape[{axis}]", self.names)

    def method(self, name: str, *operands: Operand) -> Expr:
        """``a.name(x, y)``"""
        return Expr(call(f"{as_operand(self)}.{name}", *operands).text, names_of((self, *operands)))

    # -- numbers ---------------------------------------------------------------------------------

    def astype(self, dtype: str) -> Expr:
        """``np.float32(x)``"""
        return call(dtype_name(dtype), self)

    def __add__(self, other: Dim) -> Expr:
        return self if other == 0 else _infix(self, "+", other, _SUM)

    def __radd__(self, other: int) -> Expr:
        return self if other == 0 else _infix(other, "+", self, _SUM)

    def __sub__(self, other: Dim) -> Expr:
        return self if other == 0 else _infix(self, "-", other, _SUM)

    def __rsub__(self, other: int) -> Expr:
        return _infix(other, "-", self, _SUM)

    def __mul__(self, other: Dim) -> Any:
        return self if other == 1 else 0 if other == 0 else _infix(self, "*", other, _PRODUCT)

    def __rmul__(self, other: int) -> Any:
        return self if other == 1 else 0 if other == 0 else _infix(other, "*", self, _PRODUCT)

    def __floordiv__(self, other: Dim) -> Expr:
        return _infix(self, "//", other, _PRODUCT)

    def __rfloordiv__(self, other: int) -> Any:
        return 0 if other == 0 else _infix(other, "//", self, _PRODUCT)

    def __mod__(self, other: Dim) -> Expr:
        return _infix(self, "%", other, _PRODUCT)

    def __rmod__(self, other: int) -> Any:
        return 0 if other == 0 else _infix(other, "%", self, _PRODUCT)


Dim = int | Expr  # a length: a number or a local
Index = int | Expr
Operand = Expr | complex | str | None  # a part of an expression: another one, a constant, or source


def _infix(a: Dim, symbol: str, b: Dim, rank: int) -> Expr:
    left = text_of(a) if _rank_of(a) >= rank else f"({text_of(a)})"
    right = text_of(b) if _rank_of(b) > rank else f"({text_of(b)})"
    return Expr(f"{left} {symbol} {right}", names_of((a, b)), rank=rank)


def _rank_of(x: Operand) -> int:
    return x._rank if isinstance(x, Expr) else _ATOM


def text_of(x: Operand) -> str:
    """The source of an expression or a number."""
    return x.text if isinstance(x, Expr) else str(x)


def names_of(operands: Iterable[Any]) -> tuple[str, ...]:
    """The names of the locals in expressions."""
    names: tuple[str, ...] = ()
    for x in operands:
        if isinstance(x, Expr):
            names += x.names
    return names


# -- constructors of expressions --------------------------------------------------------------------


def local(name: str) -> Expr:
    return Expr(name, (name,))


def expr(template: str, *operands: Operand) -> Expr:
    """Fill ``template`` with ``operands``, in parentheses where they need them.

    >>> expr("{} if {} > 0 else {}", local("x"), local("n") + 1, 0.0)
    x if (n + 1) > 0 else 0.0
    """
    return Expr(template.format(*map(as_operand, operands)), names_of(operands), rank=_ANY)


def as_operand(x: Operand) -> str:
    """The source of an expression as an operand of another one."""
    return text_of(x) if _rank_of(x) == _ATOM else f"({text_of(x)})"


def call(function: str, *operands: Operand) -> Expr:
    """``function(a, b)``."""
    return Expr(f"{function}({', '.join(map(text_of, operands))})", names_of(operands))


def tuple_of(parts: Sequence[Operand]) -> Expr:
    texts = [text_of(x) for x in parts]
    return Expr(f"({', '.join(texts)}{',' * (len(texts) == 1)})", names_of(parts))


def list_of(parts: Sequence[Operand]) -> Expr:
    return Expr(f"[{', '.join(map(text_of, parts))}]", names_of(parts))


def joined(parts: Sequence[Expr], symbol: str) -> Expr:
    """Join ``parts`` by ``symbol``: ``a + b + c``."""
    if len(parts) == 1:
        return parts[0]
    return Expr(symbol.join(map(as_operand, parts)), names_of(parts), rank=_ANY)


# -- numbers -----------------------------------------------------------------------------------------


def dtype_name(dtype: str) -> str:
    return "np.bool_" if dtype == "bool" else f"np.{dtype}"


def literal(x: object, dtype: str | None = None) -> Expr:
    """Write a number of ``dtype``, by default its own: ``0.5``, ``np.float32(0.5)``, ``np.nan``."""
    x = np.asarray(x, dtype=dtype)
    kind, name = x.dtype.kind, str(x.dtype)
    if kind == "c":  # repr has no nan, and loses the sign of a zero
        text = f"complex({literal(x.real)!s}, {literal(x.imag)!s})"
    elif kind == "f" and not np.isfinite(x):
        text = "np.nan" if np.isnan(x) else "np.inf" if x > 0 else "-np.inf"
    else:
        text = repr(x.item())
    if name in ("bool", "int64", "float64"):  # -1.0 ** x is not (-1.0) ** x
        return Expr(text, value=x.item(), rank=_ANY if text.startswith("-") else _ATOM)
    return Expr(f"np.{name}({text})", value=x.item())


def as_element(n: Dim) -> Expr:
    """Convert a length or an index to an element, a number of the program."""
    return n if isinstance(n, Expr) else literal(n, "int64")


def as_dim(x: Expr) -> Dim:
    """Convert an element to a length or an index: an integer where it is a literal."""
    return x.value if isinstance(x.value, int) and not isinstance(x.value, bool) else x


TRUE, FALSE = literal(True), literal(False)
