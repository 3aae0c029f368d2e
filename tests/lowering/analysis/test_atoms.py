"""The parts of a loop, and in which loops `Plan` puts them."""

import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type

from loopax import scan
from loopax.lowering.analysis.atoms import atoms, whole
from loopax.lowering.fusion.fusion_plan import Plan, can_be_fused
from tests.support.compare import loops

x, y = pt.dvector("x"), pt.dvector("y")
s, a = pt.dscalar("s"), pt.dscalar("a")
ZERO = pt.constant(0.0, dtype="float64")


def graph_of(*outputs, inputs=(x, y, s, a)):
    return FunctionGraph([*inputs], list(outputs), clone=True)


def parts_of(outputs, **options):
    (node,) = loops(graph_of(*outputs, **options))
    return atoms(node)


# -- atoms: strongly connected components of what a step reads -----------------------------------------


def test_states_that_read_one_another_are_one_part():
    (p, q, t), ys = scan(
        lambda c, r: ((c[1] * r, c[0] + a, pt.sin(c[2]) * c[0]), pt.exp(r)), (s, a, s * a), x
    )
    carry, follower, row = parts_of([p, q, t, ys])
    assert carry.states == (0, 1) and carry.directed and carry.before == ()
    assert follower.states == (2,) and follower.before == (0,) and follower.directed
    assert row.is_row and not row.directed and row.ys == (0,)


def test_each_comes_after_those_that_it_reads():
    """Written the other way round: the state that reads comes first."""
    (p, q), _ = scan(lambda c, r: ((pt.sin(c[0]) * c[1], c[1] * r), None), (s, a), x)
    assert [part.states for part in parts_of([p, q])] == [(1,), (0,)]


def test_a_sum_has_no_direction():
    (total, _), _ = scan(lambda c, r: ((c[0] + r * c[1], c[1] * r), None), (ZERO, s), x)
    parts = {part.states: part for part in parts_of([total])}
    assert not parts[0,].directed and parts[0,].before == (1,) and parts[1,].directed


def test_a_sum_that_is_read_has_one():
    """By a trace of it, by another state, or by what is added to it."""
    final, ys = scan(lambda c, r: (c + r, c), ZERO, x)
    assert all(part.directed for part in parts_of([final, ys]))
    final, _ = scan(lambda c, r: (c + r * pt.sin(c), None), s, x)
    assert all(part.directed for part in parts_of([final]))
    (p, q), _ = scan(lambda c, r: ((c[0] + r, c[1] * c[0]), None), (ZERO, s), x)
    assert all(part.directed for part in parts_of([p, q]))


def test_a_row_reads_states_before_or_behind_the_step():
    def step(c, r):
        new = pt.tanh(c + r)
        return new, (pt.exp(c), pt.exp(new) * r)

    final, (before, after) = scan(step, s, x)
    _, one, other = parts_of([final, before, after])
    assert (one.before, one.after, one.rows) == ((0,), (), ())
    assert (other.before, other.after, other.rows) == ((), (0,), (0,))


def test_a_state_that_is_emitted_belongs_to_it():
    final, ys = scan(lambda c, r: (c * r, c), s, x)
    (part,) = parts_of([final, ys])
    assert (part.states, part.ys) == ((0,), (0,))


def test_what_the_step_does_not_read_is_waited_for():
    """Nothing reads the second sequence, whose length may be wrong."""
    final, _ = scan(lambda c, r: (c * r[0], None), s, (x, y))
    (part,) = parts_of([final])
    assert part.rows == (0, 1)


def test_a_generator_keeps_a_loop_whole():
    rng = random_generator_type("rng")

    def step(c, r):
        following, e = pt.random.normal(c[1], rng=c[0], return_next_rng=True)
        return (following, e), r * 2

    (_, final), ys = scan(step, (rng, s), x)
    (node,) = loops(graph_of(final, ys, inputs=(x, s, rng)))
    (part,) = atoms(node)
    (all_of_it,) = whole(node)
    assert (part.states, part.ys, part.directed) == ((0, 1), (0,), True)
    assert (part.states, part.ys, part.rows) == (all_of_it.states, all_of_it.ys, all_of_it.rows)


# -- the plan ------------------------------------------------------------------------------------------


def plan(*outputs, inputs=(x, y, s, a)):
    return Plan(graph_of(*outputs, inputs=inputs), atoms)


def first(**options):
    return scan(lambda c, r: (pt.tanh(c + r), c * r), s, x, **options)


def test_loops_that_read_no_more_than_the_same_step_share_a_cluster():
    f, ys = first()
    g, _ = scan(lambda c, r: (c * 0.5 + r, None), a, ys * 2)
    (cluster,) = plan(f, g).clusters
    assert len(cluster.atoms) == 3 and not cluster.is_one_loop and cluster.reverse is False


def test_what_prevents_it_is_a_need_of_the_whole():
    """Its final, the sum of its trace, the trace turned around: known after the last step only."""
    f, ys = first()
    for given in (x * f, x * ys.sum(), ys[::-1]):
        g, _ = scan(lambda c, r: (c * 0.5 + r, None), a, given)
        one, other = plan(f, g).clusters
        assert one.is_one_loop and other.needs == one.bit


def test_other_steps_and_other_directions_are_other_clusters():
    f, _ = first()
    g, _ = scan(lambda c, r: (c * r, None), a, y)
    h, _ = scan(lambda c, r: (c * r, None), a, x, reverse=True)
    clusters = plan(f, g, h).clusters
    assert sorted(c.reverse for c in clusters) == [False, False, True]
    assert not any(c.needs for c in clusters)


def test_a_variable_depends_on_the_clusters_it_follows_from():
    f, ys = first()
    graph = graph_of(f, pt.sin(ys), y * 2)
    actual = Plan(graph, atoms)
    (cluster,) = actual.clusters
    assert [actual.depends(v, cluster) for v in graph.outputs] == [True, True, False]


def test_loops_that_cannot_be_fused():
    f, _ = first()
    g, _, _ = scan(lambda c, r: (c * r, c, c > 1), s, x)
    h, _ = first(truncate_gradient=2)
    assert [can_be_fused(v.owner.op) for v in (f, g, h)] == [True, False, False]
    assert not plan(g, h).clusters
