"""What an expression is written as, and what it reads."""

import numpy as np
import pytest

from loopax.numba_backend.emit.expressions import (
    FALSE,
    TRUE,
    as_dim,
    as_element,
    call,
    expr,
    joined,
    list_of,
    literal,
    local,
    tuple_of,
)

a, i, n, m = map(local, ("a", "i", "n", "m"))


@pytest.mark.parametrize(
    ("expression", "text", "names"),
    [
        (expr("{} if {} else {}", n + 1, i, m), "(n + 1) if i else m", "nim"),
        (call("index", i, n - 1), "index(i, n - 1)", "in"),
        (a[i].method("astype", "np.int8"), "a[i].astype(np.int8)", "ai"),
        ((n + 1).method("item"), "(n + 1).item()", "n"),
        (a[[i, 0, n + 1]], "a[i, 0, n + 1]", "ain"),
        (a[[]], "a[()]", "a"),
        (a.length(1), "a.shape[1]", "a"),
        (a.T, "a.T", "a"),
        (tuple_of([n]), "(n,)", "n"),
        (tuple_of([]), "()", ""),
        (list_of([n, 2]), "[n, 2]", "n"),
        (joined([expr("{} != 0", n), m], " and "), "(n != 0) and m", "nm"),
        (joined([n], " and "), "n", "n"),
    ],
    ids=str,
)
def test_what_is_written_and_what_it_reads(expression, text, names):
    assert str(expression) == text and expression.names == tuple(names)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ((n + 1) * 2, "(n + 1) * 2"),
        (n - (m - 1), "n - (m - 1)"),
        (n - m - 1, "n - m - 1"),
        (n * m + i, "n * m + i"),
        (n * (m * i), "n * (m * i)"),
        (3 + n, "3 + n"),
        (2 - n, "2 - n"),
        (n // 2 % m, "n // 2 % m"),
        (7 // n, "7 // n"),
        (7 % n, "7 % n"),
        (sum([n, 2, m]), "n + 2 + m"),
        (0 + n * 1 - 0, "n"),
        (n * expr("{} or {}", m, i), "n * (m or i)"),
        (n * literal(-1.5), "n * (-1.5)"),
    ],
)
def test_operators_hold_together_as_in_python(expression, text):
    assert str(expression) == text


def test_a_product_with_zero_is_zero():
    assert n * 0 == 0 * n == 0 % n == 0 // n == 0


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.1, "0.1"),
        (-2, "-2"),
        (True, "True"),
        (np.float32(0.5), "np.float32(0.5)"),
        (np.uint8(3), "np.uint8(3)"),
        (np.float64("nan"), "np.nan"),
        (np.float64("-inf"), "-np.inf"),
        (np.float32("inf"), "np.float32(np.inf)"),
        (np.complex128(complex(-0.0, 2.0)), "np.complex128(complex(-0.0, 2.0))"),
    ],
)
def test_literals(x, text):
    actual = literal(x)
    assert str(actual) == text and not actual.names
    np.testing.assert_equal(eval(text, {"np": np}), actual.value)
    assert str(eval(text, {"np": np})) == str(x)


def test_literals_of_a_dtype():
    assert literal(1, "float64").text == "1.0" and literal(1, "float32").value == 1.0
    assert expr("{} ** {}", literal(-1, "float64"), n).text == "(-1.0) ** n"


def test_dimensions():
    assert as_dim(literal(np.int8(-3))) == -3 and as_dim(n) is n
    assert as_dim(TRUE) is TRUE and as_dim(literal(2.0)).text == "2.0"
    assert as_element(3).value == 3 and as_element(n) is n


def test_equal_by_what_is_written():
    assert n + 1 == local("n") + 1 and len({n + 1, n + 1, n + 2}) == 2
    assert n != "n" and TRUE != FALSE and n.is_name and not (n + 1).is_name


def test_text_does_not_lose_its_names():
    with pytest.raises(TypeError, match="expr"):
        f"{n} + 1"
