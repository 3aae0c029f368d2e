"""`vmap`, `grad` and `value_and_grad`, of functions of variables and of what `jaxify` returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopax.frontend import transforms
from loopax.jax_backend import Stages


def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """``f`` over a new axis of its arguments, as ``jax.vmap``.

    Parameters
    ----------
    f
        A function of PyTensor variables, in pytrees; or what `loopax.jaxify` returns, which
        ``jax.vmap`` takes as well. A loop in it becomes one loop over batched states: rows that stop
        after different numbers of steps stop on their own.
    in_axes, out_axes
        Which axis of each argument, and of each result, is the new one: a number, None for what is the
        same for all rows, or a pytree of these that the arguments (results) begin with.

    Returns
    -------
    A function like ``f`` with an axis more. A result that is the same for all rows is repeated.

    Raises
    ------
    LoopTypeError
        An axis that is not there, or none at all.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import scan, vmap
    >>> def total(start, xs):
    ...     return scan(lambda c, x: (c + x, None), start, xs)[0]
    >>> vmap(total, in_axes=(None, 0))(1.0, np.arange(6.0).reshape(2, 3)).eval()
    array([ 4., 13.])
    """
    if isinstance(f, Stages):
        return f.transformed("vmap", in_axes=in_axes, out_axes=out_axes)
    return transforms.vmap(f, in_axes, out_axes)


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns ``f``'s value and its gradient, as ``jax.value_and_grad``.

    Parameters
    ----------
    f
        A function of PyTensor variables, in pytrees, that returns a float scalar; or what
        `loopax.jaxify` returns, which ``jax.value_and_grad`` takes as well.
    argnums
        The argument to differentiate with respect to, or several.
    has_aux
        Whether ``f`` returns ``(value, aux)``; so does then the new function in the place of the value.

    Raises
    ------
    LoopTypeError
        The function returns no float scalar, or such an argument is no float.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import value_and_grad
    >>> value, slope = value_and_grad(lambda x: (x**2).sum())(np.array([1.0, 2.0]))
    >>> value.eval(), slope.eval()
    (array(5.), array([2., 4.]))
    """
    if isinstance(f, Stages):
        return f.transformed("value_and_grad", argnums=argnums, has_aux=has_aux)
    return transforms.value_and_grad(f, argnums, has_aux)


def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the gradient of ``f``, as ``jax.grad``; see `value_and_grad`.

    With ``has_aux`` it returns ``(gradient, aux)``.

    Examples
    --------
    >>> from loopax import grad
    >>> grad(grad(lambda x: x**3))(2.0).eval()
    array(12.)
    """
    if isinstance(f, Stages):
        return f.transformed("grad", argnums=argnums, has_aux=has_aux)
    both = transforms.value_and_grad(f, argnums, has_aux)

    def gradient(*args: Any) -> Any:
        value, found = both(*args)
        return (found, value[1]) if has_aux else found

    gradient.__name__ = gradient.__qualname__ = f"grad of {getattr(f, '__name__', 'a function')}"
    gradient.__doc__ = f.__doc__
    return gradient
