"""``RandomScan`` and ``RandomCond``: a loop and a conditional that take random generators.

They say which output is the next state of which generator. PyMC asks every such op: without an answer,
``pm.draw`` repeated the same draws at each call and ignored its seed. A generator without a next state,
which every step would read again, has no entry, and PyMC refuses it.

These are classes of their own because PyMC takes any output of such an op for a random variable, also
where a log-density may have none. In PyTensor's own modes its rewrite ``sidestep_unused_rng_consumer``
skips such an op if only its generators are read, as it skips a single draw: the draws after it are other
ones. `jaxify` does not run that rewrite.
"""

from __future__ import annotations

from collections.abc import Iterable

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.random.type import RandomType

from loopax.ir.ops.cond import Cond
from loopax.ir.ops.scan import Scan


class RandomScan(Scan, RNGConsumerOp):
    """A `Scan` with a generator among its states or constants.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from loopax import scan
    >>> def step(rng, _):
    ...     rng, draw = pt.random.normal(rng=rng, return_next_rng=True)
    ...     return rng, draw
    >>> rng = pytensor.shared(np.random.default_rng(0))
    >>> final, draws = scan(step, rng, length=3)
    >>> draws.owner.op.update(draws.owner)[rng] is final
    True
    """

    def update(self, node: Apply) -> dict[Variable, Variable]:
        """The next state of each generator in the carry."""
        states = self.split_inputs(node.inputs).states
        finals = self.split_outputs(node.outputs).finals
        pairs = zip(states, finals, strict=True)
        return {state: final for state, final in pairs if isinstance(state.type, RandomType)}


class RandomCond(Cond, RNGConsumerOp):
    """A `Cond` with a generator among its operands."""

    def update(self, node: Apply) -> dict[Variable, Variable]:
        """The next state of each generator that both branches return in one place."""
        operands = dict(zip(self.fgraph.inputs, node.inputs[1:], strict=True))
        outs, n = self.fgraph.outputs, self.n_outs
        next_states = {}
        for k, out in enumerate(node.outputs):
            if not isinstance(out.type, RandomType):
                continue
            origin = _origin(outs[k])
            if origin in operands and origin is _origin(outs[n + k]):
                next_states[operands[origin]] = out
        return next_states


def has_generators(variables: Iterable[Variable]) -> bool:
    """Whether one of the variables is a random generator."""
    return any(isinstance(v.type, RandomType) for v in variables)


def _origin(rng: Variable) -> Variable:
    """The generator whose state ``rng`` is after some draws."""
    while rng.owner is not None and isinstance(rng.owner.op, RNGConsumerOp):
        states = {after: before for before, after in rng.owner.op.update(rng.owner).items()}
        if rng not in states:
            break
        rng = states[rng]
    return rng
