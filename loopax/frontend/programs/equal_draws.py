"""A warning if every call of a program makes the same draws."""

from __future__ import annotations

import warnings

from pytensor.tensor.random.type import RandomType

from loopax.frontend.mistakes import level_of_the_user
from loopax.ir.program import Program

_ADVICE = """Update it,

    rng = pytensor.shared(np.random.default_rng(1), name="rng")
    next_rng, draw = pt.random.normal(rng=rng, return_next_rng=True)
    f = jaxify([], draw, updates={rng: next_rng}).stateful()

or make it an argument, a key in JAX: jaxify([rng], draw) with \
rng = pytensor.tensor.random.type.random_generator_type("rng")."""


def warn_of_equal_draws(program: Program, advice: str = _ADVICE) -> None:
    """Warn if a program draws from shared generators that nothing updates, with ``advice``.

    ``pytensor.function`` makes equal draws in this case as well. If the next generator is among the
    outputs, the caller is assumed to update it.
    """
    if any(isinstance(v.type, RandomType) for v in program.graph.outputs[: program.n_returned]):
        return
    generators = [
        s.variable.name
        for k, s in enumerate(program.shared)
        if isinstance(s.variable.type, RandomType) and k not in program.updates
    ]
    if not generators:
        return
    named = sorted(repr(name) for name in generators if name is not None)
    warnings.warn(
        f"{program.name} draws from {' and '.join(named) or 'a shared generator without a name'}, which "
        f"nothing updates: every call makes the same draws. {advice}",
        UserWarning,
        stacklevel=level_of_the_user(),
    )
