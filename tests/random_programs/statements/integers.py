"""Arithmetic of integers that wraps around, and what reads its results in another dtype.

PyTensor's rewrites move factors and signs past sums, products and casts: exact for integers of one dtype
only.
"""

from tests.random_programs.writing import Value, Writer, statement

NARROW = "int8", "uint8", "int16", "uint16", "int32", "uint32"
ONE = [
    *["-{0}", "pt.abs({0})", "pt.sqr({0})", "{0} ** 3", "{1} * {0}", "{0} + {1}", "{0} - {1}"],
    *["{1} - {0}", "~{0}", "pt.sign(-{0})", "(-{0}) * 0.5", "({1} * {0}) / 3", "({1} * {0}) % 5"],
    *["(-{0}) // 2", "({0} + {1}) > 0", "pt.eq(-{0}, {1} * {0})", "pt.log1p(abs({1} * {0}))"],
    *["pt.clip({1} * {0}, -100, 100)", "pt.switch({1} * {0} > 0, -{0}, 2.5)"],
]
TWO = [
    *["{0} + {1}", "{0} - {1}", "{0} * {1}", "({0} + {1}) - {1}", "({0} * {1}) / {1}"],
    *["(-{0}) * {1}", "(-{0}) / (-{1})", "pt.sqr({0} - {1})", "({0} - {1}) > 0", "-({0} * {1})"],
    *["pt.maximum(-{0}, -{1})", "pt.minimum({0} * {1}, {0})", "({0} + {1}) * 0.5"],
    *["pt.sign({0} * {1})", "pt.abs({0} * {1})", "pt.ge({0} - {1}, 0)", "({0} * {1}) // 3"],
]
REDUCED = [
    *["(-{0})", "({1} * {0})", "({0} - {1})", "pt.sqr({0})", "({0} * {0})", "pt.abs(-{0})"],
    *["({0} / {1})", "({1} * {0}).astype('int64')", "(-{0}).astype('float64')"],
]
REDUCTIONS = ["sum", "sum", "prod", "max", "min", "mean", "argmax"]


def _integers(w: Writer, least: int = 0) -> Value:
    return w.pick(lambda v: v.kind in "iu" and v.ndim >= least and v.value.size > 0)


def _constant(w: Writer, v: Value) -> str:
    """A number, weakly typed or of the dtype of ``v``."""
    number = w.choice([2, 3, 100, 120] if v.kind == "u" else [2, -1, -3, 100, -128])
    return w.choice([str(number), f"np.{v.dtype}({number})"])


@statement("wrapping arithmetic", 1.5)
def wrapping_arithmetic(w: Writer) -> str:
    v = _integers(w)
    if w.chance(0.5):
        return w.choice(ONE).format(v.name, _constant(w, v))
    other = w.pick(lambda u: u.kind in "iub" and (u.shape == v.shape or not u.ndim))
    return w.choice(TWO).format(v.name, other.name)


@statement("wrapping reduction", 1.5)
def wrapping_reduction(w: Writer) -> str:
    v = _integers(w, 1)
    operand = w.choice(REDUCED).format(v.name, _constant(w, v))
    axis = w.choice([None, w.axis(v)])
    return f"pt.{w.choice(REDUCTIONS)}({operand}, axis={axis})"


@statement("wrapping product")
def wrapping_product(w: Writer) -> str:
    v = w.pick(lambda v: v.kind in "iu" and 1 <= v.ndim <= 3)
    if v.ndim == 3:
        return f"pt.matmul(-{v.name}, {v.name}.swapaxes(-1, -2) * 0.5)"
    other = w.pick(lambda u: u.ndim in (1, 2) and u.shape[0] == v.shape[-1])
    c = _constant(w, v)
    forms = ["pt.dot({0}, {1})", "pt.dot(-{0}, {1})", "pt.dot({2} * {0}, {1})", "{0} @ (-{1})"]
    if v.ndim == 1:
        forms += ["pt.outer({0}, {2} * {0})", "pt.outer(-{0}, {3})"]
    column = other.name if other.ndim == 1 else f"{other.name}[..., 0]"
    return w.choice(forms).format(v.name, other.name, c, column)


@statement("narrow integers", 1.5)
def narrow_integers(w: Writer) -> str:
    """Whole numbers of a narrow dtype, its ends among them."""
    v = w.pick(lambda v: v.kind in "iub")
    return f"({v.name} * {w.choice([1, 3, 37, 100])}).astype({w.choice(NARROW)!r})"
