"""Random whole programs through all routes; and that what judges them can tell right from wrong.

`make test` runs the first few dozen, each by two routes in this process; `make test-all` a thousand, in a
process that may hang. For more: ``python -m tests.random_programs --minutes 30``.
"""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from tests.jax_backend import interpreted
from tests.random_programs import running
from tests.random_programs.answers import NotAProgram
from tests.random_programs.building import build
from tests.random_programs.description import Input, Program, Statement, source
from tests.random_programs.judging import difference
from tests.random_programs.oracles import Case
from tests.random_programs.plain import plainly
from tests.random_programs.routes import ROUTES
from tests.random_programs.shares import SHARES
from tests.random_programs.shrinking import shrunk
from tests.random_programs.writing import program

QUICK = [name for name in ROUTES if name.endswith("as Python")]


@pytest.fixture(autouse=True)
def plain():
    with plainly():
        yield


def test_each_share_is_of_a_route():
    assert {name for shares in SHARES.values() for name in shares} <= ROUTES.keys()


def is_quick(kind):
    """XLA compiles an incomplete gamma function for half a minute, and its gradient for longer."""
    return not kind.startswith("special function of")


def assert_right(seed, names):
    one = program(seed, is_quick)
    try:
        case = Case(one)
    except NotAProgram:
        return
    for name in names:
        verdict = ROUTES[name](case)
        assert verdict.status not in ("wrong", "refused"), (
            f"seed {seed}, {name}: {verdict.what}\n\n{source(one)}"
        )


@pytest.mark.sampled(13)
@pytest.mark.filterwarnings(
    "ignore"
)  # of NumPy and SciPy, about the values a program happens to have
@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed):
    other = random.Random(seed).choice(QUICK)
    assert_right(seed, ["PyTensor's oracles", "numba as Python", other])


def test_routes_of_native_code_run_native_code(monkeypatch):
    """Each kernel of the derivative is run as Python; a route that gets JAX's operations runs none."""
    kernels = []
    run = interpreted.CONTROL_FLOW["loopax_kernel"]

    def counted(values, **params):
        kernels.append(params["kernel"])
        return run(values, **params)

    monkeypatch.setitem(interpreted.CONTROL_FLOW, "loopax_kernel", counted)
    case = Case(LONG)
    assert ROUTES["jax.grad of native jax as Python"](case).status == "right"
    assert kernels
    kernels.clear()
    assert ROUTES["jax.grad of jax as Python"](case).status == "right"
    assert not kernels


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("start", range(100, 1100, 50))
def test_many_random_programs(start):
    said = []
    status = running.run(itertools.count(start), minutes=45, most=50, out=said.append)
    assert status == 0, "\n".join(said)


# -- what judges -------------------------------------------------------------------------------------

X = Input("x1", np.array([0.5, -1.0, 2.0]), (None,))
LONG = Program(
    0,
    (X,),
    (
        Statement("unary", ("v2",), "pt.tanh(x1)"),
        Statement("unary", ("v3",), "2 * v2"),
        Statement("cumulative", ("v4",), "pt.cumsum(v3, axis=0)"),
        Statement("unary", ("v5",), "v4 + v2"),
    ),
    ("v3", "v5"),
)


def test_a_pasted_program_is_the_program():
    names = {}
    exec(source(LONG), names)
    actual = [
        v.eval(dict(zip(names["inputs"], names["values"], strict=True))) for v in names["outputs"]
    ]
    for x, y in zip(actual, Case(LONG).outputs.values, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(200, 230))
def test_a_seed_is_a_program(seed):
    one = program(seed)
    assert source(one) == source(program(seed))
    assert len(build(one).outputs) == len(one.outputs)


def test_a_fault_is_shrunk_to_its_statement():
    def fails(p):
        Case(p)  # it stays a program
        return any("cumsum" in s.code for s in p.statements)

    least = shrunk(LONG, fails)
    assert [s.kind for s in least.statements] == ["cumulative"]
    assert least.outputs == ("v4",)


def test_a_wrong_value_is_found():
    case = Case(LONG)
    good = [np.array(x) for x in case.outputs.values]
    assert case.outputs.fault(good) is None
    good[1][2] += 1e-5
    assert case.outputs.fault(good).startswith("output 1: ")
    assert "float32(3,), not float64(3,)" in case.outputs.fault([np.float32(good[0]), good[1]])
    assert "float64(2,), not float64(3,)" in case.outputs.fault([good[0][:2], good[1]])


def test_a_rounding_that_crosses_a_jump_is_none():
    """``tanh`` rounds, so its floor may be another; the floor of an input may not."""
    at_one = replace(X, value=np.array([1.0, 2.5]))
    jump = Statement("unary", ("v3",), "pt.floor(pt.log(pt.exp(x1)))")
    exact = Statement("unary", ("v3",), "pt.floor(x1)")
    for statement, crosses in [(jump, True), (exact, False)]:
        answer = Case(Program(0, (at_one,), (statement,), ("v3",))).outputs
        there = answer.values[0]
        below, other = there - [1, 0], there + [0, 1]
        assert (answer.fault([below]) is None) is crosses
        assert answer.fault([other]) is not None


def test_infinities_and_nan_are_values():
    values = np.array([np.inf, -np.inf, np.nan, 0.0])
    far = np.zeros(4)
    assert difference(values.copy(), values, far) is None
    for k, x in itertools.product(range(4), (np.nan, np.inf, 1.0)):
        changed = values.copy()
        changed[k] = x
        same = np.array_equal(changed, values, equal_nan=True)
        assert (difference(changed, values, far) is None) is same


def test_what_only_the_rewritten_graph_computes():
    at_1000 = replace(X, value=np.array([1000.0, 1.0]))
    stable = Statement("unary", ("v3",), "pt.log(pt.exp(x1))")
    answer = Case(Program(0, (at_1000,), (stable,), ("v3",))).outputs
    for x, right in [(1000.0, True), (np.inf, True), (999.0, False)]:
        assert (answer.fault([np.array([x, 1.0])]) is None) is right
    assert answer.fault([np.array([1000.0, 2.0])])


def test_what_is_left_of_a_division_by_zero():
    """``x / x`` is 1 in PyTensor's rewrites, and nan as it is written; then 0."""
    at_zero = replace(X, value=np.array([0.0, 3.0]))
    hidden = Statement("unary", ("v3",), "pt.nan_to_num(x1 / x1)")
    answer = Case(Program(0, (at_zero,), (hidden,), ("v3",))).outputs
    for x, right in [(1.0, True), (0.0, True), (2.0, False)]:
        assert (answer.fault([np.array([x, 1.0])]) is None) is right


def test_no_answer_is_a_fault():
    worker = running.Worker([])
    try:
        with pytest.raises(running.Hang, match="no answer in 0 s"):
            worker.answer(0.01)
        worker.process.kill()
        with pytest.raises(running.Hang, match="the process died with exit status -9"):
            worker.answer()
    finally:
        worker.stop()


def test_the_faults_are_counted(monkeypatch):
    """Each by its route, once with its text; and a route that hangs."""
    answers = {
        "0": [{"features": {"unary": 1}}, {"begins": "jax"}, {"route": "jax", **_said("wrong")}],
        "0 jax": [{"route": "jax", "what": "1, not 2", "text": "the least program"}],
        "1": [{"features": {"unary": 2}}, {"begins": "numba"}],
    }

    class Scripted:
        age = 0

        def __init__(self, arguments):
            pass

        def ask(self, line):
            self.left = [*answers[line], *([{"done": 0}] if line == "0" else [])]

        def answer(self, limit=0):
            if not self.left:
                raise running.Hang("no answer in 0 s")
            return self.left.pop(0)

        def stop(self):
            pass

    monkeypatch.setattr(running, "Worker", Scripted)
    said = []
    status = running.run(iter([0, 1]), minutes=1, most=9, out=said.append)
    text = "\n".join(said)
    assert status == 1
    assert "==== wrong: jax, seed 0\n1, not 2\n\nthe least program" in text
    assert "==== hangs: numba, seed 1\nno answer in 0 s" in text
    assert "2 programs, 1 comparisons, 2 wrong, 0 refused" in text


def _said(status):
    return {"status": status, "what": "1, not 2", "signature": f"{status}: 1"}
