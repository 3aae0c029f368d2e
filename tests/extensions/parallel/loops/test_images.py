"""What a step is said to be, against what its derivatives and differences say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loopax.extensions.parallel.loops.coordinates import Coordinates
from loopax.extensions.parallel.loops.images import Image, Known, images, state_image

VECTOR = np.linspace(0.5, 2.0, 3)
MATRIX = np.arange(9.0).reshape(3, 3) / 10

# name: (step of a vector of 3 and a row of 3, affine, varying, unmixed)
STEPS = {
    "a scaled sum": (lambda s, x: 2 * s + x, True, False, True),
    "a coefficient of the row": (lambda s, x: x * s - x, True, True, True),
    "a quotient": (lambda s, x: (s - x) / (1 + x), True, True, True),
    "a choice by the row": (lambda s, x: jnp.where(x > 0, s, x * s + 1), True, True, True),
    "a constant matrix": (lambda s, x: MATRIX @ s + x, True, False, False),
    "a matrix of the row": (lambda s, x: jnp.outer(x, x) @ s, True, True, False),
    "a shift": (lambda s, x: jnp.concatenate([x[:1], s[:-1]]), True, False, False),
    "a sum of it": (lambda s, x: s.sum() * x, True, True, False),
    "what is written at an index": (lambda s, x: s.at[1].add(2.0) * x, True, True, False),
    "a cumulative sum": (lambda s, x: jnp.cumsum(s) + x, True, False, False),
    "under jit": (jax.jit(lambda s, x: jnp.where(x > 0, s, 2 * s)), True, True, True),
    "a triangular system": (
        lambda s, x: jax.scipy.linalg.solve_triangular(MATRIX + np.eye(3), s + x, lower=True),
        True,
        False,
        False,
    ),
    "a branch by the row": (
        lambda s, x: jax.lax.cond(x[0] > 0, lambda: 2 * s, lambda: s + x),
        True,
        True,
        True,
    ),
    "itself, reshaped": (
        lambda s, x: (s.reshape(3, 1) * x[:, None]).reshape(3) + s[None, :][0],
        True,
        True,
        True,
    ),
    "a product of states": (lambda s, x: s * s + x, False, None, True),
    "a function": (lambda s, x: jnp.tanh(s) + x, False, None, True),
    "a maximum": (lambda s, x: jnp.maximum(s, x), False, None, True),
    "a sign, whose derivative is 0": (lambda s, x: 0.5 * s + jnp.sign(s), False, None, True),
    "a derivative stopped": (lambda s, x: jax.lax.stop_gradient(s) * s, False, None, True),
    "a divisor": (lambda s, x: x / s, False, None, True),
    "a choice by the state": (lambda s, x: jnp.where(s > 1, s, 2 * s), False, None, True),
    "an index of the state": (lambda s, x: x[jnp.int32(s)], False, None, None),
    "a function of a product": (lambda s, x: jnp.exp(MATRIX @ s), False, None, False),
    "a loop inside": (
        lambda s, x: jax.lax.fori_loop(0, 3, lambda _, c: c + s, x),
        False,
        None,
        None,
    ),
}


def image_of(step):
    like = jax.ShapeDtypeStruct((3,), float)
    closed = jax.make_jaxpr(step)(like, like)
    (actual,) = images(closed.jaxpr, [state_image(1), Known(varying=True)])
    return actual


@pytest.mark.parametrize("name", STEPS)
def test_what_a_step_is(name):
    step, affine, varying, unmixed = STEPS[name]
    actual = image_of(step)
    assert isinstance(actual, Image)
    assert actual.affine == affine
    if affine:
        assert actual.varying == varying
    if unmixed is not None:
        assert (actual.axes == (0,)) == unmixed


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [name for name, (_, affine, *_) in STEPS.items() if affine])
def test_an_affine_step_is_its_matrix_and_its_offset(name):
    step = STEPS[name][0]
    at = Coordinates.of([(3,)], [image_of(step)])
    zero = [jnp.zeros(3)]
    for row in (VECTOR, -VECTOR):
        matrix = at.matrix(lambda s, row=row: [step(s, row)], zero)
        offset = at.join([step(zero[0], row)])
        state = jnp.asarray([0.3, -1.0, 2.0])
        moved = (matrix * at.join([state])[None]).sum(1) + offset
        np.testing.assert_allclose(at.split(moved)[0], step(state, row), rtol=1e-12)


def test_a_step_that_reads_no_state_is_known():
    like = jax.ShapeDtypeStruct((3,), float)
    closed = jax.make_jaxpr(lambda s, x: (x + 1, jnp.ones(2)))(like, like)
    actual = images(closed.jaxpr, [state_image(1), Known(varying=True)])
    assert actual == [Known(varying=True), Known(varying=False)]


def test_integers_keep_to_what_is_exact():
    like = jax.ShapeDtypeStruct((), int)
    closed = jax.make_jaxpr(lambda k, x: (3 * k + x, k // 2, k / 2))(like, like)
    tripled, halved, quotient = images(closed.jaxpr, [state_image(0), Known(varying=True)])
    assert tripled.affine
    assert not halved.affine
    assert not quotient.affine


def test_states_of_several_shapes_are_one_vector():
    at = Coordinates.of([(2, 3), ()], [Image((None, None)), Image(())])
    assert (at.size, at.width) == (7, 1)
    states = [jnp.arange(12.0).reshape(2, 2, 3), jnp.array([7.0, 8.0])]
    for x, y in zip(at.split(at.join(states)), states, strict=True):
        np.testing.assert_array_equal(x, y)


def test_unmixed_axes_are_a_batch():
    at = Coordinates.of([(2, 3), (2, 3)], [Image((0, None)), Image((0, None))])
    assert (at.size, at.width) == (6, 2)
    states = [jnp.arange(24.0).reshape(4, 2, 3), -jnp.arange(24.0).reshape(4, 2, 3)]
    for x, y in zip(at.split(at.join(states)), states, strict=True):
        np.testing.assert_array_equal(x, y)
