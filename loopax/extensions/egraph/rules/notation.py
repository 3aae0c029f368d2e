"""A readable notation of equations in the language of `loopax.extensions.egraph.language`.

    common divisor: x / a + y / a -> (x + y) / a if s == shape(x) == shape(y)

is ``name: before -> after if conditions``, with ``<->`` for a rule in both directions; an option
follows ``;``: ``stable 2`` or ``as_stable``. Terms are written in Python's syntax:

    x + y, -x, x >= y       the elementwise op of Python's operator; ``x @ y`` and ``x.T`` of matrices
    Exp(x), Switch(c, x, y) the elementwise op of that name; f(x), f(x, y) any
    2.0, lit(a * b)         a number; a number computed from numbers
    x[k]                    the k-th access of x
    sum(x), inv(x)          an op that is not elementwise, by its name; N2(f, x, y) any of two operands

A condition compares such terms, or is a relation of the language. A name in capitals abbreviates
conditions of the table. A rule may continue on the next line; a line that begins with ``#`` is a
comment.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from loopax.extensions.egraph.rules.rule import Rule

_ELEMENTWISE: dict[type[ast.AST], str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Div: "TrueDiv",
    ast.Pow: "Pow",
    ast.GtE: "GE",
    ast.LtE: "LE",
    ast.Eq: "EQ",
}
_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Eq: "=",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_NAMED = "sum diag inv det logdet signdet solve1 solve2 kron".split()
# Constructors and functions that are no ops, written unchanged.
_AS_IT_IS = "shape count Sh0 Sh1 Sh2 N2 Few Lin Quad".split()
_RULE = re.compile(r"(.+?): (.+?) (<?->) (.+?)(?: if (.+?))?(?:; (.+))?")


def equations(table: str, **conditions: str) -> tuple[Rule, ...]:
    """Parse the rules in a ``table``, with ``conditions`` as abbreviations."""
    lines: list[str] = []
    for line in filter(None, map(str.strip, table.splitlines())):
        if line.startswith("#"):
            continue
        if ": " in line:
            lines.append(line)
        else:
            lines[-1] += " " + line
    return tuple(rule for line in lines for rule in _rules(line, conditions))


def _rules(line: str, conditions: dict[str, str]) -> list[Rule]:
    match = _RULE.fullmatch(line)
    assert match is not None, line
    name, before, arrow, after, when, digits = match.groups()
    when = re.sub(r"\b[A-Z_]{3,}\b", lambda word: conditions[word[0]], when or "")
    facts = tuple(fact for x in _parsed(f"({when},)").elts for fact in _facts(x)) if when else ()
    left, right = (_term(_parsed(text)) for text in (before, after))
    if arrow == "<->":
        return [Rule(name, left, right, facts), Rule(f"{name}, back", right, left, facts)]
    is_stable = digits is not None and digits.startswith("stable")
    stable = int(digits.removeprefix("stable ")) if is_stable else 0
    return [Rule(name, left, right, facts, stable, digits == "as_stable")]


def _parsed(text: str) -> Any:
    return ast.parse(text, mode="eval").body


def _term(x: ast.expr) -> str:
    match x:
        case ast.Name(name):
            return name
        case ast.Constant(float(number)):
            return f"(Lit {number})"
        case ast.UnaryOp(ast.USub(), ast.Constant(float(number))):
            return f"(Lit {-number})"
        case ast.Constant(number):  # an access, or a length
            return str(number)
        case ast.UnaryOp(ast.USub(), operand):
            return f'(E1 "Neg" {_term(operand)})'
        case ast.BinOp(a, ast.MatMult(), b):
            return f'(N2 "dot" {_term(a)} {_term(b)})'
        case ast.BinOp(a, op, b) | ast.Compare(a, [op], [b]):
            return f'(E2 "{_ELEMENTWISE[type(op)]}" {_term(a)} {_term(b)})'
        case ast.Attribute(matrix, "T"):
            return f"(S 0 {_term(matrix)})"
        case ast.Subscript(array, number):
            return f"(S {_term(number)} {_term(array)})"
        case ast.Call(ast.Name("lit"), [number]):
            return f"(Lit {_number(number)})"
    assert isinstance(x, ast.Call) and isinstance(x.func, ast.Name), ast.dump(x)
    name, operands = x.func.id, "".join(f" {_term(operand)}" for operand in x.args)
    if name in _AS_IT_IS:
        return f"({name}{operands})"
    constructor_name = name if len(name) == 1 else f'"{name}"'  # a variable, or the name of an op
    return f"({'N' if name in _NAMED else 'E'}{len(x.args)} {constructor_name}{operands})"


def _number(x: ast.expr) -> str:
    match x:
        case ast.BinOp(a, op, b):
            return f"({_SYMBOLS[type(op)]} {_number(a)} {_number(b)})"
        case ast.Call(ast.Name("to_f64"), [number]):
            return f"(to-f64 {_number(number)})"
    return ast.unparse(x)


def _facts(x: ast.expr) -> list[str]:
    if isinstance(x, ast.Compare):
        written = _term if isinstance(x.ops[0], ast.Eq) else _number
        first = written(x.left)
        pairs = zip(x.ops, x.comparators, strict=True)
        return [f"({_SYMBOLS[type(op)]} {first} {written(other)})" for op, other in pairs]
    assert isinstance(x, ast.Call) and isinstance(x.func, ast.Name), ast.dump(x)
    return [f"({x.func.id}{''.join(f' {_term(operand)}' for operand in x.args)})"]
