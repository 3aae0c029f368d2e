"""What moves elements: joins, repeats, reshapes, transposes, diagonals."""

from tests.random_programs.writing import Nothing, Writer, statement


@statement("join", 1.5)
def join(w: Writer) -> str:
    v = w.array()
    u = w.pick(lambda u: u.shape == v.shape)
    form = w.choice(["pt.stack([{0}, {1}], axis={2})", "pt.concatenate([{0}, {1}], axis={2})"])
    return form.format(v.name, u.name, w.axis(v))


@statement("rearranged", 2)
def rearranged(w: Writer) -> str:
    v = w.array()
    axis = w.axis(v)
    forms = [
        f"pt.repeat({v.name}, {w.choice([1, 2])}, axis={axis})",
        f"pt.tile({v.name}, {w.choice(['2', '(2, 1)', '(1, 2)'])})",
        f"pt.roll({v.name}, {w.choice([1, -1, 2])}, axis={axis})",
        f"pt.flip({v.name}, axis={axis})",
        f"{v.name}.T",
        f"pt.moveaxis({v.name}, 0, -1)",
        f"pt.expand_dims({v.name}, {axis})",
        f"{v.name}.ravel()",
        f"{v.name}.reshape((-1, {w.choice([1, v.shape[-1]])}))",
        f"{v.name}.reshape(({v.name}.shape[0], -1))",
        f"pt.broadcast_to({v.name}, (2, *{v.name}.shape))",
        f"pt.zeros_like({v.name})",
        f"pt.ones_like({v.name}) * 0.3",
        f"pt.full(({v.name}.shape[0], 2), 0.5)",
        f"pt.pad({v.name}, 1, mode={w.choice(['constant', 'edge', 'reflect', 'wrap'])!r})",
    ]
    return w.choice(forms)


@statement("ranges")
def ranges(w: Writer) -> str:
    v = w.array()
    forms = [
        f"pt.arange({v.name}.shape[0])",
        f"pt.arange({v.name}.shape[0]) * {v.name}.sum()",
        f"pt.linspace(0, 1, {v.name}.shape[-1])",
        f"pt.eye({v.name}.shape[0])",
        f"pt.tri({v.name}.shape[-1])",
    ]
    counts = [
        u for u in w.pool if u.name[0] == "x" and not u.ndim and u.dtype == "int64" and u.value > 0
    ]
    if counts:
        n = w.choice(counts).name
        forms += [f"pt.arange({n}) * 0.5", f"pt.ones(({n}, 2))", f"pt.arange(1, {n} + 1)"] * 2
    return w.choice(forms)


@statement("diagonal")
def diagonal(w: Writer) -> str:
    v = w.array(1, 3)
    if v.ndim == 1:
        return f"pt.diag({v.name}, {w.choice([0, 1, -1])})"
    forms = ["pt.diagonal({0}, {1})", "pt.triu({0}, {1})", "pt.tril({0}, {1})"]
    if v.ndim == 2:
        forms += ["pt.fill_diagonal({0}, 1)", "pt.trace({0})"]
    return w.choice(forms).format(v.name, w.choice([0, 1, -1]))


@statement("static shape", 0.5)
def static_shape(w: Writer) -> str:
    v = w.array()
    if v.ndim == 0:
        raise Nothing
    shape = tuple(n if w.chance(0.5) else None for n in v.shape)
    return f"pt.specify_shape({v.name}, {shape})"
