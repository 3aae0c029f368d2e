"""The loops of the benchmarks and of the corpus, and filters: each as inputs and a cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

import loopax
from benchmarks import native_programs, programs
from loopax.base.extensions import installed_extensions
from loopax.ir.derivatives.inner_gradients import is_float
from tests.programs import reference
from tests.programs.catalogue import due

Loop = Callable[[], tuple[list[Any], Any]]
THEMES_OF_LOOPS = {
    "composition",
    "early_stop",
    "masks",
    "models",
    "scan_bodies",
    "scan_gradients",
    "scans",
    "twins",
    "zero_steps",
}


def kalman_filter(d: int) -> Loop:
    def build() -> tuple[list[Any], Any]:
        p, y = pt.dscalar("p"), pt.dmatrix("y")
        one = np.eye(d)
        filtered = loopax.kalman_filter(
            pt.specify_shape(y, (None, d)), p * one, one, one, one, np.zeros(d), one
        )
        return [p, y], filtered.log_likelihood

    return build


def step_of(function: Callable[[Any, Any], Any]) -> Loop:
    """A reduction of a vector by ``function``."""

    def build() -> tuple[list[Any], Any]:
        x = pt.dvector("x")
        return [x], loopax.reduce(function, 0.1, x)

    return build


def reported(program: Any) -> Loop:
    """The sum of all that a program of the corpus returns; shared variables become inputs."""

    def build() -> tuple[list[Any], Any]:
        inputs, outputs, _ = reference.parts(program)
        floats = [v for v in reference.leaves(outputs) if is_float(v)]
        cost = sum(pt.sum(v.real) for v in floats).astype("float64")
        actual = graph_inputs([cost])
        shared = {v: v.type(v.name) for v in actual if isinstance(v, SharedVariable)}
        return [*inputs, *shared.values()], clone_replace(cost, shared)

    return build


# Where this installation has them.
FILTERS: dict[str, Loop] = {
    "kalman filter of one": kalman_filter(1),
    "kalman filter of two": kalman_filter(2),
}
LOOPS: dict[str, Loop] = {
    **(FILTERS if "parallel" in installed_extensions() else {}),
    "garch": programs.garch_graph,
    "ar2": programs.ar2_graph,
    "kalman": programs.kalman_graph,
    **{
        f"{f.__name__}, {'' if static else 'not '}static": lambda f=f, static=static: f(static)
        for f in (native_programs.hmm, native_programs.hmm_log, native_programs.rnn)
        for static in (True, False)
    },
    "runge_kutta": native_programs.runge_kutta,
    "nested": native_programs.nested,
    "logaddexp": step_of(lambda c, e: pt.logaddexp(c, e) * 0.9),
    "logsumexp": step_of(lambda c, e: pt.logsumexp(pt.stack([c, e])) * 0.9),
    "softmax": step_of(lambda c, e: pt.special.softmax(pt.stack([c, e]))[0] + e),
    "prod": step_of(lambda c, e: pt.prod(pt.stack([c, e])) * 0.5),
    "norm": step_of(lambda c, e: pt.linalg.norm(pt.stack([c, e])) * 0.5),
    **{
        str(p): reported(p)
        for p in due()
        if p.theme in THEMES_OF_LOOPS and p.grad_wrt and len(p.build()) == 2  # no shared variables
    },
}
