"""Random whole programs in the IR, and what a pass must keep of each.

A program is a number of statements over what the statements before it made: arithmetic, slices, sums,
buffers, reads, branches, and loops that read one another's traces, at the same step, flipped, shifted or
summed. Bodies are made of the same statements, loops included. Some programs hold one thing that raises;
some have a derivative among their outputs. A seed is a program.

    python -m tests.random_programs loopax.lowering.redundancy.merge_loops:merge_loops --n 300 --seed 0

runs one pass, registered or not, over many of them; several run in turn; ``--passes``: `PASSES`.
"""

import argparse
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.type import TensorType

from loopax.base.upstream.pytensor import IfElse
from loopax.ir import BodyArgs, BodyOuts, Cond, Scan, ScanArgs, evaluate, pformat
from loopax.ir.evaluation.evaluate import own
from loopax.ir.ops.calling_convention import INDEX_TYPE, UNBOUNDED, ScanOptions
from loopax.ir.ops.checked import Checked
from loopax.lowering.order import PASSES
from tests.support.kept import Fault, assert_kept, outcome

WIDTH = 2
ERRORS = ("index", "raise", "singular", "length", "steps")

# -- writing a program -------------------------------------------------------------------------------


class Value(NamedTuple):
    """A variable with its shape. A length that only a run tells is a name; one with "[" may be 0."""

    var: Any
    shape: tuple[Any, ...]

    @property
    def dtype(self) -> str:
        return self.var.type.dtype

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")


@dataclass
class Scope:
    """What the next statement may read: in a body with its index and the number of its steps."""

    pool: list[Value]
    depth: int = 0
    i: Any = None
    steps: Any = None


class Again(NamedTuple):
    """A loop that was written, to be written again."""

    args: BodyArgs
    outs: BodyOuts
    options: ScanOptions
    given: ScanArgs
    rows: list[Value]  # the rows of its traces
    length: Any
    flipped: bool  # whether its sequences are, and its traces again


@dataclass
class Program:
    """A graph's roots and outputs, with the values to run it at."""

    seed: int
    inputs: list[Any]
    outputs: list[Any]
    values: list[Any]
    features: Counter = field(default_factory=Counter)
    single: bool = (
        False  # whether something in it is of float32: all that follows is as good as that
    )

    def graph(self, which: Sequence[int] | None = None) -> FunctionGraph:
        """A copy to work on, of all outputs or some."""
        outputs = self.outputs if which is None else [self.outputs[k] for k in which]
        return FunctionGraph(self.inputs, outputs, clone=True)

    def run(self, graph: Any) -> list[Any]:
        return evaluate(graph, *[own(x) for x in self.values])


def program(seed: int) -> Program:
    return _Writer(seed).program()


def _known(n: Any) -> bool:
    return isinstance(n, int)


def _not_empty(n: Any) -> bool:
    return n > 0 if _known(n) else "[" not in n


SLICES = [
    slice(None, None, -1),
    slice(1, None),
    slice(None, -1),
    slice(None, None, 2),
    slice(1, 3),
    slice(-2, None),
    slice(3, -6, -1),
    slice(-2, None, -1),
]


def _sliced(n: Any, s: slice) -> Any:
    if s == slice(None, None, -1):
        return n
    return len(range(n)[s]) if _known(n) else f"{n}[{s.start}:{s.stop}:{s.step}]"


class _Writer:
    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.features: Counter = Counter()
        self.error = self.rng.choice(ERRORS) if self.chance(0.3) else None
        self.again: list[tuple[Scope, Again]] = []
        self.names = 0
        self.n_steps: dict[Any, Any] = {}
        self.scopes: list[Scope] = []  # kept, for their ids
        self.hot: set[Any] = set()  # what raises, so that something follows from it

    # -- chance

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, scope: Scope, fits: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value, rather a late one."""
        actual = [v for v in scope.pool if fits(v)]
        if not actual:
            return None
        if hot := [v for v in actual if v.var in self.hot and self.chance(0.5)]:
            return hot[-1]
        return actual[max(self.rng.randrange(len(actual)) for _ in range(2))]

    def length(self, v: Value) -> Any:
        """Not asked of what may raise: PyTensor knows a length without computing what has it."""
        known = self.error and _known(v.shape[0]) and v.var.owner is not None
        return pt.constant(v.shape[0]) if known else v.var.shape[0]

    def scalar(self, scope: Scope) -> Value | None:
        return self.pick(scope, lambda v: not v.shape)

    # -- the program

    def program(self) -> Program:
        rng = np.random.default_rng(self.seed)
        steps = self.rng.choice([0, 1, 2, 3, 3, 4, 4, 4])
        width = WIDTH if self.chance(0.5) else None
        inputs: list[Any] = []
        values: list[Any] = []
        shapes: list[tuple[int, ...]] = []

        def given(name: str, dtype: str, shape: tuple[int, ...], static: Any, value: Any) -> None:
            inputs.append(TensorType(dtype, static)(name))
            values.append(np.asarray(value, dtype=dtype).reshape(shape))
            shapes.append(shape)

        given("x", "float64", (steps,), (None,), rng.normal(size=steps))
        given("r", "float64", (steps, WIDTH), (None, width), rng.normal(size=(steps, WIDTH)))
        given("k", "int64", (steps,), (None,), rng.integers(0, 7, size=steps))
        given("s", "float64", (), (), rng.normal())
        given("a", "float64", (), (), rng.uniform(0.5, 0.9))
        given("v", "float64", (WIDTH,), (width,), rng.normal(size=WIDTH))
        self.single = self.chance(0.25)
        if self.single:
            given("h", "float32", (WIDTH,), (width,), rng.normal(size=WIDTH))
        if self.chance(0.4):
            matrix = rng.normal(size=(WIDTH, WIDTH))
            given("m", "float64", (WIDTH, WIDTH), (width, width), matrix)
        table = self.rng.choice([steps, steps + 1, 6])
        given("c", "float64", (table,), (None,), rng.normal(size=table))
        n = -1 if self.error == "steps" and self.chance(0.5) else steps
        given("n", "int64", (), (), n)
        given("z", "float64", (WIDTH, WIDTH), (width, width), np.zeros((WIDTH, WIDTH)))

        self.steps, self.z, self.n = steps, inputs[-1], inputs[-2]
        scope = Scope([Value(v, s) for v, s in zip(inputs[:-2], shapes[:-2], strict=True)])
        self.outer = scope
        start = len(scope.pool)
        self.write(scope, 1, [self.loop])
        self.write(scope, self.rng.randint(1, 4))
        made = scope.pool[start:]
        outputs = [v.var for v in made if self.chance(0.6)] or [made[-1].var]
        if self.chance(0.08):
            generator = random_generator_type("rng")
            inputs.append(generator)
            values.append(np.random.default_rng(self.seed))
            outputs += self.draws(scope, generator)
        if self.chance(0.25):
            outputs += self.gradients(made, inputs)
        return Program(self.seed, inputs, outputs, values, self.features, self.single)

    def gradients(self, made: list[Value], inputs: list[Any]) -> list[Any]:
        """Of some inputs, and rarely the derivative of that."""
        floats = [v for v in made if v.is_float]
        if not floats:
            return []
        chosen = self.rng.sample(floats, min(len(floats), 2))
        cost = sum((v.var**2).sum().astype("float64") for v in chosen)
        wrt = [v for v in inputs if getattr(v.type, "dtype", "") == "float64" and v is not self.z]
        wrt = self.rng.sample(wrt, self.rng.randint(1, 2))
        self.features["gradient"] += 1
        how = {"disconnected_inputs": "ignore", "return_disconnected": "zero"}
        try:
            actual = pytensor.grad(cost, wrt, **how)
        except NotImplementedError as error:
            assert "has no bound" in str(
                error
            )  # as `expansion` says of such a loop, and as it should
            return []
        if self.chance(0.3):
            self.features["second derivative"] += 1
            twice = sum((g**2).sum() for g in actual)
            actual = [*actual, *pytensor.grad(twice, wrt[:1], **how)]
        return [g for g in actual if g not in inputs]

    def draws(self, scope: Scope, generator: Any) -> list[Any]:
        """A loop whose state is a random generator."""
        self.features["generator"] += 1
        state, s, row = generator.type(), pt.dscalar(), pt.dscalar()
        following, noise = pt.random.normal(rng=state, return_next_rng=True)
        outs = BodyOuts(
            [following, pt.tanh(s + noise)], [noise * row, state][: self.rng.randint(0, 2)]
        )
        x = scope.pool[0].var
        loop = Scan.from_body(BodyArgs(INDEX_TYPE(), [row], [state, s], []), outs)
        actual = loop.bind(ScanArgs(x.shape[0], [x], [generator, pt.constant(0.1)], []))
        # PyTensor leaves out a draw that nobody reads, and the generator's step with it.
        return actual[: self.rng.randint(2, len(actual))]

    def write(self, scope: Scope, count: int, statements: Any = None) -> None:
        """``count`` statements more."""
        kinds = statements or [
            *[self.unary, self.binary, self.binary, self.reduced, self.sliced, self.sliced],
            *[self.shifted, self.written, self.filled, self.product, self.read, self.branch],
            *([self.loop] * (4 if scope.depth == 0 else 2 if scope.depth == 1 else 0)),
            *([self.repeated] * (2 if scope.depth < 2 else 0)),
            *[self.literal, self.copied, self.if_else, self.compared, self.compared],
            *([self.raising] * 6 if self.error in ("index", "raise", "singular") else []),
        ]
        for _ in range(count):
            for _ in range(10):
                made = self.rng.choice(kinds)(scope)
                if made:
                    scope.pool += made if isinstance(made, list) else [made]
                    break

    # -- statements: each gives a value, several, or nothing where there is nothing to apply it to

    def unary(self, scope: Scope) -> Any:
        v = self.pick(scope)
        x = v.var
        if not v.is_float:
            changed = [lambda: (3 * x + 1) % 7, lambda: 5 - x, lambda: x // 2, lambda: x % 5 * 0.1]
        else:
            changed = [
                lambda: pt.tanh(x),
                lambda: pt.sin(x),
                lambda: 0.5 * x,
                lambda: -x,
                lambda: x / (2 + pt.cos(x)),
                lambda: pt.tanh(x) ** 2,
                lambda: pt.sqrt(x * x + 1),
                lambda: pt.sigmoid(x),
                lambda: pt.log1p(pt.exp(pt.tanh(x))),
            ] + [lambda: x.astype("float32")] * self.single
        return Value(self.rng.choice(changed)(), v.shape)

    def binary(self, scope: Scope) -> Any:
        v = self.pick(scope)
        w = self.pick(scope, lambda w: w.shape == v.shape or not w.shape)
        if w is None:
            return None
        x, y = v.var, w.var
        if self.chance(0.2) and v.shape == w.shape:
            x, y = y, x
        if not (v.is_float or w.is_float):
            changed = [lambda: (x + y) % 11, lambda: pt.maximum(x, y), lambda: (x * y) % 7]
        else:
            changed = [
                lambda: x + y,
                lambda: x - 0.5 * y,
                lambda: pt.tanh(x) * y,
                lambda: x / (2 + pt.cos(y)),
                lambda: pt.switch(pt.gt(x, y), x, 0.5 * y),
                lambda: pt.maximum(x, y),
            ]
        return Value(self.rng.choice(changed)(), v.shape)

    def reduced(self, scope: Scope) -> Any:
        v = self.pick(scope, lambda v: len(v.shape) > 0)
        if v is None:
            return None
        axis = self.rng.choice([None, 0, len(v.shape) - 1])
        over = v.shape if axis is None else [v.shape[axis]]
        rest = () if axis is None else tuple(n for k, n in enumerate(v.shape) if k != axis)
        kinds = [pt.sum] + [pt.max] * all(map(_not_empty, over))
        if v.is_float and all(map(_not_empty, over)):
            kinds.append(pt.mean)
        out = self.rng.choice(kinds)(v.var, axis=axis)
        return Value(out if v.is_float else out % 7, rest)

    def compared(self, scope: Scope) -> Any:
        """Rows, perhaps with one in front, beside a value of them all; perhaps summed."""
        v = self.pick(scope, lambda v: v.is_float and v.shape and _not_empty(v.shape[0]))
        if v is None or len(v.shape) > 1 and not _not_empty(v.shape[1]):
            return None
        x, n = v.var, v.shape[0]
        w = self.pick(scope, lambda w: w.shape == v.shape[1:] and w.dtype == v.dtype)
        if w is not None and self.chance(0.6):
            parts = [w.var[None], x]
            x = pt.concatenate(parts if self.chance(0.7) else parts[::-1])
            n = n + 1 if _known(n) else None
        whole = self.rng.choice(
            [
                lambda: x.max(axis=0),
                lambda: x.mean(axis=0),
                lambda: x[-1],
                lambda: x[0],
                lambda: pt.tanh(x).sum(axis=0),
                lambda: x.max(),
                lambda: pt.cumsum(x, axis=0)[-1],
            ]
        )()
        values = self.rng.choice([lambda: x - whole, lambda: pt.tanh(x) * whole])()
        if n is not None and self.chance(0.4):
            return Value(values, (n, *v.shape[1:]))
        nonlinear = self.rng.choice([pt.tanh, lambda z: z**2, lambda z: pt.exp(-(z**2))])
        return Value(nonlinear(values).sum(axis=0), v.shape[1:])

    def sliced(self, scope: Scope) -> Any:
        v = self.pick(scope, lambda v: len(v.shape) > 0)
        return None if v is None else self.part(v)

    def part(self, v: Value) -> Value:
        n, *rest = v.shape
        if _not_empty(n) and self.chance(0.35):
            k = self.rng.choice([0, -1, -1, *(range(n) if _known(n) else ())])
            return Value(v.var[k], tuple(rest))
        if len(v.shape) == 2 and self.chance(0.3):
            if self.chance(0.5):
                return Value(v.var.T, v.shape[::-1])
            if _not_empty(rest[0]):
                return Value(v.var[:, 0], (n,))
        s = self.rng.choice([*SLICES, SLICES[0], SLICES[1], SLICES[2]])
        return Value(v.var[s], (_sliced(n, s), *rest))

    def shifted(self, scope: Scope) -> Any:
        """A sequence of the rows before: one in front, the last one gone."""
        v = self.pick(scope, lambda v: len(v.shape) > 0 and _not_empty(v.shape[0]))
        if v is None:
            return None
        w = self.pick(scope, lambda w: w.shape == v.shape[1:] and w.dtype == v.dtype)
        if w is None:
            return None
        whole = pt.concatenate([w.var[None], v.var])
        if _known(v.shape[0]) and self.chance(0.3):
            return Value(whole, (v.shape[0] + 1, *v.shape[1:]))
        return Value(whole[:-1], v.shape)

    def written(self, scope: Scope) -> Any:
        v = self.pick(scope, lambda v: len(v.shape) > 0)
        if v is None:
            return None
        s = self.rng.choice(SLICES)
        w = self.pick(scope, lambda w: w.shape == v.shape and w.dtype == v.dtype)
        write = self.rng.choice([pt.set_subtensor, pt.inc_subtensor])
        into = pt.zeros_like(v.var) if self.error is None and self.chance(0.5) else v.var
        return Value(write(into[s], w.var[s]), v.shape)

    def filled(self, scope: Scope) -> Any:
        """Equal rows."""
        v = self.pick(scope, lambda v: len(v.shape) > 0)
        w = self.pick(scope, lambda w: len(w.shape) < 2 and all(map(_known, w.shape)))
        if v is None or w is None:
            return None
        n = self.length(v)
        match self.rng.randrange(5):
            case 0 if self.error is None:
                return Value(pt.zeros_like(v.var), v.shape)
            case 1:
                return Value(pt.ones((n,)), v.shape[:1])
            case 2 if _known(v.shape[0]):
                rows = np.full((v.shape[0], *w.shape), 0.3)
                return Value(pt.constant(rows), (v.shape[0], *w.shape))
            case 3:
                return Value(pt.arange(n), v.shape[:1])
        return Value(pt.alloc(w.var, n, *w.shape), (v.shape[0], *w.shape))

    def product(self, scope: Scope) -> Any:
        w = self.pick(scope, lambda w: w.is_float and w.shape == (WIDTH,))
        m = self.pick(scope, lambda m: m.is_float and m.shape == (WIDTH, WIDTH))
        if w is None:
            return None
        if m is None or self.chance(0.2):
            return Value(pt.outer(w.var, w.var) * 0.3, (WIDTH, WIDTH))
        if self.chance(0.3):
            well = 3 * pt.eye(WIDTH) + 0.1 * pt.tanh(m.var)
            return Value(pt.linalg.inv(well), m.shape)
        return Value(m.var @ w.var, w.shape)

    def read(self, scope: Scope) -> Any:
        """One row, at the index or at a number that was computed."""
        fits = [v for v in scope.pool if v.shape and _known(v.shape[0]) and v.shape[0] > 0]
        if not fits:
            return None
        v = self.rng.choice(fits)
        n = v.shape[0]
        if scope.i is not None and _known(scope.steps) and self.chance(0.8):
            at = [scope.i + k for k in range(n - scope.steps + 1)]
            at += [scope.steps - 1 - scope.i] * (scope.steps <= n)
            at += [scope.i - 1] * (0 < scope.steps <= n + 1)  # from the end at the first step
            if at:
                self.features["c[i]"] += 1
                return Value(v.var[self.rng.choice(at)], v.shape[1:])
        k = self.pick(scope, lambda k: not k.shape and not k.is_float)
        return None if k is None else Value(v.var[abs(k.var) % n], v.shape[1:])

    def literal(self, scope: Scope) -> Any:
        shape = self.rng.choice([(), (WIDTH,)])
        if self.chance(0.3):
            return Value(pt.constant(np.full(shape, 2)), shape)
        return Value(pt.constant(np.full(shape, self.rng.choice([0.0, 0.3, 1.0]))), shape)

    def copied(self, scope: Scope) -> Any:
        """The same computation once more."""
        v = self.pick(scope, lambda v: v.var.owner is not None)
        if v is None:
            return None
        return Value(v.var.owner.clone().outputs[v.var.index], v.shape)

    def if_else(self, scope: Scope) -> Any:
        by, v = self.scalar(scope), self.pick(scope)
        w = self.pick(scope, lambda w: w.shape == v.shape and w.dtype == v.dtype)
        if by is None or w is None:
            return None
        self.features["ifelse"] += 1
        return Value(IfElse(1)(pt.lt(by.var, 0.5), v.var, w.var), v.shape)

    def raising(self, scope: Scope) -> Any:
        """What raises, or what may."""
        made = self._raising(scope)
        if made is not None:
            self.features[f"may raise: {self.error}"] += 1
            self.hot.add(made.var)
        return made

    def _raising(self, scope: Scope) -> Any:
        v = self.pick(scope)
        by = self.scalar(scope)
        if self.error == "singular":
            by = self.pick(scope, lambda w: not w.shape and w.is_float)
            z = next(
                (w for w in scope.pool if w.shape == (WIDTH, WIDTH) and w.var.name == "z"), None
            )
            if z is None or by is None:
                return None
            kept = (
                pt.switch(pt.gt(by.var, 0.2), z.var, pt.eye(WIDTH)) if self.chance(0.5) else z.var
            )
            return Value(pt.linalg.inv(kept), z.shape)
        if self.error == "index":
            c = self.pick(scope, lambda w: len(w.shape) > 0 and _known(w.shape[0]))
            k = self.pick(scope, lambda w: not w.shape and not w.is_float)
            if c is None or k is None:
                return None
            return Value(c.var[k.var + c.shape[0] - self.rng.randint(0, 2)], c.shape[1:])
        if by is None:
            return None
        raised = self.rng.choice([CheckAndRaise, Checked])(NotImplementedError, "not this one")
        return Value(raised(v.var, pt.lt(by.var, self.rng.choice([0.0, 0.5, 2.0]))), v.shape)

    # -- branches and loops

    def root(self, v: Value) -> Value:
        """A variable of a body for ``v``."""
        root = v.var.type()
        root.name = "z" if v.var.name == "z" else None
        return Value(root, v.shape)

    def operands(self, scope: Scope, least: int, most: int) -> list[Value]:
        actual = [self.pick(scope) for _ in range(self.rng.randint(least, most))]
        actual = [v for v in actual if v is not None]
        if self.error == "singular" and self.chance(0.6):
            actual += [v for v in scope.pool if v.var.name == "z" and v not in actual]
            if scope is self.outer:
                actual.append(Value(self.z, (WIDTH, WIDTH)))
        return actual

    def branch(self, scope: Scope) -> Any:
        by = self.scalar(scope)
        operands = self.operands(scope, 1, 3)
        if by is None:
            return None
        self.features["cond"] += 1
        roots = [self.root(v) for v in operands]
        scopes = [Scope(list(roots), 2) for _ in range(2)]
        for branch in scopes:
            self.write(branch, self.rng.randint(1, 2))
        pairs = []
        for v in reversed(scopes[0].pool):
            same = [
                w
                for w in scopes[1].pool
                if w.shape == v.shape
                and w.dtype == v.dtype
                and not any(isinstance(n, str) and n not in str(roots) for n in v.shape)
            ]
            if same:
                pairs.append((v, same[-1]))
        pairs = pairs[: self.rng.randint(1, 2)]
        op = Cond.from_branches(
            [v.var for v in roots], [v.var for v, _ in pairs], [w.var for _, w in pairs]
        )
        outs = op.bind(pt.lt(by.var, self.rng.choice([0, 1])), [v.var for v in operands])
        return [Value(o, v.shape) for o, (v, _) in zip(outs, pairs, strict=True)]

    def loop(self, scope: Scope) -> Any:
        sequences = [v for v in scope.pool if v.shape]
        whole = [v for v in sequences if v.shape[0] == self.steps]
        if sequences and self.chance(0.85):
            by = self.rng.choice(whole if whole and self.chance(0.7) else sequences)
            length = by.shape[0]
            options = [self.length(by)] * 2 + ([pt.constant(length)] if _known(length) else [])
        else:
            by, length = None, self.rng.choice([0, 1, 2, 3])
            options = [pt.constant(length)]
        if length == self.steps and scope is self.outer:
            options += [self.n, self.n] if self.error != "steps" else [self.n] * 6
        n_steps = self.rng.choice(options)
        if self.chance(0.4):  # the same variable as of another loop
            n_steps = self.n_steps.setdefault((id(scope), length), n_steps)
        same = [v for v in sequences if v.shape[0] == length]
        rows = [
            self.rng.choice(same) for _ in range(self.rng.choice([0, 1, 1, 2, 3]) if same else 0)
        ]
        if self.error == "length" and _known(length) and self.chance(0.5):
            wrong = [v for v in sequences if _known(v.shape[0]) and v.shape[0] != length]
            rows += wrong[:1]
        states = [
            self.pick(scope, lambda v: len(v.shape) < 3 and all(map(_known, v.shape)))
            for _ in range(self.rng.choice([0, 1, 1, 1, 2, 2, 3]))
        ]
        if None in states:
            return None
        consts = self.operands(scope, 0, 3)
        inner_rows = [Value(TensorType(v.dtype, v.var.type.shape[1:])(), v.shape[1:]) for v in rows]
        inner_states = [self.state(v) for v in states]
        inner_consts = [self.root(v) for v in consts]
        i = INDEX_TYPE()
        index = [Value(i, ())] * self.chance(0.5)
        pool = [*index, *inner_consts, *inner_states, *inner_rows] or [Value(i, ())]
        body = Scope(pool, scope.depth + 1, i, length)
        self.scopes.append(body)
        if by is not None and self.chance(0.25):  # a row that is read at the index, of what has one
            consts.append(by)
            inner_consts.append(self.root(by))
            at = i if self.chance(0.7) else inner_consts[-1].var.shape[0] - 1 - i
            body.pool.append(Value(inner_consts[-1].var[at], by.shape[1:]))
            self.features["c[i]"] += 1
        self.write(body, self.rng.randint(1, 5))
        nexts = [self.following(body, v) for v in inner_states]
        body.pool += nexts if self.chance(0.5) else []
        ys = []
        for _ in range(self.rng.choice([0, 1, 1, 2, 3])):
            y = self.pick(body, lambda v: len(v.shape) < 3 and all(map(_known, v.shape)))
            ys += [] if y is None else [y]
        if not (nexts or ys):
            return None
        stop = self.stop(body)
        if by is None and self.stops_by_index(stop, body) and self.chance(0.5):
            n_steps = pt.constant(UNBOUNDED)
            length = 2
        reverse = self.chance(0.25)
        flipped = self.chance(0.12)
        truncate = 1 if self.chance(0.04) else -1
        options = ScanOptions(
            reverse=reverse, checkpoint=2 if self.chance(0.05) else None, truncate_gradient=truncate
        )
        again = Again(
            BodyArgs(
                i,
                [v.var for v in inner_rows],
                [v.var for v in inner_states],
                [v.var for v in inner_consts],
            ),
            BodyOuts([v.var for v in nexts], [v.var for v in ys], stop),
            options,
            ScanArgs(
                n_steps,
                [v.var[::-1] if flipped else v.var for v in rows],
                [v.var for v in states],
                [v.var for v in consts],
            ),
            ys,
            length,
            flipped,
        )
        self.again.append((scope, again))
        self.features["loop"] += 1
        self.features["inner loop"] += scope.depth > 0
        self.features["stops"] += stop is not None
        self.features["reverse"] += reverse
        self.features["map"] += not states
        self.features["zero steps"] += length == 0
        shapes = [v.shape for v in states]
        return self.bound(scope, again, shapes)

    def bound(self, scope: Scope, again: Again, shapes: list[Any]) -> list[Value]:
        loop = Scan.from_body(again.args, again.outs, again.options)
        actual = loop.split_outputs(loop.bind(again.given))
        length = again.length
        if loop.stops:
            self.names += 1
            length = f"length {self.names}" + "[" * (not _not_empty(length))
        made = [Value(v, s) for v, s in zip(actual.finals, shapes, strict=True)]
        made += [
            Value(v, (length, *y.shape)) for v, y in zip(actual.traces, again.rows, strict=True)
        ]
        if loop.stops:
            made.append(Value(actual.n_done, ()))
            made.append(Value(actual.stopped.astype("int64"), ()))
        k = loop.n_states
        if again.flipped:
            made[k : k + loop.n_ys] = [Value(v.var[::-1], v.shape) for v in made[k : k + loop.n_ys]]
        made = [self.part(v) if v.var in actual.traces and self.chance(0.4) else v for v in made]
        self.rng.shuffle(made)
        return made

    def repeated(self, scope: Scope) -> Any:
        """A loop that is there, with the same or other traces, or over something flipped."""
        actual = [(a) for s, a in self.again if s is scope]
        if not actual:
            return None
        again = self.rng.choice(actual)
        self.features["loop again"] += 1
        outs, given, rows = again.outs, again.given, again.rows
        shapes = [next(v.shape for v in scope.pool if v.var is init) for init in given.states]
        match self.rng.randrange(4):
            case 0 if rows:
                order = [self.rng.randrange(len(rows)) for _ in rows]
                outs = outs._replace(ys=[outs.ys[k] for k in order])
                rows = [rows[k] for k in order]
            case 1 if given.states:
                outs = outs._replace(ys=[*again.args.states])
                rows = [Value(v, s) for v, s in zip(again.args.states, shapes, strict=True)]
            case 2 if given.sequences and again.outs.stop is None:
                given = given._replace(sequences=[x[::-1] for x in given.sequences])
        return self.bound(scope, again._replace(outs=outs, given=given, rows=rows), shapes)

    def state(self, v: Value) -> Value:
        shape = v.var.type.shape if self.chance(0.4) else (None,) * len(v.shape)
        return Value(TensorType(v.dtype, shape)(), v.shape)

    def following(self, body: Scope, v: Value) -> Value:
        """A next state for the state ``v``."""
        kind = self.rng.random()
        if kind < 0.08:
            return v
        new = self.pick(body, lambda w: w.shape == v.shape or not w.shape)
        if kind < 0.14:
            new = v
        x = new.var
        if new.shape != v.shape or (kind < 0.6 and new.var is not v.var):
            x = (v.var + x) if v.is_float else (v.var + x.astype("int64"))
        x = pt.tanh(x) if v.is_float else x.astype("int64") % 7
        if kind > 0.9 and v.is_float:
            x = 0.5 * x + 0.1
        return Value(v.var.type.filter_variable(x.astype(v.dtype)), v.shape)

    def stops_by_index(self, stop: Any, body: Scope) -> bool:
        return stop is not None and stop.owner.inputs[0] is body.i

    def stop(self, body: Scope) -> Any:
        if not self.chance(0.15):
            return None
        by = self.scalar(body)
        if by is None or self.chance(0.3):
            return pt.ge(body.i, 1)
        return pt.gt(by.var, 0.37)


# -- the command -------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run passes over many programs; the exit status is 1 where one did something wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_programs")
    parser.add_argument("passes", nargs="*", metavar="module:function", help="default: PASSES")
    parser.add_argument("--n", type=int, default=300, help="programs")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--show", action="store_true", help="the text of each program")
    parser.add_argument("--most", type=int, default=3, help="stop after so many faults")
    parser.add_argument("--unsteady", action="store_true", help="a pass may find more to do")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("error")
    pytensor.config.blas__ldflags = ""
    passes = [_imported(name) for name in arguments.passes] or list(PASSES)
    steady = bool(arguments.passes) and not arguments.unsteady
    features: Counter = Counter()
    faults: list[str] = []
    start = time.process_time()
    for seed in range(arguments.seed, arguments.seed + arguments.n):
        one = program(seed)
        features.update(one.features)
        before = one.graph()
        error = outcome(one, before)[0]
        features[f"raises {error.__name__}" if error else "has values"] += 1
        if arguments.show:
            print(f"-- {seed}\n{pformat(before)}")
        try:
            assert_kept(one, passes, steady=steady)
        except Fault as fault:
            faults.append(str(fault))
            print(f"==== fault {len(faults)}\n{fault}\n", flush=True)
            if len(faults) == arguments.most:
                break
            continue
        for run in passes:
            frozen = before.toposort()
            run(before)
            features[f"changed by {run.__name__}"] += before.toposort() != frozen
    for name, count in sorted(features.items()):
        print(f"{count:6} {name}")
    done = seed - arguments.seed + 1
    print(f"{done} programs, {len(faults)} faults, {time.process_time() - start:.1f} s of CPU")
    return 1 if faults else 0


def _imported(name: str) -> Callable:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function or module.rpartition(".")[2])
