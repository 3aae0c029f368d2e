"""The function `from_jax`: a JAX function in a PyTensor program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor import as_tensor_variable

from loopax.frontend.loops.fixed import Fixed
from loopax.frontend.loops.trees import Tree, flatten
from loopax.frontend.mistakes import refuse_no_function
from loopax.jax_backend import JaxOp


def from_jax(f: Callable[..., Any]) -> Callable[..., Any]:
    """Convert ``f``, a JAX function, to a function of PyTensor variables.

    `loopax.jaxify` inlines it, and so does PyTensor's mode JAX; in all other modes, and in native code,
    JAX runs it, compiled, as one op. It has derivatives of any order, by PyTensor and by JAX, and
    batches by ``jax.vmap``.

    Parameters
    ----------
    f
        A pure function of arrays in pytrees, to arrays in pytrees, that ``jax.jit`` takes. Examples are
        a solver of differential equations, a neural network and an optimizer with an implicit
        derivative.

    Returns
    -------
    A function of the same arguments. Variables and arrays in them are arguments of ``f``; anything
    else, such as numbers, strings or functions, is passed to ``f`` as it is. It returns variables in
    the structure of the result of ``f``. Their types follow by abstract evaluation: lengths are static
    if all lengths are known.

    Raises
    ------
    LoopTypeError
        Raised by the new function: a variable is not a tensor, JAX would make it narrower, or ``f``
        accepts none of the lengths tried for an unknown length.

    Examples
    --------
    >>> import jax, numpy as np, pytensor, pytensor.tensor as pt
    >>> from loopax import from_jax, jaxify
    >>> soft = from_jax(lambda x, sharpness: jax.nn.logsumexp(sharpness * x) / sharpness)
    >>> x = pt.dvector("x")
    >>> y = soft(x, sharpness=10.0)
    >>> slope = pytensor.grad(y, x)
    >>> f = pytensor.function([x], [y, slope], mode="FAST_COMPILE")
    >>> g = jaxify([x], [y, slope])
    >>> all(np.allclose(a, b) for a, b in zip(f([1.0, 2.0]), g([1.0, 2.0])))
    True
    """

    refuse_no_function(f, "loopax.from_jax(f)", "f", "It returns f as a function of variables.")

    @functools.wraps(f)
    def of_variables(*args: object, **kwargs: object) -> Any:
        leaves, tree = flatten((args, kwargs))
        places = tuple(k for k, x in enumerate(leaves) if _is_array(x))
        fixed = tuple(None if k in places else Fixed(x) for k, x in enumerate(leaves))
        function = _OfArrays(f, tree, fixed)
        op = JaxOp(function, getattr(f, "__name__", type(f).__name__))
        outputs = op(*(_as_variable(leaves[k]) for k in places), return_list=True)
        return function.returned[-1].build(outputs)

    return of_variables


def _is_array(x: object) -> bool:
    return isinstance(x, Variable) or (hasattr(x, "dtype") and hasattr(x, "shape"))


def _as_variable(x: Any) -> Variable:
    is_tensor = isinstance(x, Variable) and not isinstance(x.type, ScalarType)
    return x if is_tensor else as_tensor_variable(x)  # the op refuses anything else


@dataclass(frozen=True)
class _OfArrays:
    """Calls ``f`` with its array arguments only, and returns a tuple of arrays."""

    f: Callable[..., Any]
    tree: Tree
    fixed: tuple[Fixed | None, ...]
    returned: list[Tree] = field(default_factory=list, compare=False)

    def __call__(self, *arrays: object) -> Sequence[Any]:
        remaining = iter(arrays)
        leaves = [next(remaining) if one is None else one.value for one in self.fixed]
        args, kwargs = self.tree.build(leaves)
        outputs, structure = flatten(self.f(*args, **kwargs))
        self.returned[:] = [structure]
        return tuple(outputs)
