"""Newton's method inside a scan: the path of a planet, from Kepler's equation at each time.

    E - e sin E = M,    M = 2 pi t / period,    x = a (cos E - e),    y = a sqrt(1 - e^2) sin E

E is the eccentric anomaly, M the mean anomaly, e the eccentricity, a half the long axis; the sun is at the
origin. The equation has no solution in closed form (Murray & Dermott 1999, Solar System Dynamics, ch. 2.4).
The scan goes along the times, and each of its steps runs a loop that stops where Newton's method has
settled, begun at the solution for the time before.

JAX differentiates the steps that were taken. Newton's method forgets where it began: the error of a
derivative is about that of the value one step before, the error of a second derivative about that of the
value two steps before. So the loop takes two steps more than the value needs.
"""

import jax
import numpy as np
import pytensor.tensor as pt

from loopax import jaxify, scan, while_loop

SETTLED = 1e-8  # of a step of Newton's method, in radians: the next one would be below 1e-15
MAX_STEPS = 50


def build():
    """The path as a JAX function of (times, eccentricity, period, axis).

    It returns a dict: `anomaly`, E at each time, (times,); `position`, x and y, (times, 2);
    `steps`, of Newton's method, (times,).
    """
    times = pt.dvector("times")
    e, period, axis = pt.dscalars("eccentricity", "period", "axis")

    def solve(start, mean_anomaly):
        def newton(state):
            anomaly, small, steps = state
            change = (anomaly - e * pt.sin(anomaly) - mean_anomaly) / (
                1 - e * pt.cos(anomaly)
            )
            small = small + pt.cast(pt.abs(change) < SETTLED, "int64")
            return anomaly - change, small, steps + 1

        state = while_loop(
            lambda s: s[1] < 3, newton, (start, 0, 0), max_steps=MAX_STEPS
        )
        return state[0], state[2]

    def at(before, mean_anomaly):
        # From M itself it is safe at e up to 1, from the time before it is a step or two less.
        anomaly, steps = solve(
            pt.maximum(before, mean_anomaly), mean_anomaly
        )
        return anomaly, (anomaly, steps)

    _, (anomaly, steps) = scan(
        at, pt.constant(0.0), 2 * np.pi * times / period
    )
    x = axis * (pt.cos(anomaly) - e)
    y = axis * pt.sqrt(1 - e**2) * pt.sin(anomaly)
    outputs = {
        "anomaly": anomaly,
        "position": pt.stack([x, y], axis=1),
        "steps": steps,
    }
    return jaxify([times, e, period, axis], outputs)


def main():
    orbit = build()
    times, e, period, axis = np.linspace(0.0, 1.0, 9), 0.6, 1.0, 1.0
    path = orbit(times, e, period, axis)
    slope = jax.jacfwd(lambda e: orbit(times, e, period, axis)["anomaly"])(
        e
    )
    anomaly = np.asarray(path["anomaly"])
    exact = np.sin(anomaly) / (1 - e * np.cos(anomaly))
    print(f"an orbit of eccentricity {e}")
    print("  time  steps       x       y  dE/de    exact")
    for k, t in enumerate(times):
        x, y = path["position"][k]
        print(
            f"  {t:.3f} {path['steps'][k]:5d} {x:8.4f}{y:8.4f}  {slope[k]:.6f} {exact[k]:.6f}".replace(
                "-0.000000", " 0.000000"
            )
        )
    batch = jax.vmap(orbit, in_axes=(None, 0, None, None))(
        times, np.array([0.0, 0.3, 0.9]), period, axis
    )
    print(
        f"  most steps where e is 0, 0.3, 0.9: {batch['steps'].max(axis=1)}"
    )


if __name__ == "__main__":
    main()
