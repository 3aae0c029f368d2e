"""Loops run in parallel over their steps, associative scans, and the filters built on them."""

from loopax.base.extensions import Extension

_HERE = "loopax.extensions.parallel"

EXTENSION = Extension(
    "parallel",
    {
        "loop_in_parallel": f"{_HERE}.loops.loop:loop_in_parallel",
        "remark_unknown_steps": f"{_HERE}.loops.remarks:remark_unknown_steps",
        "kalman_filter": f"{_HERE}.filters.kalman:kalman_filter",
        "KalmanFilter": f"{_HERE}.filters.kalman:KalmanFilter",
        "kalman_smoother": f"{_HERE}.filters.kalman_smoother:kalman_smoother",
        "KalmanSmoother": f"{_HERE}.filters.kalman_smoother:KalmanSmoother",
        "hmm_forward": f"{_HERE}.filters.hidden_markov:hmm_forward",
        "HmmForward": f"{_HERE}.filters.hidden_markov:HmmForward",
        "hmm_smoother": f"{_HERE}.filters.hidden_markov:hmm_smoother",
        "HmmSmoother": f"{_HERE}.filters.hidden_markov:HmmSmoother",
    },
    rules={"jax": (f"{_HERE}.loops.associative",)},
)
