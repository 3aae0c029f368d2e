"""Random programs of several small loops over the same steps, that read one another in every way.

A net is made of rows (tensors and typed lists with one row for each step), numbers, and loops over some
of the rows, with what stands between: arithmetic row by row, sums, flips.
"""

import random
from typing import Any

import numpy as np
import pytensor.tensor as pt

from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs
from loopax.ir.ops.calling_convention import INDEX_TYPE, ScanOptions
from loopax.ir.ops.checked import Checked

x, r, k = pt.dvector("x"), pt.dmatrix("r"), pt.lvector("k")
s, a, n = pt.dscalar("s"), pt.dscalar("a"), pt.lscalar("n")
w = pt.TensorType("float64", (1,))("w")
INPUTS = [x, r, k, s, a, n, w]


def values(rows: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        rng.normal(size=rows),
        rng.normal(size=(rows, 2)),
        rng.integers(0, 9, size=rows),
        np.asarray(rng.normal()),
        np.asarray(rng.uniform(0.5, 0.9)),
        np.asarray(rows),
        rng.normal(size=1),
    ]


def net(seed: int, count: int = 4) -> list[Any]:
    """What ``count`` loops and twice as many ops between them make of `INPUTS`."""
    return _Net(random.Random(seed)).outputs(count)


class _Net:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows = [x, r, k]
        self.numbers = [s, a, pt.constant(0.0, dtype="float64")]
        checked = Checked(ValueError, "unequal")(n, pt.eq(x.shape[0], n))
        self.steps = [rng.choice([x.shape[0], n, checked])] * 10 + [x.shape[0], n, checked]
        self.made: list[Any] = []

    def outputs(self, count: int) -> list[Any]:
        for _ in range(count):
            self.loop()
            for _ in range(self.rng.randint(0, 3)):
                self.between()
        some = [v for v in self.made if self.rng.random() < 0.6]
        return some or self.made[-1:]

    def late(self, pool: list[Any]) -> Any:
        return pool[max(self.rng.randrange(len(pool)) for _ in range(2))]

    def between(self) -> None:
        v = self.late(self.rows)
        match self.rng.randrange(9):
            case 0 if v.ndim == 1:
                new = v * w
            case 1 if v.ndim == 2:
                new = self.rng.choice([v.sum(axis=1), v.max(axis=1), v[:, 0], v.sum(axis=-1)])
            case 2 if v.ndim == 1:
                new = pt.stack([v, 2 * v], axis=1).astype("float64")
            case 3:
                new = v[::-1]
            case 4 | 5:
                number = pt.tanh((v * 0.1).sum())
                self.made.append(number)
                return self.numbers.append(number)
            case 6 if v.ndim == 1:
                new = pt.cumsum(v)
            case _:
                other = self.late([o for o in self.rows if o.ndim == v.ndim])
                new = self.rng.choice([v + other, pt.maximum(v, other), 0.5 * v - other])
                if v.dtype.startswith("float") or other.dtype.startswith("float"):
                    new = pt.tanh(new)
        self.rows.append(new)
        self.made.append(new)

    def loop(self) -> None:
        rng = self.rng
        over = [self.late(self.rows) for _ in range(rng.randint(0, 3))]
        inner = [v.type.clone(shape=v.type.shape[1:])() for v in over]
        inits = [self.late(self.numbers) for _ in range(rng.randint(0, 3))]
        states = [v.type() for v in inits]
        if rng.random() < 0.3:  # a sum of integers, which may wrap around
            kind = rng.choice(["int8", "int64", "bool"])
            inits.append(pt.constant(1, dtype=kind))
            states.append(pt.scalar(dtype=kind))
        consts = [self.late(self.numbers) for _ in range(rng.randint(0, 2))]
        known = [v.type() for v in consts]
        i = INDEX_TYPE()
        pool = [v.astype("float64") for v in [i, *inner, *states, *known]]
        numbers = [v.sum() if v.ndim else v for v in pool]

        def expression() -> Any:
            p, q = rng.choice(numbers), rng.choice(numbers)
            return rng.choice([pt.tanh(p + q), 0.5 * p, pt.sin(p) * q, p * 0.0 + q * 0.1])

        following = []
        for v in states:
            match rng.randrange(6):
                case 0:
                    new = rng.choice([u for u in states if u.type == v.type])
                case 1 if fits := [u for u in inner if u.type == v.type]:
                    new = rng.choice(fits)
                case 2 | 3:
                    others = [u for u in [i, *inner, *states] if u is not v]
                    add = rng.choice(others) if others else i
                    add = add.sum() if add.ndim else add
                    new = v + (add.astype(v.dtype) if v.dtype != "float64" else pt.tanh(add))
                case _:
                    new = expression()
            following.append(v.type.filter_variable(new.astype(v.dtype)))
        ys = [
            rng.choice([*following, *inner, *states, expression(), expression()])
            for _ in range(rng.randint(0 if states else 1, 3))
        ]
        stop = pt.gt(numbers[-1], 0.8) if rng.random() < 0.05 else None
        truncate = 1 if rng.random() < 0.05 else -1
        loop = Scan.from_body(
            BodyArgs(i, inner, states, known),
            BodyOuts(following, ys, stop),
            ScanOptions(
                reverse=rng.random() < 0.35,
                unroll=rng.choice([1, 1, 1, 1, 1, 2]),
                truncate_gradient=truncate,
            ),
        )
        actual = loop.split_outputs(
            loop.bind(ScanArgs(rng.choice(self.steps), over, inits, consts))
        )
        self.made += [*actual.finals, *actual.traces]
        self.numbers += [f for f in actual.finals if f.dtype == "float64"]
        if stop is None:
            self.rows += [t for t in actual.traces if t.dtype != "bool"]
            if actual.traces and rng.random() < 0.3:
                self.steps.append(actual.traces[0].shape[0])
