"""Sums, products, extremes, cumulative ones, sorting."""

from tests.random_programs.writing import Writer, statement

REDUCED = [
    "sum",
    "sum",
    "prod",
    "max",
    "min",
    "mean",
    "var",
    "std",
    "any",
    "all",
    "argmax",
    "argmin",
]


@statement("reduction", 4)
def reduction(w: Writer) -> str:
    v = w.array()
    name = w.choice(REDUCED)
    if name in ("any", "all") and v.kind != "b":
        return f"pt.{name}({v.name} > 0, axis={w.axis(v)})"
    axis = w.choice([None, w.axis(v), w.axis(v), (0, v.ndim - 1) if v.ndim > 1 else 0])
    if name in ("argmax", "argmin") and isinstance(axis, tuple):
        axis = None
    keep = ", keepdims=True" if w.chance(0.3) else ""
    return f"pt.{name}({v.name}, axis={axis}{keep})"


@statement("cumulative", 2)
def cumulative(w: Writer) -> str:
    v = w.array()
    name = w.choice(["cumsum", "cumprod"])
    axis = w.choice([None, w.axis(v), w.axis(v)])
    # Of narrow integers PyTensor declares their dtype and computes another.
    is_narrow = v.kind in "iu" and v.value.itemsize < 8
    operand = f"{v.name}.astype('int64')" if is_narrow else v.name
    return f"pt.{name}({operand}, axis={axis})"


@statement("sorting")
def sorting(w: Writer) -> str:
    v = w.array()
    form = w.choice(
        [
            "pt.sort({0}, axis={1})",
            "pt.argsort({0}, axis={1}, kind='stable')",
            "pt.median({0}, axis={1})",
            "pt.ptp({0}, axis={1})",
        ]
    )
    return form.format(v.name, w.axis(v))


@statement("searching")
def searching(w: Writer) -> str:
    v = w.array(1, 1)
    u = w.pick(lambda u: u.kind == v.kind)
    side = w.choice(["left", "right"])
    forms = [
        f"pt.extra_ops.searchsorted(pt.sort({v.name}), {u.name}, side={side!r})",
        f"pt.extra_ops.bincount(pt.abs({v.name}).astype('int64') % 5, minlength=5)",
        f"pt.diff({v.name}, n={w.choice([1, 2])})",
    ]
    return w.choice(forms)
