"""Loops and conditionals with generators: which output is the next state of which generator."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.random.op import RNGConsumerOp

import loopax


def normal(rng, mean=0.0):
    return pt.random.normal(mean, 1.0, rng=rng, return_next_rng=True)


def shared():
    return pytensor.shared(np.random.default_rng(0))


def test_a_loop():
    a, b, unread = shared(), shared(), pt.dscalar("x")

    def step(carry, _):
        level, first, second = carry
        first, x = normal(first, level)
        second, y = normal(second)
        return (x + y + unread, first, second), x

    (_, after_a, after_b), trace = loopax.scan(step, (0.0, a, b), length=3)
    assert trace.owner.op.update(trace.owner) == {a: after_a, b: after_b}
    again = trace.owner.op.with_options(reverse=True)
    assert isinstance(again, RNGConsumerOp)


def test_a_generator_outside_the_carry_has_no_next_state():
    rng = shared()
    trace = loopax.scan(lambda c, _: (c, normal(rng, c)[1]), 0.0, length=3)[1]
    assert isinstance(trace.owner.op, RNGConsumerOp)
    assert trace.owner.op.update(trace.owner) == {}


def test_a_conditional():
    a, b, x = shared(), shared(), pt.dscalar("x")

    def then(a, b):
        a, draw = normal(a)
        a, other = normal(a, draw)
        return a, b, other

    after_a, after_b, draw = loopax.cond(x > 0, then, lambda a, b: (a, *normal(b)), a, b)
    assert draw.owner.op.update(draw.owner) == {a: after_a, b: after_b}
    swapped = loopax.cond(x > 0, lambda a, b: (a, b), lambda a, b: (b, a), a, b)
    assert swapped[0].owner.op.update(swapped[0].owner) == {}


def test_other_loops_and_conditionals_take_no_generators():
    x = pt.dvector("x")
    total = loopax.scan(lambda c, r: (c + r, None), 0.0, x)[0]
    sign = loopax.cond(x[0] > 0, lambda: pt.ones(()), lambda: pt.zeros(()))
    assert not isinstance(total.owner.op, RNGConsumerOp)
    assert not isinstance(sign.owner.op, RNGConsumerOp)
