"""How a tree of statements is printed."""

from textwrap import dedent

from loopax.numba_backend.emit.expressions import call, expr, local, tuple_of
from loopax.numba_backend.emit.statements import (
    Assign,
    Block,
    Break,
    Do,
    For,
    Function,
    If,
    Raise,
    Region,
    Return,
)

a, i, n, x, y = map(local, ("a", "i", "n", "x", "y"))


def printed(*statements):
    return "\n".join(Block([*statements]).lines())


def text(lines):
    return dedent(lines).strip()


def test_a_function():
    f = Function("f", [a, n])
    f.body.add(For(i, n, Block([Assign((a[i],), n, "+=")])))
    f.body.add(Return(tuple_of([a])))
    assert str(f) == text("""
        def f(a, n):
            for i in range(n):
                a[i] += n
            return (a,)
    """)


def test_each_statement():
    actual = printed(
        Assign((x, y), tuple_of([y, x])),
        Do(call("size", n)),
        For(i, 3, Block([If(x, Block([Break()]), Block([Raise("ValueError", "it's x")]))])),
    )
    assert actual == text("""
        x, y = (y, x)
        size(n)
        for i in range(3):
            if x:
                break
            else:
                raise ValueError("it's x")
    """)


def test_what_stays_empty_is_not_printed():
    place, checks = Block(), If(expr("{} > 0", n))
    loop = For(i, n)
    assert printed(place, checks, loop) == "for i in range(n):\n    pass"
    loop.body.add(Do(call("f", i)))
    place.add(Assign((x,), y))
    checks.body.add(Do(call("size", n)))
    assert printed(place, checks, loop) == text("""
        x = y
        if n > 0:
            size(n)
        for i in range(n):
            f(i)
    """)
    assert printed(If(x, Block(), Block([Break()]))) == "if x:\n    pass\nelse:\n    break"


def test_a_region_is_its_statements_or_a_call():
    region = Region(Block([Assign((x,), n), Assign((y,), x)]))
    assert printed(region) == "x = n\ny = x"
    region.call = Assign((x, y), call("f", n))
    assert printed(region) == "x, y = f(n)"


def test_names_are_new():
    f = Function("f", [local("x0")])
    assert [f.fresh("x"), f.fresh("x"), f.fresh("t")] == ["x1", "x2", "t0"]
