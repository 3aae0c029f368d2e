"""Reads and writes: slices that NumPy clips, indices that are computed, arrays, masks, and their mixes."""

from tests.random_programs.writing import Value, Writer, statement


def ends(w: Writer, n: int) -> str:
    """A slice, often past an end."""
    bound = [None, None, *range(-n - 2, n + 3)]
    start, stop = w.choice(bound), w.choice(bound)
    step = w.choice([None, None, 1, -1, 2, -2, -3])
    text = [str(x) if x is not None else "" for x in (start, stop, step)]
    return ":".join(text if step is not None else text[:2])


def computed(w: Writer, n: int) -> str:
    """An index that a value gives, in range."""
    by = w.pick(lambda v: not v.ndim and v.kind in "iu")
    return w.choice([f"{by.name} % {n}", f"-1 - {by.name} % {n}"])


def scalar_index(w: Writer, n: int) -> str:
    scalars = [v for v in w.pool if not v.ndim and v.kind in "iu"]
    return computed(w, n) if scalars and w.chance(0.4) else str(w.choice(range(-n, n)))


def array_index(w: Writer, n: int, length: int | None = None) -> str:
    arrays = [v for v in w.pool if v.ndim == 1 and v.kind in "iu" and v.value.size]
    if length is None and arrays and w.chance(0.5):
        return f"{w.choice(arrays).name} % {n}"
    values = [w.choice(range(-n, n)) for _ in range(length or w.choice([1, 2, 3]))]
    return f"np.array({values})"


def constant_mask(w: Writer, shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"np.array({[w.chance(0.6) for _ in range(shape[0])]})"
    return f"np.array({[[w.chance(0.6) for _ in range(shape[1])] for _ in range(shape[0])]})"


def mask(w: Writer, shape: tuple[int, ...]) -> str:
    fitting = [v for v in w.pool if v.shape == shape and v.kind == "b"]
    if fitting and w.chance(0.6):
        return w.choice(fitting).name
    by = [v for v in w.pool if v.shape == shape and v.kind in "iuf"]
    if by and w.chance(0.5):
        return f"{w.choice(by).name} > 0"
    return constant_mask(w, shape)


def basic(w: Writer, v: Value) -> str:
    parts = []
    for n in v.shape[: w.rng.randint(1, v.ndim)]:
        parts.append(scalar_index(w, n) if w.chance(0.3) else ends(w, n))
    if w.chance(0.1):
        parts.insert(w.rng.randint(0, len(parts)), "None")
    if len(parts) < v.ndim and w.chance(0.15):
        parts.insert(0, "...")
    return ", ".join(parts)


def advanced(w: Writer, v: Value) -> str:
    """Arrays of one length, slices and numbers beside them, a mask in the place of one."""
    parts, length = [], w.choice([None, 2])
    for n in v.shape[: w.rng.randint(1, v.ndim)]:
        kind = w.rng.random()
        if kind < 0.5:
            parts.append(array_index(w, n, length))
        elif kind < 0.8:
            parts.append(ends(w, n))
        else:
            parts.append(scalar_index(w, n))
    return ", ".join(parts)


def masked(w: Writer, v: Value) -> str:
    if v.ndim > 1 and w.chance(0.3):
        parts = [mask(w, v.shape[:2])]
        rest = v.shape[2:]
    else:
        parts, rest = [mask(w, v.shape[:1])], v.shape[1:]
    if v.ndim > 1 and len(rest) == v.ndim - 1 and w.chance(0.3):
        parts = [ends(w, v.shape[0]), mask(w, v.shape[1:2])]
        rest = v.shape[2:]
    if rest and w.chance(0.4):
        parts.append(ends(w, rest[0]) if w.chance(0.6) else scalar_index(w, rest[0]))
    return ", ".join(parts)


def where(w: Writer, v: Value) -> str:
    return w.choice([basic, advanced, masked, masked])(w, v)


@statement("slice", 4)
def sliced(w: Writer) -> str:
    v = w.array()
    text = f"{v.name}[{basic(w, v)}]"
    return f"{text}.sum()" if w.chance(0.15) else text


@statement("advanced index", 2)
def advanced_index(w: Writer) -> str:
    v = w.array()
    return f"{v.name}[{advanced(w, v)}]"


@statement("mask", 1.5)
def read_by_mask(w: Writer) -> str:
    v = w.array()
    text = f"{v.name}[{masked(w, v)}]"
    return w.choice([text, f"{text}.sum()", f"{text}.sum(axis=0)", f"pt.sqr({text}).sum()"])


@statement("nonzero", 0.5)
def nonzero(w: Writer) -> str:
    v = w.array(1, 2)
    if v.ndim == 1:
        return w.choice(["{0}[({0} > 0).nonzero()]", "pt.flatnonzero({0})"]).format(v.name)
    return f"{v.name}[({v.name} > 0).nonzero()].sum()"


@statement("write", 3)
def written(w: Writer) -> str:
    v = w.array()
    at = f"{v.name}[{where(w, v)}]"
    scalars = [u.name for u in w.pool if not u.ndim and u.kind == v.kind]
    values = ["1", "2", *scalars, f"2 * {at}", f"-{at}"]
    values += [_declared(u) for u in w.pool if u.kind == v.kind and 0 < u.ndim <= v.ndim]
    kind = w.choice(["set_subtensor", "inc_subtensor"])
    value = w.choice(values)
    if v.kind == "b":
        kind, value = "set_subtensor", w.choice(["np.array(True)", "np.array(False)"])
    if v.is_float and value in ("1", "2"):
        value += ".5"
    return f"pt.{kind}({at}, {value})"


def _declared(u: Value) -> str:
    """``u``, of a type that says which axes are broadcast: no other is, where something is written."""
    ones = [str(k) for k, n in enumerate(u.shape) if n == 1]
    return f"pt.specify_broadcastable({u.name}, {', '.join(ones)})" if ones else u.name


@statement("take")
def take(w: Writer) -> str:
    v = w.array()
    axis = w.axis(v)
    return f"pt.take({v.name}, {array_index(w, v.shape[axis])}, axis={axis})"


@statement("choose", 0.7)
def choose(w: Writer) -> str:
    v = w.array()
    form = w.choice(
        [
            "pt.take_along_axis({0}, pt.argsort({0}, axis={1}, kind='stable'), axis={1})",
            "pt.inverse_permutation(pt.argsort({0}.ravel(), kind='stable'))",
            "pt.where({0} > 0)[0].sum()",
        ]
    )
    return form.format(v.name, w.axis(v))
