"""Integers and bools beside floats in one op: parts that have no derivative, among parts that have one."""

from tests.random_programs.statements.indices import basic, mask
from tests.random_programs.writing import Nothing, Writer, statement


def _discrete(w: Writer, shape: tuple[int, ...]) -> str:
    """An expression of integers or bools of this shape."""
    values = [v.name for v in w.pool if v.shape == shape and v.kind in "iub"]
    compared = [f"({v.name} > 0)" for v in w.pool if v.shape == shape]
    made = [f"np.ones({shape}, 'int64')", f"np.zeros({shape}, 'bool')", f"np.ones({shape}, 'int8')"]
    return w.choice([*values, *values, *compared, *made])


@statement("mixed join", 1.5)
def mixed_join(w: Writer) -> str:
    v = w.float(1, 3)
    u, axis = _discrete(w, v.shape), w.axis(v)
    forms = [
        f"pt.concatenate([{v.name}, {u}], axis={axis})",
        f"pt.concatenate([{u}, {v.name}], axis={axis})",
        f"pt.concatenate([{v.name}, {u}, 2 * {v.name}], axis={axis})",
        f"pt.stack([{u}, {v.name}], axis={axis})",
        f"pt.pad({v.name}, 1, constant_values={w.choice([0, 1, 3])})",
    ]
    if v.ndim == 1:
        forms += [
            f"pt.concatenate([np.array([1, 2]), {v.name}])",
            f"pt.concatenate([{v.name}, {v.name}[:1] > 0])",
        ]
        forms += [f"pt.stack([{v.name}[0], 1, {v.name}[-1], {v.name}[0] > 0])"] * 2
    return w.choice(forms)


@statement("mixed write", 1.5)
def mixed_write(w: Writer) -> str:
    v = w.float(1, 3)
    where = w.choice([basic(w, v), mask(w, v.shape[:1]), "np.array([0, -1, 0])"])
    scalars = [u.name for u in w.pool if not u.ndim and u.kind in "iub"]
    value = w.choice(["0", "1", "np.int8(2)", "np.True_", *scalars])
    kind = w.choice(["set_subtensor", "inc_subtensor"])
    form = w.choice(
        [
            f"pt.{kind}({v.name}[{where}], {value})",
            f"pt.{kind}({v.name}[{where}], ({v.name}[{where}] > 0))",
        ]
    )
    return form


@statement("mixed choice", 1.5)
def mixed_choice(w: Writer) -> str:
    v = w.float()
    u = _discrete(w, v.shape)
    forms = [
        "pt.switch({0} > 0.2, {0}, {1})",
        "pt.switch({1}, {0}, 1)",
        "pt.switch({0} > 0, 0, {0})",
    ]
    forms += ["pt.maximum({0}, {1})", "{0} * {1}", "{0} ** {1}", "pt.where({1}, {0}, {1})"]
    return w.choice(forms).format(v.name, u)


@statement("mixed product")
def mixed_product(w: Writer) -> str:
    v = w.float(1, 2)
    if not v.value.size:
        raise Nothing
    n = v.shape[0]
    u = f"np.arange({2 * n}).reshape((2, {n}))"
    forms = ["pt.dot({1}, {0})", "pt.dot({0}.T, {1}.T)", "pt.tensordot({0}, {1}, axes=[[0], [1]])"]
    return w.choice(forms).format(v.name, u)
