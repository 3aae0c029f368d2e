"""IfElse, switch and asserts: one branch runs, branches differ in shape, nothing is dropped."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.raise_op import Assert, CheckAndRaise

from .record import ifelse, program, scan

X4 = np.array([0.5, -1.0, 2.0, 0.25])


@program(X4, 1.0, thread="pytensor 501", grad_wrt=("x",))
def one_of_two():
    x, c = pt.vector("x"), pt.scalar("c")
    return [x, c], ifelse(pt.gt(c, 0), pt.exp(x), x**2)


@program(X4, -1.0, thread="pytensor 501", grad_wrt=("x",))
def several_values():
    x, c = pt.vector("x"), pt.scalar("c")
    a, b = ifelse(pt.gt(c, 0), [pt.exp(x), x.sum()], [x**2, x.prod()])
    return [x, c], [a * b, b]


@program(X4, 1, thread="pytensor 501", static=("c",), grad_wrt=("x",))
def branches_of_unequal_shape():
    x, c = pt.vector("x"), pt.lscalar("c")
    return [x, c], ifelse(pt.eq(c, 1), x[:2], x * 3.0)


@program(X4, thread="aesara 178", grad_wrt=("x",))
def condition_on_a_shape():
    x = pt.vector("x")
    return [x], ifelse(pt.gt(x.shape[0], 3), x[:3].sum(), x.prod())


@program(X4, thread="aesara 178")
def gradient_of_a_branch():
    x = pt.vector("x")
    return [x], pt.grad(ifelse(pt.gt(x.sum(), 0), (x**2).sum(), pt.exp(x).sum()), x)


@program(X4, thread="pytensor 501", grad_wrt=("x",))
def branch_inside_a_loop():
    x = pt.vector("x")
    return [x], scan(
        lambda x_t, s: ifelse(pt.gt(x_t, 0), s * x_t, s + pt.exp(x_t)),
        sequences=x,
        outputs_info=pt.ones(()),
    )


@program(X4, 0.0, thread="pytensor 501", grad_wrt=("x",))
def loop_inside_a_branch():
    x, c = pt.vector("x"), pt.scalar("c")
    total = scan(lambda x_t, s: s * 0.5 + x_t, sequences=x, outputs_info=pt.zeros(()))[-1]
    return [x, c], ifelse(pt.gt(c, 0), total, x[0] ** 2)


@program(X4, 2, thread="pytensor 501", grad_wrt=("x",))
def nested_branches():
    x, k = pt.vector("x"), pt.lscalar("k")
    inner = ifelse(pt.eq(k, 2), x[1] * 2.0, x[2] * 3.0)
    return [x, k], ifelse(pt.eq(k, 1), x[0], inner)


@program([0.0, 4.0, -1.0], thread="jax 1052", expected=lambda z: [np.array([0.0, 0.25, 0.0])])
def gradient_of_a_safe_root():
    """PyTensor's gradient is 0 where the branch is not taken; jax.grad of this says nan."""
    z = pt.vector("z")
    return [z], [pt.grad(pt.switch(z > 0, pt.sqrt(z), 0.0).sum(), z)]


@program(X4, 0.4, thread="nutpie 188", grad_wrt=("x", "lo"))
def clip_and_where():
    x, lo = pt.vector("x"), pt.scalar("lo")
    return [x, lo], [pt.clip(x, lo, 1.5), pt.where(x > lo, x, lo * x), pt.maximum(x, lo)]


@program(X4, 2.0, thread="aesara 629", grad_wrt=("x", "s"))
def assert_that_holds():
    x, s = pt.vector("x"), pt.scalar("s")
    checked = Assert("scale must be positive")(s, pt.gt(s, 0), pt.lt(s, 10.0))
    return [x, s], x / checked


@program(X4, -2.0, thread="aesara 629", issue=7, error="scale must be positive")
def assert_that_fails():
    """Raised where checks are asked for; else said once, as tracing cannot keep it."""
    x, s = pt.vector("x"), pt.scalar("s")
    return [x, s], x / Assert("scale must be positive")(s, pt.gt(s, 0))


@program(X4, thread="aesara 1001", grad_wrt=("x",))
def check_on_a_shape():
    x = pt.vector("x")
    check = CheckAndRaise(ValueError, "too short")
    return [x], check(x, pt.ge(x.shape[0], 2)) * 2.0


@program(X4, thread="aesara 1001", error="too short")
def check_on_a_shape_that_fails():
    x = pt.vector("x")
    return [x], CheckAndRaise(ValueError, "too short")(x, pt.ge(x.shape[0], 8)) * 2.0


@program(X4, thread="aesara 806", grad_wrt=("x",))
def assert_inside_a_loop():
    x = pt.vector("x")

    def step(x_t, s):
        return Assert("no overflow")(s + x_t, pt.lt(pt.abs(s), 100.0))

    return [x], scan(step, sequences=x, outputs_info=pt.zeros(()))


@program(X4, 1.5, thread="pymc 7088", grad_wrt=("x", "sigma"))
def parameter_check_of_a_density():
    """What pymc puts around each logp: an Assert over all conditions."""
    x, sigma = pt.vector("x"), pt.scalar("sigma")
    logp = -0.5 * (x / sigma) ** 2 - pt.log(sigma)
    return [x, sigma], Assert("sigma > 0")(logp, pt.all(sigma > 0)).sum()


@program(X4, thread="nutpie 188")
def gradient_without_nan_at_the_edge():
    x = pt.vector("x")
    z = x - x[0]
    log_z = pt.switch(pt.gt(z, 0), pt.log(pt.switch(pt.gt(z, 0), z, 1.0)), -10.0)
    return [x], pytensor.grad(log_z.sum(), x)
