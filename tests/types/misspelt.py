"""What a type checker is to refuse: each line with a mark, and no other. See `test_types.py`."""

from typing import Any

import loopax

x: Any = None
f = loopax.jaxify([x], x)


@loopax.jaxify
def softplus(x: Any, sharpness: float = 1.0) -> Any:
    return x / sharpness


class Line:
    @loopax.jaxify
    def at(self, x: Any) -> Any:
        return x


loopax.jaxify([x], x, bakend="numba")  # refused
loopax.jaxify([x], x, backend="nmba")  # refused
loopax.jaxify([x], x, mode="FAST_RUN")  # refused
loopax.jaxify([x], x, loops="naive")  # refused
loopax.jaxify([x], x, donate=0.5)  # refused
loopax.jaxify([x], x, updates="x")  # refused
loopax.jaxify([x], x, givens=1.0)  # refused
loopax.native(softplus, checks="raise")  # refused
loopax.native(check="nan")  # refused
loopax.jaxify(softplus, static_argname="x")  # refused
loopax.jaxify(backend="nmba")  # refused
loopax.jaxify(backend="numba", chekcs="raise")  # refused
print(loopax.nothing)  # refused
print(loopax.Trace)  # refused
loopax.config.progres = True  # refused
print(f.appyl)  # refused
print(f.source)  # refused
softplus(1.0, sharp=2.0)  # refused
softplus(1.0, 2.0, 3.0)  # refused
softplus()  # refused
Line().at(1.0, 2.0)  # refused
Line().at()  # refused
loopax.scan(lambda c, x: (c, x), 0.0, x, revers=True)  # refused
loopax.scan(lambda c, x: (c, x), 0.0, sequences=x)  # refused
loopax.scan(lambda c, x: (c, x), 0.0, x, checkpoint="sqr")  # refused
loopax.scan(lambda c: (c, None), 0.0, x)  # refused
loopax.map(lambda c: c, x, revers=True)  # refused
loopax.fori_loop(0, 3, lambda i, c: c, 0.0, unrol=2)  # refused
loopax.while_loop(lambda c: c, lambda c: c, 0.0, max_step=2)  # refused
loopax.cond(x, lambda: 1, lambda: 2, nam="x")  # refused
loopax.grad(f, argnum=1)  # refused
loopax.vmap(softplus, in_axis=1)  # refused
loopax.pymc.sample(x, drws=100)  # refused
loopax.pymc.sample(x, sampler="nutpi")  # refused
loopax.pymc.sample(x, backend="nmba")  # refused
loopax.pymc.logp(x, backnd="jax")  # refused
loopax.pymc.smaple(x)  # refused
