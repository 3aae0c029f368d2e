"""What a program computes, by ways that have nothing in common with loopax or with one another.

reference    PyTensor's Python linker on the graph as it was written, steps of loops included
written out  the same without any loop, its gradient that of a graph without loops
NUMBA        PyTensor's own mode, whose rewrites and code are others again; slow to compile
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import applys_between
from pytensor.tensor.elemwise import Elemwise

from tests.random_programs.answers import Answer, NotAProgram, is_finite
from tests.random_programs.building import Graph, build
from tests.random_programs.description import Program
from tests.random_programs.judging import RUNS, noisy, reach
from tests.random_programs.plain import PLAIN, REWRITTEN
from tests.random_programs.written_out import TooLong, Values

DERIVATIVES = "gradient", "pushforward", "Hessian product"


def run_plain(
    inputs: list[Any], outputs: list[Any], values: Sequence[Any], mode: Any = PLAIN
) -> list[np.ndarray]:
    f = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    return [np.asarray(x) for x in f(*[np.copy(x) for x in values])]


class Case:
    """One program with its graphs, and what it computes at some values.

    A case that is made ``of`` another has its program and graphs, at other values.
    """

    def __init__(
        self, program: Program, values: Sequence[Any] | None = None, of: "Case | None" = None
    ) -> None:
        self.program = program
        self.values = [x.value for x in program.given] if values is None else list(values)
        self.is_nearby = False
        self.functions: dict[str, Any] = {}  # jaxify's, of these graphs, by what a route makes
        if of is not None:
            self.reference, self.written, self._plain = of.reference, of.written, of._plain
            return
        self._plain: dict[str, Any] = {}
        try:
            self.reference = build(program, "reference")
            self.written = build(program)
        except Exception as error:
            raise NotAProgram(f"{type(error).__name__}: {error}") from error

    def function(self, what: str, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once for all routes that ask for ``what``."""
        if what not in self.functions:
            self.functions[what] = make()
        return self.functions[what]

    @cached_property
    def flat(self) -> Graph | None:
        try:
            return build(self.program, "flat", self.values)
        except TooLong:
            return None

    @cached_property
    def _noisy(self) -> list[Values]:
        """The written-out program's values, some times over, with noise."""
        assert self.flat is not None
        given = [*self.values, *(x.value for x in self.program.shared)]
        variables = [*self.flat.inputs, *self.flat.shared.values()]
        runs = [Values(noisy(k)) for k in range(RUNS)]
        for values in runs:
            values.known.update(zip(variables, given, strict=True))
        return runs

    def _run_reference(self, what: str, outputs: Callable[[], list[Any]]) -> list[np.ndarray]:
        """By PyTensor's Python linker; compiled once for all values."""
        if what not in self._plain:
            self._plain[what] = pytensor.function(
                self.reference.inputs, outputs(), mode=PLAIN, on_unused_input="ignore"
            )
        return [np.asarray(x) for x in self._plain[what](*[np.copy(x) for x in self.values])]

    def _answer(self, what: str, outputs: Callable[[Graph], list[Any]]) -> Answer:
        """``outputs`` gives those of a graph; ``what`` they are, for what is kept of them."""
        answer = Answer(what in DERIVATIVES)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                actual = self._run_reference(what, lambda: outputs(self.reference))
                answer.add("reference", actual)
            except Exception as error:
                answer.refused["reference"] = f"{type(error).__name__}: {error}"
            try:
                if self.flat is not None:
                    variables = outputs(self.flat)
                    assert self.flat.flat is not None
                    actual = [np.asarray(self.flat.flat.values[v]) for v in variables]
                    answer.add("written out", actual)
                    answer.finite_inside = all(map(is_finite, self.flat.flat.values.floats()))
                    runs = [[np.asarray(run[v]) for v in variables] for run in self._noisy]
                    answer.far = reach(actual, runs)
            except NotAProgram:
                raise
            except Exception as error:
                answer.refused["written out"] = f"{type(error).__name__}: {error}"
        if not answer.accepted:
            raise NotAProgram(str(answer.refused))
        # Steps of loops as well: those of the reference are left as they were written.
        answer.rewritten = lambda: run_plain(
            self.written.inputs, outputs(self.written), self.values, REWRITTEN
        )
        if answer.far and [f.shape for f in answer.far] != [x.shape for x in answer.values]:
            answer.far = None
        return answer

    @cached_property
    def outputs(self) -> Answer:
        return self._answer("outputs", lambda graph: graph.outputs)

    @cached_property
    def after(self) -> Answer:
        """Outputs and updated values."""
        return self._answer("after", lambda graph: [*graph.outputs, *graph.updates.values()])

    # -- gradients

    @cached_property
    def wrt(self) -> list[int]:
        return [k for k, x in enumerate(self.program.given) if x.value.dtype.kind == "f"]

    def cost(self, graph: Graph) -> Any:
        """A number that each element of each float output has its own part in."""
        terms = []
        for v, x in zip(graph.outputs, self.outputs.values, strict=True):
            if v.type.dtype.startswith("float"):
                y = v.astype("float64")
                weights = np.cos(1.0 + np.arange(x.size)).reshape(x.shape)
                terms.append((y * weights).sum() if self.program.seed % 2 else (y**2).sum())
        if not terms or not self.wrt:
            raise NotAProgram("no float to differentiate")
        return sum(terms[1:], terms[0])

    @cached_property
    def written_gradients(self) -> list[Any]:
        return self.gradients(self.written)

    def gradients(self, graph: Graph) -> list[Any]:
        wrt = [graph.inputs[k] for k in self.wrt]
        return pytensor.grad(
            self.cost(graph), wrt, disconnected_inputs="ignore", return_disconnected="zero"
        )

    @cached_property
    def gradient(self) -> Answer:
        answer = self._answer("gradient", self.gradients)
        shapes = [self.values[k].shape for k in self.wrt]
        answer.accepted = [a for a in answer.accepted if [x.shape for x in a[1]] == shapes]
        if not answer.accepted:
            raise NotAProgram("PyTensor's gradients have other shapes than what they are of")
        answer.defined = all(map(is_finite, self.outputs.values))
        answer.slopes = self.slopes
        return answer

    @cached_property
    def direction(self) -> list[np.ndarray]:
        """A tangent for each float argument."""
        rng = np.random.default_rng(self.program.seed + 1)
        shapes = [(self.values[k].shape, self.values[k].dtype) for k in self.wrt]
        return [np.asarray(rng.normal(size=shape).round(2), dtype) for shape, dtype in shapes]

    def along(self, graph: Graph) -> Any:
        """The derivative of the cost along the direction."""
        products = zip(self.gradients(graph), self.direction, strict=True)
        return sum((g.astype("float64") * t).sum() for g, t in products)

    @cached_property
    def pushforward(self) -> Answer:
        answer = self._answer("pushforward", lambda graph: [self.along(graph)])
        answer.defined = self.gradient.defined
        answer.slopes = self._slope_along
        return answer

    @cached_property
    def hessian_product(self) -> Answer:
        """The Hessian of the cost times the direction."""
        answer = self._answer("Hessian product", self._hessian_products)
        shapes = [self.values[k].shape for k in self.wrt]
        answer.accepted = [a for a in answer.accepted if [x.shape for x in a[1]] == shapes]
        if not answer.accepted:
            raise NotAProgram("PyTensor's second derivatives have other shapes than the arguments")
        answer.defined = self.gradient.defined and all(map(is_finite, self.gradient.values))
        answer.slopes = self._second_slopes
        return answer

    def _hessian_products(self, graph: Graph) -> list[Any]:
        wrt = [graph.inputs[k] for k in self.wrt]
        return pytensor.grad(
            self.along(graph), wrt, disconnected_inputs="ignore", return_disconnected="zero"
        )

    def _slope_along(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The differences of the cost on both sides along the direction: the smaller, and the larger."""
        f = self._cost_by_reference()
        here, step = float(f(*self.values)), 1e-6
        if any(self.values[k].dtype == "float32" for k in self.wrt):
            step = 1e-3
        sides = []
        for sign in (1, -1):
            moved = [np.copy(v) for v in self.values]
            for k, t in zip(self.wrt, self.direction, strict=True):
                moved[k] = np.asarray(moved[k] + sign * step * t, moved[k].dtype)
            with np.errstate(all="ignore"):
                sides.append((float(f(*moved)) - here) / (sign * step))
        return [(np.asarray(min(sides)), np.asarray(max(sides)))]

    def _second_slopes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Bounds of the Hessian times the direction, by differences in two step sizes.

        Its distance from those of the smaller step is a third of their difference, on the side away from
        the larger step, up to terms of higher order.
        """
        f = self._cost_by_reference()
        is_single = any(self.values[k].dtype == "float32" for k in self.wrt)
        steps = (4e-2, 2e-2) if is_single else (1e-3, 5e-4)

        def moved(k: int, at: tuple[int, ...], along: float, across: float) -> float:
            values = [np.copy(v) for v in self.values]
            for j, t in zip(self.wrt, self.direction, strict=True):
                values[j] = np.asarray(values[j] + along * t, values[j].dtype)
            values[k][at] += across
            return float(f(*values))

        products = []
        for k in self.wrt:
            both = np.zeros((2, *self.values[k].shape))
            for at in np.ndindex(self.values[k].shape):
                for row, h in enumerate(steps):
                    with np.errstate(all="ignore"):
                        corners = [
                            a * b * moved(k, at, a * h, b * h) for a in (1, -1) for b in (1, -1)
                        ]
                        both[row, *at] = sum(corners) / (4 * h * h)
            beyond = np.abs(both[0] - both[1]) / 2
            products.append((both.min(0) - beyond, both.max(0) + beyond))
        return products

    def _cost_by_reference(self) -> Any:
        """The cost as a function; of the written-out program where PyTensor refuses the one with loops."""

        def compiled(graph: Graph) -> Any:
            cost = self.cost(graph)
            return pytensor.function(graph.inputs, cost, mode=PLAIN, on_unused_input="ignore")

        try:
            return compiled(self.reference)
        except Exception:
            if self.flat is None:
                raise
            return compiled(self.flat)

    def slopes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Bounds, by differences of the reference to both sides, as wide as the rounding of the cost."""
        f = self._cost_by_reference()
        here = float(f(*self.values))
        actual = []
        for k in self.wrt:
            x = self.values[k]
            step = 1e-6 if x.dtype == "float64" else 1e-3
            sides, noise = np.zeros((2, *x.shape)), np.zeros(x.shape)
            for at in np.ndindex(x.shape):
                for side, sign in enumerate((1, -1)):
                    moved = [np.copy(v) for v in self.values]
                    moved[k][at] += sign * step * max(1.0, abs(x[at]))
                    with np.errstate(all="ignore"):
                        rise, run = float(f(*moved)) - here, float(moved[k][at]) - float(x[at])
                        sides[side, *at] = np.divide(rise, run)
                        noise[at] = np.divide(4 * np.spacing(abs(here)), abs(run))
            actual.append((sides.min(0) - noise, sides.max(0) + noise))
        return actual

    def by_numba(self) -> list[np.ndarray]:
        """PyTensor's NUMBA mode, without the rewrites of loops that lose a row: see `plain`."""
        mode = get_mode("NUMBA").excluding("scan")
        f = pytensor.function(
            self.written.inputs, self.written.outputs, mode=mode, on_unused_input="ignore"
        )
        return [np.asarray(x) for x in f(*[np.copy(x) for x in self.values])]

    @cached_property
    def is_singular(self) -> bool:
        """Whether an elementwise op of the program has no finite derivative at its operands."""
        if self.flat is None:
            return False
        assert self.flat.flat is not None
        nodes = applys_between(self.flat.inputs, self.flat.outputs)
        return any(_is_singular(node, self.flat.flat.values) for node in nodes)

    # -- other values

    @cached_property
    def nearby(self) -> "Case":
        """The program a little away from where it is, where nothing is at a kink or an end."""
        rng = np.random.default_rng(self.program.seed)
        values = []
        for x in self.values:
            if x.dtype.kind == "f":
                with np.errstate(all="ignore"):
                    x = np.asarray(x + (1e-2 + 1e-2 * np.abs(x)) * rng.random(x.shape), x.dtype)
            values.append(x)
        case = Case(self.program, values, self)
        case.is_nearby = True
        return case

    @cached_property
    def rows(self) -> list["Case"]:
        """The program at other values, of the same shapes."""
        made = [self]
        for r in (1, 2):
            values = [_row(x.value, r, x.makes_shapes) for x in self.program.given]
            made.append(Case(self.program, values, self))
        return made


def _is_singular(node: Any, values: Values) -> bool:
    """Whether an elementwise op has a derivative that is not finite, as arctan2 at (0, 0) has."""
    if not isinstance(node.op, Elemwise):
        return False
    inputs = [v.type() for v in node.inputs]
    floats = [v for v in inputs if v.type.dtype.startswith("float")]
    y = node.op(*inputs)
    if not floats or not isinstance(y, Variable) or not y.type.dtype.startswith("float"):
        return False
    local = Values()
    local.known.update(zip(inputs, [values[v] for v in node.inputs], strict=True))
    with np.errstate(all="ignore"):
        slopes = pytensor.grad(y.sum(), floats, disconnected_inputs="ignore")
        return not all(is_finite(np.asarray(local[g])) for g in slopes)


def _row(x: np.ndarray, r: int, fixed: bool) -> np.ndarray:
    if fixed:
        return x
    with np.errstate(all="ignore"):
        x = np.asarray(x * (1 - 0.25 * r), x.dtype) if x.dtype.kind == "f" else x
    return np.roll(x, r, axis=0) if x.ndim else x
