"""Special functions on whatever there is: negative, huge, tiny, infinite and not a number."""

from tests.random_programs.writing import Writer, statement

ONE = [
    *["pt.erf({0})", "pt.erfc({0})", "pt.erfcx({0})", "pt.erfinv({0})", "pt.erfcinv({0})"],
    *["pt.gammaln({0})", "pt.gamma({0})", "pt.psi({0})", "pt.tri_gamma({0})", "pt.i0({0})"],
    *["pt.i1({0})", "pt.j0({0})", "pt.j1({0})", "pt.log1mexp({0})", "pt.special.logit({0})"],
    # SciPy's zeta, which PyTensor computes it by, takes as many steps as the argument is below 0.
    *["pt.special.factorial({0})", "pt.polygamma(2, pt.maximum({0}, -40.5))"],
]
TWO = [
    *["pt.gammainc({0}, {1})", "pt.gammaincc({0}, {1})", "pt.special.betaln({0}, {1})"],
    *["pt.special.beta({0}, {1})", "pt.special.poch({0}, {1})", "pt.iv({0}, {1})"],
    *["pt.ive({0}, {1})", "pt.jv({0}, {1})", "pt.kv({0}, {1})", "pt.owens_t({0}, {1})"],
    *["pt.special.xlogy({0}, {1})", "pt.special.xlog1py({0}, {1})", "pt.chi2sf({0}, {1})"],
    "pt.kve({0}, {1})",
]
THREE = [
    "pt.betainc({0}, {1}, {2})",
    "pt.hyp2f1({0}, {1}, 1.5, {2})",
    "pt.betaincinv({0}, {1}, {2})",
]
OVER_AN_AXIS = [
    *["pt.special.softmax({0}, axis={1})", "pt.special.log_softmax({0}, axis={1})"],
    *["pt.logsumexp({0}, axis={1})", "pt.log(pt.exp({0}).sum(axis={1}))"],
]


@statement("special function", 2)
def special_function(w: Writer) -> str:
    v = w.float()
    far = ["{0}", "{0}", "10 * {0}", "({0} - 30.25)", "1e-17 * {0}", "1e5 * {0}", "-pt.exp({0})"]
    return w.choice(ONE).format(w.choice(far).format(v.name))


@statement("special function of two")
def special_function_of_two(w: Writer) -> str:
    v = w.float()
    u = w.pick(lambda u: u.is_float and (u.shape == v.shape or not u.ndim))
    tame = "{0}", "pt.abs({0}) + 0.5", "pt.sigmoid({0})", "pt.exp({0})"
    return w.choice(TWO).format(w.choice(tame).format(v.name), w.choice(tame).format(u.name))


@statement("special function of three", 0.5)
def special_function_of_three(w: Writer) -> str:
    v = w.float()
    same = [w.pick(lambda u: u.is_float and (u.shape == v.shape or not u.ndim)) for _ in range(2)]
    if w.chance(0.7):
        return w.choice(THREE).format(
            f"pt.abs({v.name}) + 0.5",
            f"pt.abs({same[0].name}) + 0.5",
            f"pt.sigmoid({same[1].name})",
        )
    return w.choice(THREE).format(v.name, same[0].name, same[1].name)


@statement("softmax")
def softmax(w: Writer) -> str:
    v = w.float(1)
    return w.choice(OVER_AN_AXIS).format(v.name, w.axis(v))
