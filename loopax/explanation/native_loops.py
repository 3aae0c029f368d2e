"""``NativeLoops``: the forms in which the loops of a JAX function run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NativeLoops:
    """The report of `loopax.explain` on a function that `loopax.native` has made.

    Parameters
    ----------
    name
        The name of the function.
    loops
        A line for each loop of each program that JAX has compiled so far, its derivatives and batches
        too: ``native``, or ``JAX's`` and why, with the primitive that has no native form.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, loopax
    >>> @loopax.native(loops="native")
    ... def total(xs):
    ...     return jax.lax.scan(lambda c, x: (c + x, None), 0.0, xs)[0]
    >>> loopax.explain(total, jnp.ones(3)).are_native
    True
    """

    name: str
    loops: tuple[str, ...]

    @property
    def are_native(self) -> bool:
        """Whether there is a loop, and all are native."""
        return bool(self.loops) and all(": native" in line for line in self.loops)

    def __str__(self) -> str:
        lines = self.loops or (
            "no loop so far: call the function, or give explain the arguments of a call",
        )
        return "\n".join([f"== loops of {self.name} ==", *lines])
