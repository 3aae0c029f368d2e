"""What the emitted source looks like: nothing here is compiled."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

from benchmarks.programs import kalman_graph
from loopax.lowering import lower_to_loops
from loopax.numba_backend.callable.program import emitted
from tests.support.compare import imported


def program(inputs, outputs, sizes=None):
    graph = imported(list(inputs), outputs).graph
    lower_to_loops(graph)
    return emitted(graph, sizes or {}, True)


def source(inputs, outputs, sizes=None):
    return str(program(inputs, outputs, sizes).source)


def steps(text):
    """The lines inside of the outermost loops over steps: those that begin at the function's own level."""
    inside, actual = False, []
    for line in text.splitlines()[1:]:
        if line.startswith("     "):
            actual += [line] if inside else []
        else:
            inside = bool(re.match(r"    (while |for i\d+ in range\(\w+\):)", line))
    return actual


def hmm():
    """A forward filter whose vectors have lengths that nobody says."""
    A, rows = pt.dmatrices("A", "rows")
    start = pt.dvector("start")

    def step(row, p, A):
        p = (p @ A) * row
        return p / p.sum(), pt.log(p.sum())

    _, terms = pytensor.scan(
        step, sequences=[rows], outputs_info=[start, None], non_sequences=[A], return_updates=False
    )
    return [A, rows, start], [terms.sum()]


def test_a_step_allocates_nothing_and_checks_no_length():
    inside = "\n".join(steps(source(*hmm())))
    assert "matvec(" in inside
    for word in ("empty(", "agree(", "kept(", "index(", "size(", ".shape", "copy"):
        assert word not in inside


@pytest.mark.parametrize(
    ("shape", "calls"),
    [
        ((4, 12), ["unrolled_matmul"]),
        ((3, 30), ["matmul"]),
        ((9, 9), ["matmul_by_blas"]),
        ((None, None), ["matmul", "matmul_by_blas"]),
    ],
)
def test_a_size_that_is_known_chooses_loops_or_blas(shape, calls):
    """BLAS takes 0.1 s to compile, and loops 0.2: only what can run is in the program."""
    a, b = pt.tensor("a", shape=shape), pt.tensor("b", shape=shape)
    text = source([a, b], [a.dot(b.T)])
    assert re.findall(r"(\w*matmul\w*)\(", text) == calls


def test_a_block_of_weights_is_read_where_it_is():
    """Each step copied the blocks of a weight matrix that its products, and their gradients, read."""
    p, xs = pt.vector("p", shape=(2 * 10 * 12,)), pt.matrix("xs", shape=(20, 2))
    weights = p.reshape((20, 12))

    def step(x, h):
        z = pt.concatenate([h, x])
        return pt.tanh(weights[:10].dot(z) * weights[10:].dot(z))

    last = pytensor.scan(step, [xs], [pt.zeros(10)], return_updates=False)[-1]
    for outputs in ([last], [pytensor.grad(last.sum(), p)]):
        text = source([p, xs], outputs)
        assert len(re.findall(r"matvec\(", text)) >= 2
        assert "view_of_run(x0" in text
        assert not re.search(r"t\d+ = x0\[", "\n".join(steps(text)))


def test_lengths_are_checked_once_and_only_where_a_step_is_taken():
    text = source(*hmm())
    checks = re.search(r"\n    if n\d+ > 0:\n((?:        \w+\(n\d+, n\d+\)\n)+)", text)
    assert checks and checks[1].count("agree(") == 2 and checks[1].count("kept(") == 1


def test_lengths_that_are_known_leave_no_array():
    sizes = {(0, 0): 2, (0, 1): 2, (1, 1): 2, (2, 0): 2}
    text = source(*hmm(), sizes)
    inside, after = text.split("sum1 = 0.0")  # the logarithms are added up after the loop
    read = [line.partition(" = ")[2] for line in steps(inside)]
    assert read and not any("[" in value and "x1[" not in value for value in read)
    assert text.count("empty(") == 1 and "a0[i0] = " in inside and "a0[i1]" in after


@pytest.mark.parametrize("n", [3, None])
def test_a_sum_of_a_trace_is_a_state(n):
    inputs, out = kalman_graph(n)
    text = source(inputs, [out])
    assert "append(" not in text
    # The buffers are of states and of what a step needs: none has a row for each of y.
    (rows,) = re.findall(rf"(n\d+) = x{len(inputs) - 1}\.shape\[0\]", text)
    assert f"in range({rows}):" in text
    assert not re.search(rf"np\.empty\(.*\b{rows}\b", text)
    (returned,) = re.findall(r"return \((\w+),\)", text)
    assert re.search(rf"\n        {returned} = ", text), "the result is assigned in the loop"


def test_a_loop_that_stops_breaks():
    from pytensor.scan.utils import until

    c = pt.dscalar("c")

    def step(x, c):
        new = x - (x**2 - c) / (2 * x)
        return new, until(abs(new - x) < 1e-9)

    xs = pytensor.scan(step, outputs_info=[c], non_sequences=[c], n_steps=50, return_updates=False)
    text = source([c], [xs[-1]])
    assert "for i0 in range(50):" in text and "break" in text and "empty(" not in text


def test_backward_sequences_are_read_without_a_check():
    xs, a = pt.dvector("xs"), pt.dscalar("a")
    ys = pytensor.scan(
        lambda x, y, a: pt.tanh(a * y) + x,
        sequences=[xs],
        outputs_info=[pt.constant(0.0, dtype="float64")],
        non_sequences=[a],
        return_updates=False,
    )
    text = source([xs, a], [pytensor.grad(ys[-1], a)])
    # The loop, the functions of its states, as vector code, and the loop back.
    assert len(re.findall("for i", text)) == 3 and "index(" not in text


def test_states_of_one_shape_change_places_and_others_do_not():
    """Two states that take turns, beside one that is overwritten: a rotation of names, no copy."""
    u, v, m = pt.dvector("u"), pt.dvector("v"), pt.dmatrix("m")
    us, vs, ms = pytensor.scan(
        lambda u, v, m: (v, pt.tanh(u) + v, pt.tanh(m)),
        outputs_info=[u, v, m],
        n_steps=3,
        return_updates=False,
    )
    text = source([u, v, m], [us[-1], vs[-1], ms[-1]])
    inside = steps(text)
    assert sum("tanh(" in line for line in inside) == 2  # nothing but the two is computed
    moves = re.findall(r"\n        (a\d+) = (t\d+|a\d+)", "\n" + "\n".join(inside))
    assert len(moves) == 3  # of the two and of one more room


def test_literals_and_operators_have_the_precedence_of_the_graph():
    x, y, z = pt.dscalars("x", "y", "z")
    text = source([x, y, z], [x - (y - z), -(x + y), x / (y / z)])
    assert eval_program(text, 1.0, 2.0, 4.0) == [3.0, -3.0, 2.0]


def eval_program(text, *values):
    scope = {"np": np}
    exec(text, scope)
    return [float(x) for x in scope["program"](*values)]


# -- sums of arrays ------------------------------------------------------------------------------------


def loops_of(text):
    return len(re.findall(r"\bfor i\d+ in range", text))


def test_sums_may_take_their_terms_in_any_order():
    x, y = pt.dvectors("x", "y")
    text = source([x, y], [(x * y).sum(), pt.dot(x, y), (x**2).prod()])
    assert text.count(" = plus(") == 2 and text.count(" = times(") == 1
    k = pt.lvector("k")
    assert "plus(" not in source([k], [k.sum()]), "integers wrap around: the order is no matter"


def test_what_gives_a_filled_array_its_shape_is_not_stored_for_it():
    """The gradient of a sum of terms fills their shape with ones: the terms are then read once."""
    x, s = pt.dvector("x"), pt.dscalar("s")
    terms = pt.log(pt.exp(x) + s)
    text = source([x, s], [terms.sum(), pt.second(terms, s).sum()])
    assert loops_of(text) == 1 and "empty(" not in text


def test_terms_behind_a_check_are_part_of_the_loop_that_sums_them():
    x, s = pt.dvector("x"), pt.dscalar("s")
    terms = Assert("positive")(pt.log(pt.exp(x) + s), pt.gt(s, 0.0))
    text = source([x, s], [terms.sum(), pt.second(terms, s).sum()])
    assert loops_of(text) == 1 and "empty(" not in text and "raise" in text


def test_what_only_gives_a_shape_is_still_computed():
    """It may raise: here at an index."""
    x, k = pt.dvector("x"), pt.lvector("k")
    assert "index(" in source([x, k], [pt.second(x[k], 1.0).sum()])


# -- gathers -------------------------------------------------------------------------------------------


def test_what_is_gathered_from_memory_is_found_again_rather_than_kept():
    """A likelihood and its gradient each read the effect of every row."""
    effects, scale, k = pt.dmatrix("effects"), pt.dvector("scale"), pt.lvector("k")
    gathered = effects[k]
    twice = [pt.exp(gathered).sum(), (gathered * scale[:, None]).sum()]
    text = source([effects, scale, k], twice)
    assert "empty(" not in text and text.count("index(") == 2
    thrice = [*twice, pt.log(gathered).sum()]
    assert source([effects, scale, k], thrice).count("empty(") == 1
    each_often = [gathered @ gathered.T]
    assert source([effects, scale, k], each_often).count("empty(") == 2


def test_what_has_to_be_computed_before_it_is_gathered_is_kept():
    x, k = pt.dmatrix("x"), pt.lvector("k")
    gathered = pt.exp(x)[k * 2]
    text = source([x, k], [pt.exp(gathered).sum(), pt.log(gathered).sum()])
    assert text.count("empty(") == 2


x, y, k = pt.dvector("x"), pt.dvector("y"), pt.lvector("k")
a = pt.dmatrix("a")


@pytest.mark.parametrize(
    "out",
    [
        pt.zeros(7)[k].inc(pt.exp(y)),
        pt.zeros(7)[k].set(pt.exp(y) * 2),
        pt.cumsum(pt.exp(y)),
        pt.argmax(pt.exp(y)),
        pt.exp(x[k]),
        pt.exp(y) * x[k],
        pt.exp(x[k] * 2)[:, None] + a,
        pt.zeros(7)[k].inc(y * pt.exp(x[k] + y)),
        pt.exp(a.T) + 1,
        (pt.exp(x[k]) * a).T.copy(),
    ],
)
def test_functions_are_called_in_loops_that_are_vector_code(out):
    """They read and write one element after the other: all else is in loops of its own."""
    loops = re.split(r"\n    (?=\S)", source([x, y, k, a], [out]))
    [text] = [text for text in loops if "exp(" in text]
    lines = text.splitlines()
    index = re.match(r" *for (\w+) ", [line for line in lines if "for " in line][-1])[1]
    read_and_written = re.findall(r"\w+\[([^\]]*)\]", text)
    # Behind the last axis that is longer than 1.
    last = {at.removesuffix(", 0").split(", ")[-1] for at in read_and_written}
    assert last == {index}
    assert "index(" not in text and "total" not in text and "best" not in text


def test_a_gather_without_functions_is_part_of_the_loop_that_reads_it():
    assert "empty(" not in source([x, y, k], [((x[k] - y) ** 2).sum()])


def test_a_row_is_looked_up_once_for_its_elements():
    x, y, k, at = pt.dmatrix("x"), pt.dmatrix("y"), pt.lvector("k"), pt.lmatrix("at")
    for inputs, out in (([x, y, k], (x[k] * y).sum()), ([x, y, k], pt.inc_subtensor(x[k], y))):
        text = source(inputs, [out])
        assert text.count("index(") == 1
        assert re.search(r"\n        k\d+ = index\(t\d+, n\d+\)\n +for i", text), text
    text = source([x, at], [x[at, 0].sum()])
    assert re.search(r"\n            k\d+ = index\(t\d+, n\d+\)\n", text), "each at its own"


def test_constant_positions_are_unsigned_so_that_llvm_knows_that_they_do_not_count_from_the_end():
    """Behind a reshape a position is ``k * 3 + i``: a loop over i is vector code if that is at least 0."""
    x, k = pt.vector("x", shape=(120,)), np.arange(-1, 39)
    emit = program([x], [x.reshape((40, 3))[k].sum(axis=1)])
    [at] = [c for c in emit.namespace.values() if isinstance(c, np.ndarray) and c.dtype == "uint32"]
    np.testing.assert_array_equal(at, k % 40)
    assert re.search(r"k\d+ = np\.int64\(t\d+\)\n", str(emit.source))


# -- switches ------------------------------------------------------------------------------------------


def test_of_a_switch_only_the_branch_that_is_needed_is_computed_where_that_pays():
    x, m = pt.dvector("x"), pt.vector("m", dtype="bool")
    text = source([x, m], [pt.switch(m, pt.tan(pt.arcsin(x)), pt.arctan(pt.tan(x))).sum()])
    head, condition, rest = text.partition("if t0:\n")
    assert condition and "tan" not in head and "else:\n" in rest
    vector_code = pt.switch(m, pt.gammaln(x), pt.gammaln(-x))
    for cheap in (pt.switch(m, x + 1, -x), pt.switch(m, pt.exp(x), 0.0), vector_code):
        assert "if t0:\n" not in source([x, m], [cheap.sum()])


def test_a_branch_of_a_switch_that_may_raise_is_always_computed():
    x, m, k = pt.dvector("x"), pt.vector("m", dtype="bool"), pt.lvector("k")
    text = source([x, m, k], [pt.switch(m, pt.tan(pt.arcsin(x[k])), pt.arctan(pt.tan(x))).sum()])
    assert "index(" in text and "if t0:\n" not in text


def test_parts_of_a_concatenation_are_computed_where_they_lie_in_it():
    """And where each begins is hidden from LLVM, which would look at all ways to write a sum of lengths."""
    x, y = pt.dvectors("x", "y")
    text = source([x, y], [pt.concatenate([pt.exp(x), pt.tanh(y), x[1:] * y[0]]) ** 2])
    assert text.count("empty(") == 2  # the whole, and its square
    assert text.count("hidden(") == 3
