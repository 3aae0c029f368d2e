"""Values without a tangent where a mask is false: `loopax.jax_backend.ops.masked_tangent`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.jet import jet
from jax.sharding import PartitionSpec

from loopax.jax_backend.ops.masked_tangent import masked_tangent

X = np.array([4.0, 0.0, -1.0])


def total(x):
    return jnp.where(x > 0, jnp.log(masked_tangent(x, x > 0)), 0.0).sum()


def test_it_is_zero_whatever_it_is_multiplied_with():
    np.testing.assert_array_equal(jax.grad(total)(X), [0.25, 0.0, 0.0])
    np.testing.assert_array_equal(jax.jacfwd(total)(X), [0.25, 0.0, 0.0])
    np.testing.assert_array_equal(jax.hessian(total)(X), np.diag([-0.0625, 0.0, 0.0]))
    (out,) = jax.linearize(total, X)[1:]
    np.testing.assert_array_equal(out(np.ones(3)), 0.25)


def test_its_transpose_and_its_series():
    mask = np.array([True, False, True])
    (transposed,) = jax.linear_transpose(lambda x: masked_tangent(x, mask), X)(np.ones(3))
    np.testing.assert_array_equal(transposed, mask)
    term = np.arange(1.0, 4.0)
    out, series = jet(lambda x: masked_tangent(x, mask) ** 2, (X,), ((term, 0 * term),))
    np.testing.assert_array_equal(out, X**2)
    np.testing.assert_allclose(series, [2 * X * term * mask, 2 * term**2 * mask])


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, 0)])
def test_a_batch_of_either(axes):
    """One row, or both: a mask may be of more rows than what it masks."""
    shapes = [(3,) if axis is None else (2, 3) if axis == 0 else (3, 2) for axis in axes]
    x, mask = np.arange(np.prod(shapes[0])).reshape(shapes[0]) * 1.0, np.ones(shapes[1], bool)
    mask[..., 1] = False
    slope = jax.grad(lambda x, mask: (masked_tangent(x, mask) ** 2).sum())
    batch = jax.vmap(slope, axes)(x, mask)
    rows = [x if axes[0] is None else np.moveaxis(x, axes[0], 0)[k] for k in range(2)]
    np.testing.assert_array_equal(batch, [2 * row * [1, 0, 1] for row in rows])


def test_a_number_is_broadcast_to_the_mask():
    slope = jax.grad(lambda x: masked_tangent(x, np.array([True, False, True])).sum())(2.0)
    np.testing.assert_array_equal(slope, 2.0)
    assert masked_tangent(np.float64(2), np.ones(3, bool)).shape == (3,)


def test_a_mask_that_differs_between_devices():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    mapped = jax.shard_map(
        lambda x, mask: jax.lax.psum((masked_tangent(x, mask) ** 2).sum(), "d"),
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec("d")),
        out_specs=PartitionSpec(),
    )
    slope = jax.jit(jax.grad(mapped))(2.0, np.array([True, False, True]))
    np.testing.assert_array_equal(slope, 8.0)


def test_it_is_nothing_in_a_compiled_program():
    f = jax.jit(lambda x: jnp.log(masked_tangent(x, x > 0)))
    assert " select(" not in f.lower(X).compile().as_text()
