"""`vmap`, `grad` and `value_and_grad`, of functions of variables and of what `jaxify` returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopax.by_backend import as_function, by_backend, of_functions, with_lazy_branches
from loopax.calling import BackendFunction
from loopax.calling.progress import Progress, progress_of
from loopax.chunks import InChunks
from loopax.frontend.programs import transforms


@of_functions
def vmap(
    f: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> Callable[..., Any]:
    """``f`` over a new axis of its arguments, as ``jax.vmap``.

    Parameters
    ----------
    f
        A function of PyTensor variables, in pytrees; or what `loopax.jaxify` returns: of JAX it is what
        ``jax.vmap`` makes of it, of native code one of the same kind, compiled anew. A loop in it becomes
        one loop over batched states: rows that stop after different numbers of steps stop on their own.
        What has no form for a batch, rows of lengths that follow from values, lists or sparse matrices, is
        a loop over the rows.
    in_axes, out_axes
        Which axis of each argument, and of each result, is the new one: a number, None for what is the
        same for all rows, or a pytree of these that the arguments (results) begin with. Of what is given
        by name the first axis is.
    batch_size
        Of what `loopax.jaxify` returns: how many rows are computed at once. One batch after another is,
        in JAX by a ``lax.scan`` over them, so that memory is that of one, and of the results. The rows
        beyond a multiple of it are a smaller batch. None: all at once.
    progress
        With ``batch_size``, whether a line on stderr says how many rows are done; or a function
        ``progress(done, total)`` that is told, in JAX on a thread of its own.

    Returns
    -------
    A function like ``f`` with an axis more. A result that is the same for all rows is repeated.

    Raises
    ------
    LoopTypeError
        An axis that is not there, or none at all.
    ValueError
        A batch size that is no positive number, or of a function of variables.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import scan, vmap
    >>> def total(start, xs):
    ...     return scan(lambda c, x: (c + x, None), start, xs)[0]
    >>> vmap(total, in_axes=(None, 0))(1.0, np.arange(6.0).reshape(2, 3)).eval()
    array([ 4., 13.])
    """
    f = as_function(f, "vmap")
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise ValueError(f"batch_size is how many rows are computed at once, got {batch_size!r}")
    if isinstance(f, BackendFunction):
        axes = {"in_axes": in_axes, "out_axes": out_axes}
        if batch_size is None:
            return by_backend(f, vmap, **axes)
        chunks = {"batch_size": batch_size, "progress": progress_of(progress)}
        if "vmap" in f.backend.transformations:
            return by_backend(f, vmap, **axes, **chunks)
        return InChunks(by_backend(f, vmap, **axes), **axes, **chunks)
    if batch_size is not None:
        raise ValueError(
            "batch_size is for a function that runs. Of a function of variables all rows are one program: "
            "loopax.vmap(loopax.jaxify(f), batch_size=1000) runs it in batches."
        )
    return transforms.vmap(with_lazy_branches(f), in_axes, out_axes)


@of_functions
def value_and_grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    lazy: bool = True,
) -> Callable[..., Any]:
    """A function that returns ``f``'s value and its gradient, as ``jax.value_and_grad``.

    Parameters
    ----------
    f
        A function of PyTensor variables, in pytrees, that returns a float scalar; or what
        `loopax.jaxify` returns: of JAX it is what ``jax.value_and_grad`` makes of it, of native code one
        of the same kind, with the same names of arguments, compiled anew.
    argnums
        The argument to differentiate with respect to, or several. What is given by name is constant.
    has_aux
        Whether ``f`` returns ``(value, aux)``; so does then the new function in the place of the value.
    lazy
        Of a function of variables, whether the gradient is left in the graph as an op, `loopax.ir.Grad`,
        that holds the function: rewrites see that, and the gradient is taken of what they leave. `jaxify`
        and PyTensor's modes take it. With False it is taken at once, as `pytensor.grad` takes it, of the
        function as it was written.

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
    f = as_function(f, "value_and_grad")
    if isinstance(f, BackendFunction):
        return by_backend(f, value_and_grad, argnums=argnums, has_aux=has_aux)
    return transforms.value_and_grad(with_lazy_branches(f), argnums, has_aux, lazy)


@of_functions
def grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    lazy: bool = True,
) -> Callable[..., Any]:
    """A function that returns the gradient of ``f``, as ``jax.grad``; see `value_and_grad`.

    With ``has_aux`` it returns ``(gradient, aux)``.

    Examples
    --------
    >>> from loopax import grad
    >>> grad(grad(lambda x: x**3))(2.0).eval()
    array(12.)
    """
    f = as_function(f, "grad")
    if isinstance(f, BackendFunction):
        return by_backend(f, grad, argnums=argnums, has_aux=has_aux)
    both = transforms.value_and_grad(with_lazy_branches(f), argnums, has_aux, lazy)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    gradient.__name__ = gradient.__qualname__ = f"grad of {getattr(f, '__name__', 'a function')}"
    gradient.__doc__ = f.__doc__
    return gradient
