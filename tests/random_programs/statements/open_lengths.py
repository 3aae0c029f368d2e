"""Arrays whose length only the run tells, along any axis: what masks leave, and rows of loops that stop."""

from tests.random_programs.statements.indices import ends, scalar_index
from tests.random_programs.writing import Nothing, Value, Writer, statement


def row_mask(w: Writer, v: Value, axis: int) -> str:
    """A mask along ``axis`` that follows from values."""
    fitting = [u for u in w.pool if u.shape == (v.shape[axis],)]
    if fitting and w.chance(0.6):
        u = w.choice(fitting)
        return u.name if u.kind == "b" else f"({u.name} > 0)"
    others = tuple(k for k in range(v.ndim) if k != axis)
    return f"({v.name} > 0).any(axis={others})" if others else f"({v.name} > 0)"


def in_another_order(w: Writer, text: str, ndim: int) -> str:
    order = w.rng.sample(range(ndim), ndim)
    return f"{text}.dimshuffle({', '.join(map(str, order))})" if w.chance(0.5) else text


def whole_or_reduced(w: Writer, text: str, ndim: int) -> str:
    """The array itself, or what reads flat positions, or all of it at once."""
    axis = w.rng.randrange(ndim)
    name = w.choice(["argmax", "argmin", "max", "sum", "cumsum", "sort"])
    forms = [
        *("{0}", "{0}", "{0}"),
        *("pt.argmax({0})", "pt.argmin({0})", "{0}.ravel()", "{0}.ravel()[pt.argmax({0})]"),
        *("pt.{1}({0}, axis={2})", "pt.nonzero({0})[{2}]", "pt.flatnonzero({0})"),
    ]
    return w.choice(forms).format(text, name, axis)


@statement("mask along an axis", 2)
def mask_along_an_axis(w: Writer) -> str:
    v = w.array(1, 3)
    axis = w.rng.randrange(v.ndim)
    parts, ndim = [], v.ndim
    for k in range(v.ndim):
        if k == axis:
            parts.append(row_mask(w, v, axis))
        elif w.chance(0.6):
            parts.append(":")
        elif w.chance(0.6):
            parts.append(ends(w, v.shape[k]))
        else:
            parts.append(scalar_index(w, v.shape[k]))
            ndim -= 1
    text = f"{v.name}[{', '.join(parts)}]"
    return whole_or_reduced(w, in_another_order(w, text, ndim), ndim)


@statement("write along an axis", 1)
def write_along_an_axis(w: Writer) -> str:
    v = w.array(1, 3)
    if v.kind == "b":
        raise Nothing
    axis = w.rng.randrange(v.ndim)
    at = f"{v.name}[{', '.join([':'] * axis + [row_mask(w, v, axis)])}]"
    value = w.choice([f"2 * {at}", f"-{at}", f"{v.name}.sum(axis={axis}, keepdims=True)", "1"])
    return f"pt.{w.choice(['set_subtensor', 'inc_subtensor'])}({at}, {value})"


@statement("rows of a loop that stops", 1.5)
def rows_of_a_loop_that_stops(w: Writer) -> str:
    v = w.pick(lambda v: v.is_float and 1 <= v.ndim <= 3 and v.value.size > 0)
    end = w.choice([-1, 0, 0.5, 2])
    text = (
        f"pytensor.scan(lambda r, c: ((0.5 * c + r).astype({v.dtype!r}), until(c.sum() > {end})), "
        f"sequences=[{v.name}], outputs_info=[pt.zeros_like({v.name}[0])], return_updates=False)"
    )
    return whole_or_reduced(w, in_another_order(w, text, v.ndim), v.ndim)
