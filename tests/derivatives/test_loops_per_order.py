"""docs/derivatives_of_loops.md has how many loops the derivatives of loops of each kind are, as of today.

To print the table as it should be: python -m tests.derivatives.test_loops_per_order
"""

from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax

PAGE = Path(__file__).resolve().parents[2] / "docs" / "derivatives_of_loops.md"
HEAD = ["| loop | first | second | third |", "|---|---|---|---|"]
ORDERS = 3

a, r = pt.dscalar("a"), pt.dvector("r")
v = pt.tensor("v", shape=(2,), dtype="float64")
m = pt.tensor("m", shape=(2, 2), dtype="float64")
open_v, open_m = pt.dvector("open_v"), pt.dmatrix("open_m")
INPUTS = [a, r, v, m, open_v, open_m]


def legacy(step, *states, taps=None):
    """The last states, of ``pytensor.scan``."""
    info = [{"initial": s, "taps": taps} if taps else s for s in states]
    actual = pytensor.scan(step, sequences=[r], outputs_info=info, return_updates=False)
    return [x[-1] for x in actual] if isinstance(actual, list) else actual[-1]


def ours(step, *states):
    """The last states, of ``loopax.scan``."""
    one = len(states) == 1
    actual, _ = loopax.scan(
        lambda c, x: (step(x, c) if one else tuple(step(x, *c)), None),
        states[0] if one else states,
        r,
    )
    return actual


def tanh(x, s):
    return pt.tanh(a * s + x)


def pair(x, s, t):
    return [pt.tanh(a * s + t), pt.sin(t) * x + s]


def product(matrix):
    return lambda x, s: pt.tanh(matrix @ s * a + x)


def lagged(x, before, last):
    return pt.tanh(a * last) + before * x


KINDS = {
    "a state": (lambda: legacy(tanh, a * 0), lambda: ours(tanh, np.float64(0))),
    "two states": (
        lambda: legacy(pair, a * 0, a * 0 + 1)[0],
        lambda: ours(pair, np.float64(0), np.float64(1))[0],
    ),
    "a vector": (lambda: legacy(product(m), v).sum(), lambda: ours(product(m), v).sum()),
    "a matrix": (lambda: legacy(product(m), m).sum(), lambda: ours(product(m), m).sum()),
    "a matrix of unknown shape": (
        lambda: legacy(product(open_m), open_m).sum(),
        lambda: ours(product(open_m), open_m).sum(),
    ),
    "two taps": (
        lambda: legacy(lagged, v, taps=[-2, -1]),
        lambda: ours(lambda x, p, q: [q, lagged(x, p, q)], v[0], v[1])[1],
    ),
    "three taps": (
        lambda: legacy(lagged, pt.concatenate([v, v[:1]]), taps=[-3, -1]),
        lambda: ours(lambda x, o, p, q: [p, q, lagged(x, o, q)], v[0], v[1], v[0])[2],
    ),
    "rows of unknown length, two taps": (
        lambda: legacy(lagged, open_m, taps=[-2, -1]).sum(),
        lambda: ours(lambda x, p, q: [q, lagged(x, p, q)], open_m[0], open_m[1])[1].sum(),
    ),
    "eight taps": (
        lambda: legacy(lagged, pt.concatenate([open_v[:4]] * 2), taps=[-8, -1]),
        lambda: ours(
            lambda x, *s: [*s[1:], lagged(x, s[0], s[-1])], *[open_v[k % 4] for k in range(8)]
        )[-1],
    ),
}
# Where the third derivative of PyTensor's loop, with what it does to buffers, is more than two loops.
MORE = {"a matrix of unknown shape", "three taps", "eight taps"}


def counts(build):
    """For each order loops as they are read, loops that are left, and the ops in these."""
    y, actual = build(), []
    for _ in range(ORDERS):
        y = pytensor.grad(y, a)
        explained = loopax.explain(INPUTS, y)
        actual.append((explained.counts_read.loops, *explained.counts_lowered[::2]))
    return actual


def row(kind, name, build):
    cells = [f"{left}, {inside} ops" for _, left, inside in counts(build)]
    return f"| {kind}, `{name}` | " + " | ".join(cells) + " |"


def rows():
    names = "pytensor.scan", "loopax.scan"
    return {
        (kind, name): (lambda k=kind, n=name, b=build: row(k, n, b))
        for kind, builds in KINDS.items()
        for name, build in zip(names, builds, strict=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), rows())
def test_the_table_has_the_numbers_of_today(kind, name):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(HEAD[0])
    (actual,) = [line for line in lines[start:] if line.startswith(f"| {kind}, `{name}` |")]
    expected = rows()[kind, name]()
    loops = [cell.split(",")[0] for cell in expected.split(" | ")[1:]]
    if pytensor.__version__.startswith("3.0."):  # later ones write the same steps in other ops
        assert actual == expected
    few = 2 if name == "pytensor.scan" and kind in MORE else ORDERS
    assert [cell.split(",")[0] for cell in actual.split(" | ")[1:]][:few] == loops[:few]
    assert loops[:few] == ["2"] * few


if __name__ == "__main__":
    print("\n".join([*HEAD, *(make() for make in rows().values())]))
