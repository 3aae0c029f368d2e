"""A pendulum, by a Runge-Kutta method that chooses its steps, and how its swing depends on its length.

    angle'' = -(g / length) sin(angle)

The method is Fehlberg's of order 4 and 5: six slopes a step give two results, whose difference estimates
the error (Fehlberg 1969, NASA TR R-315, table III; the same tableau is in Hairer, Norsett & Wanner 1993,
Solving Ordinary Differential Equations I, section II.5). A step is repeated, shorter, where that error is
above the tolerance, and the next one is longer where it is far below. How many steps there are is only
known at the end, so this is a loop that stops, at the time that was asked for.

The exact angle is 2 arcsin(k cd(sqrt(g / length) t | k^2)) where k is the sine of half the first angle,
cd a quotient of Jacobi's elliptic functions, and the pendulum starts at rest.
"""

import jax
import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from scipy.special import ellipj

from loopax import jaxify, while_loop

MAX_STEPS = 10_000

# What each of the six slopes takes from those before it. The equation does not depend on time, so the
# times at which slopes are taken are not needed.
STAGES = (
    (),
    (1 / 4,),
    (3 / 32, 9 / 32),
    (1932 / 2197, -7200 / 2197, 7296 / 2197),
    (439 / 216, -8, 3680 / 513, -845 / 4104),
    (-8 / 27, 2, -3544 / 2565, 1859 / 4104, -11 / 40),
)
FOURTH = (25 / 216, 0, 1408 / 2565, 2197 / 4104, -1 / 5, 0)
FIFTH = (16 / 135, 0, 6656 / 12825, 28561 / 56430, -9 / 50, 2 / 55)


def fehlberg(slope, y, h):
    """The state after a step of length ``h``, of order 5, and the estimate of its error."""
    slopes = []
    for row in STAGES:
        slopes.append(
            slope(
                y + h * sum(a * k for a, k in zip(row, slopes, strict=True))
            )
        )

    def combined(weights):
        return h * sum(
            w * k for w, k in zip(weights, slopes, strict=True) if w
        )

    fifth = combined(FIFTH)
    return y + fifth, fifth - combined(FOURTH)


def solve(slope, y, end, tolerance, max_steps=MAX_STEPS):
    """The state at the time ``end``, from ``y`` at 0; the time reached, steps taken, and steps kept.

    ``tolerance`` is for the error that a step adds to any component.
    """

    def step(state):
        t, y, h, n_steps, n_kept = state
        h = pt.minimum(h, end - t)
        new, error = fehlberg(slope, y, h)
        size = pt.abs(error).max() / tolerance
        good = size <= 1
        # Where a step ends is a choice, not a result: a derivative of the choice is noise.
        factor = disconnected_grad(
            pt.clip(0.9 * pt.maximum(size, 1e-9) ** -0.2, 0.2, 5.0)
        )
        return (
            pt.where(good, t + h, t),
            pt.where(good, new, y),
            h * factor,
            n_steps + 1,
            n_kept + pt.cast(good, "int64"),
        )

    init = (pt.zeros(()), y, end / 100, 0, 0)
    t, y, _, n_steps, n_kept = while_loop(
        lambda state: state[0] < end, step, init, max_steps=max_steps
    )
    return y, t, n_steps, n_kept


def build(tolerance=1e-9, max_steps=MAX_STEPS):
    """The pendulum, let go at rest, as a JAX function of (angle, length, gravity, time).

    It returns a dict: `angle` and `velocity` at that time, (); `time`, how far it came within
    `max_steps`; `taken` and `kept`, steps.
    """
    angle, length, gravity, time = pt.dscalars(
        "angle", "length", "gravity", "time"
    )

    def slope(y):
        return pt.stack([y[1], -gravity / length * pt.sin(y[0])])

    y, reached, n_steps, n_kept = solve(
        slope, pt.stack([angle, pt.zeros(())]), time, tolerance, max_steps
    )
    outputs = {
        "angle": y[0],
        "velocity": y[1],
        "time": reached,
        "taken": n_steps,
        "kept": n_kept,
    }
    return jaxify([angle, length, gravity, time], outputs)


def exact(angle, length, gravity, time):
    k = np.sin(angle / 2)
    _, cn, dn, _ = ellipj(np.sqrt(gravity / length) * time, k**2)
    return 2 * np.arcsin(k * cn / dn)


def main():
    swing, gravity, time = build(), 9.81, 10.0
    path = swing(2.0, 1.0, gravity, time)
    print(f"a pendulum of 1 m, let go at 2 rad, after {time} s")
    print(
        f"  angle {path['angle']:.8f} rad, exact {exact(2.0, 1.0, gravity, time):.8f}"
    )
    print(
        f"  {path['taken']} steps, {path['taken'] - path['kept']} of them repeated"
    )
    slopes = jax.grad(
        lambda a, n: swing(a, n, gravity, time)["angle"], argnums=(0, 1)
    )(2.0, 1.0)
    d = 1e-6
    by_angle = (
        exact(2 + d, 1.0, gravity, time) - exact(2 - d, 1.0, gravity, time)
    ) / (2 * d)
    by_length = (
        exact(2.0, 1 + d, gravity, time) - exact(2.0, 1 - d, gravity, time)
    ) / (2 * d)
    print(
        f"  d angle / d first angle {slopes[0]:.6f}, exact {by_angle:.6f}"
    )
    print(f"  d angle / d length {slopes[1]:.6f}, exact {by_length:.6f}")
    angles = np.array([0.1, 1.0, 2.0, 3.0])
    batch = jax.vmap(swing, in_axes=(0, None, None, None))(
        angles, 1.0, gravity, time
    )
    print(f"  steps from 0.1, 1, 2, 3 rad: {batch['taken']}")


if __name__ == "__main__":
    main()
