"""Elementwise arithmetic, comparisons, casts: of floats, small integers and bools alike."""

from tests.random_programs.writing import Writer, statement

UNARY = [
    *["pt.tanh({0})", "pt.sin({0})", "pt.cos({0})", "pt.exp({0})", "pt.sqrt(pt.abs({0}))"],
    *["pt.sigmoid({0})", "pt.softplus(1.0 * {0})", "pt.log1p(pt.abs({0}))", "pt.expm1({0})"],
    *["pt.arctan({0})", "{0} ** 2", "{0} ** 3", "1 / {0}", "-{0}", "pt.abs({0})", "pt.sqr({0})"],
    *["pt.log({0})", "pt.arcsinh({0})", "pt.sinh(0.1 * {0})", "pt.log(pt.sigmoid({0}))"],
    *["pt.log1p(pt.exp({0}))", "pt.log(1 - pt.sigmoid({0}))", "{0} ** 0.5", "pt.exp2({0})"],
    *["pt.sqrt({0} ** 2)", "pt.log(pt.exp({0}))", "2 * {0} - 1", "{0} / 3", "pt.log2({0})"],
]
ROUNDING = [
    *["pt.floor({0})", "pt.ceil({0})", "pt.trunc({0})", "pt.round({0})", "pt.sign({0})"],
    *["pt.isnan({0})", "pt.isinf({0})", "{0} > 0", "pt.eq({0}, 0)", "pt.ge({0}, 0.5)"],
    *["pt.clip({0}, -1, 1)", "pt.clip({0}, 0, 3)", "pt.round({0}, mode='half_away_from_zero')"],
    "pt.nan_to_num({0})",
]
BINARY = [
    *["{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "pt.maximum({0}, {1})"],
    *["pt.minimum({0}, {1})", "pt.arctan2({0}, {1})", "pt.logaddexp({0}, {1})"],
    *[
        "pt.switch({0} > {1}, {0}, {1})",
        "{0} * pt.sigmoid({1})",
        "pt.abs({0}) ** {1}",
        "{0} ** {1}",
    ],
]
COMPARING = [
    *["{0} < {1}", "{0} >= {1}", "pt.eq({0}, {1})", "pt.neq({0}, {1})", "pt.isclose({0}, {1})"],
    *["pt.where({0} < {1}, {0}, 0)", "pt.switch({1}, {0}, 1)", "pt.and_({0} > 0, {1} > 0)"],
    *["pt.or_({0} > 0, {1} > 1)"],
]
DIVIDING = ["{0} // {1}", "{0} % {1}", "pt.divmod({0}, {1})[0]", "pt.divmod({0}, {1})[1]"]
INTEGERS = ["{0} & {1}", "{0} | {1}", "{0} ^ {1}", "~{0}"]
DTYPES = ["float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool", "uint16"]


@statement("unary", 5)
def unary(w: Writer) -> str:
    return w.choice(UNARY).format(w.pick().name)


@statement("binary", 6)
def binary(w: Writer) -> str:
    v = w.pick()
    return w.choice(BINARY).format(v.name, w.like(v).name)


@statement("rounding")
def rounding(w: Writer) -> str:
    return w.choice(ROUNDING).format(w.pick().name)


@statement("comparison")
def comparison(w: Writer) -> str:
    v = w.pick()
    return w.choice(COMPARING).format(v.name, w.like(v).name)


@statement("division", 1.5)
def division(w: Writer) -> str:
    v = w.pick()
    other = w.like(v).name if w.chance(0.6) else w.choice(["2", "0.7", "-3", "3", "0"])
    one, two = w.choice([(v.name, other), (other, v.name)])
    return w.choice(DIVIDING).format(one, two)


@statement("bits")
def bits(w: Writer) -> str:
    v = w.pick(lambda v: v.kind in "iub")
    other = w.pick(lambda u: u.kind in "iub" and (u.shape == v.shape or not u.ndim))
    return w.choice(INTEGERS).format(v.name, other.name)


@statement("cast", 1.5)
def cast(w: Writer) -> str:
    dtype = w.choice(DTYPES)
    # What does not fit into an integer is for each machine to say.
    least, most = (-120, 120) if dtype[0] == "i" else (0, 120)
    v = w.pick(
        lambda v: (
            not v.is_float
            or dtype[0] not in "iu"
            or bool(((v.value >= least) & (v.value <= most)).all())
        )
    )
    return f"{v.name}.astype({dtype!r})"
