"""Arguments of forward algorithms in logarithms, and the graphs that passes on their loops receive."""

import numpy as np
import pytensor.tensor as pt

from loopax.lowering import NATIVE_PASSES, run_passes
from tests.support.compare import imported


def variables(n, dtype="float64"):
    """The matrix of transitions, and the rows of likelihoods, of ``n`` states."""
    return [pt.tensor("c", dtype=dtype, shape=(n, n)), pt.tensor("r", dtype=dtype, shape=(None, n))]


def numbers(n, steps, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n)) * scale, rng.normal(size=(steps, n))


def changed(values, argument, place, value):
    """``values`` with ``value`` at ``place`` of the matrix, argument 0, or of the rows, argument 1."""
    values[argument][place] = value
    return values


def before(run, inputs, *outputs, without=()):
    """The graph as the native pass ``run`` receives it, but for the passes ``without``."""
    graph = imported(inputs, outputs).graph
    passes = NATIVE_PASSES[: NATIVE_PASSES.index(run)]
    run_passes(graph, [p for p in passes if p not in without])
    return graph
