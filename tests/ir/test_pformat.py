"""Programs as text."""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph

from loopax.ir import BodyArgs, BodyOuts, Call, Scan, ScanArgs, ScanOptions, pformat

# Constants with the dtype they have in a loop: a bare 0.0 is a float32 to PyTensor.
ZERO, FOUR = pt.constant(0.0, dtype="float64"), pt.constant(4, dtype="int64")
INDEX, X, S, C = pt.lscalar("i"), pt.dscalar("x"), pt.dscalar("s"), pt.dvector("c")


def text(inputs, outputs, **options):
    return pformat(FunctionGraph(inputs, outputs, clone=True), **options)


def test_a_loop_is_printed_with_its_step():
    scan = Scan.from_body(
        BodyArgs(INDEX, [X], [S], [C]),
        BodyOuts([S + X], [S - X, INDEX]),
        options=ScanOptions(name="sum"),
    )
    n, xs, c = pt.lscalar("n"), pt.dvector("xs"), pt.dvector("c", shape=(2,))
    outputs = scan.bind(ScanArgs(n, [xs], [ZERO], [c]))
    actual = text([n, xs, c], outputs, name="demo")
    assert actual.splitlines()[0] == "demo(n: int64[], xs: float64[?], c: float64[2])"
    assert actual.splitlines()[1] == (
        "  a: float64[], b: float64[?], d: int64[?] = Scan{sum} n_steps=n xs=(xs) init=(0.0) "
        "consts=(c)"
    )
    assert actual.splitlines()[2] == (
        "    step(i: int64[], x0: float64[], s0: float64[], c0: float64[?])"
    )
    # which of the step's two nodes comes first is not ours to say
    assert actual.splitlines()[-2] in ("      return a | b, i", "      return b | a, i")
    assert actual.splitlines()[-1] == "  return a, b, d"


def test_the_example_at_the_top_of_the_file():
    new = S + X
    scan = Scan.from_body(BodyArgs(INDEX, [X], [S], []), BodyOuts([new], [new]))
    xs = pt.dvector("xs")
    final, _ = scan.bind(ScanArgs(xs.shape[0], [xs], [ZERO], []))
    body = [line for line in text([xs], [final]).splitlines() if line.startswith("    ")]
    assert body == [
        "    step(i: int64[], x0: float64[], s0: float64[])",
        "      a: float64[] = add(s0, x0)",
        "      return a | a",
    ]


def test_a_loop_that_stops_shows_its_flag_apart():
    scan = Scan.from_body(BodyArgs(INDEX, [], [S], []), BodyOuts([S], [INDEX], pt.gt(S, 3.0)))
    actual = text([S], scan.bind(ScanArgs(FOUR, [], [S], [])))
    assert "Scan{loop, stops} n_steps=4 xs=() init=(s) consts=()" in actual
    assert "      return s0 | i | a" in actual


def test_vectors_among_what_a_step_returns():
    constant = pt.constant(np.array([1.0, 2.0]))
    scan = Scan.from_body(
        BodyArgs(INDEX, [], [S], []), BodyOuts([S], [constant, INDEX], pt.gt(S, 3.0))
    )
    actual = text([S], scan.bind(ScanArgs(FOUR, [], [S], [])))
    assert "      return s0 | [1.0, 2.0], i | a" in actual


def test_a_call_is_printed_with_its_body():
    call = Call(FunctionGraph([X, C], [X * C], clone=True).freeze(), name="scale")
    lines = text([X, C], [call(X, C)]).splitlines()
    assert lines[1] == "  a: float64[?] = Call{scale}(x, c)"
    assert lines[2] == "    body(a: float64[], b: float64[?])"
    assert lines[-2].startswith("      return ") and lines[-1] == "  return a"


def test_loops_in_loops_are_indented_under_their_loop():
    inner = Scan.from_body(
        BodyArgs(INDEX, [], [S], []), BodyOuts([S + INDEX], []), options=ScanOptions(name="inner")
    )
    outer = Scan.from_body(
        BodyArgs(INDEX, [], [S], []),
        BodyOuts(inner.bind(ScanArgs(2, [], [S], [])), []),
        options=ScanOptions(name="outer"),
    )
    lines = text([S], outer.bind(ScanArgs(3, [], [S], []))).splitlines()
    depth = {line.strip(): len(line) - len(line.lstrip()) for line in lines}
    assert [v for k, v in depth.items() if "Scan{outer}" in k] == [2]
    assert [v for k, v in depth.items() if "Scan{inner}" in k] == [6]
    assert sum("step(i: int64[], s0: float64[])" in line for line in lines) == 2


def test_names_are_not_given_twice():
    a, b = pt.dvector("a"), pt.dvector()
    assert text([a, b], [a + b]).splitlines() == [
        "program(a: float64[?], b: float64[?])",
        "  c: float64[?] = add(a, b)",
        "  return c",
    ]
    b.name = "a"
    header, line, _ = text([a, b], [a - b]).splitlines()
    names = [part.split(":")[0] for part in header.removeprefix("program(").split(", ")]
    assert len(set(names)) == 2, header
    assert line.endswith(f"= sub({names[0]}, {names[1]})")


def test_no_name_runs_out():
    inputs = [pt.dscalar() for _ in range(30)]
    header = text(inputs, [inputs[0]]).splitlines()[0]
    assert "z: float64[], a1: float64[], b1: float64[]" in header


def test_a_program_of_any_name_returns():
    assert text([X], [X], name="step").splitlines() == ["step(x: float64[])", "  return x"]


def test_large_constants_are_shown_by_type():
    small, large = pt.constant(np.arange(3)), pt.constant(np.zeros((4, 5)))
    line = text([], [small, large]).splitlines()[-1]
    assert line == "  return [0, 1, 2], <float64[4,5]>"


def test_types_without_a_shape():
    rng = pt.random.type.random_generator_type("rng")
    assert text([rng], [rng]).splitlines()[0] == "program(rng: RandomGeneratorType)"


def test_equal_graphs_give_equal_text():
    def program():
        x = pt.dvector("x")
        scan = Scan.from_body(BodyArgs(INDEX, [X], [S], []), BodyOuts([S * X], [S]))
        return text([x], scan.bind(ScanArgs(x.shape[0], [x], [ZERO], [])))

    assert program() == program()
