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
    in_axes: object = 0,
    out_axes: object = 0,
    *,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> Callable[..., Any]:
    """Return a function that maps ``f`` over a new axis of its arguments, like ``jax.vmap``.

    Parameters
    ----------
    f
        A function of PyTensor variables, in pytrees; or a function from `loopax.jaxify`. For a JAX
        function the result is ``jax.vmap(f)``; for native code it is another native function, compiled
        separately. A loop in it becomes one loop over batched states: rows that stop after different
        numbers of steps stop on their own. Rows that cannot be batched, because their lengths depend on
        values, or because they are lists or sparse matrices, run in a loop over the rows.
    in_axes, out_axes
        The new axis of each argument, and of each result: a number, None for a value that is shared by
        all rows, or a prefix of the arguments' (results') pytree with such entries. For arguments
        passed by name it is the first axis.
    batch_size
        For a function from `loopax.jaxify`: the number of rows computed at once. Batches run one after
        another, in JAX by a ``lax.scan``, so memory holds one batch and the results. The remaining rows
        form a smaller batch. None: all rows at once.
    progress
        With ``batch_size``: whether a line on stderr shows the number of rows done; or a function
        ``progress(done, total)`` to call, in JAX on a separate thread.

    Returns
    -------
    A function like ``f`` with one more axis. A result that is equal for all rows is repeated.

    Raises
    ------
    LoopTypeError
        An axis does not exist, or no argument has one.
    ValueError
        The batch size is not a positive number, or is passed with a function of variables.

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
        raise ValueError(f"batch_size must be a number of rows from 1 on, got {batch_size!r}")
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
            "batch_size applies to a function that runs. A function of variables computes all rows as "
            "one program: loopax.vmap(loopax.jaxify(f), batch_size=1000) runs it in batches."
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
    """Return a function that computes the value and the gradient of ``f``, like ``jax.value_and_grad``.

    Parameters
    ----------
    f
        A function of PyTensor variables, in pytrees, that returns a float scalar; or a function from
        `loopax.jaxify`. For a JAX function the result is ``jax.value_and_grad(f)``; for native code it
        is another native function, with the same argument names, compiled separately.
    argnums
        The argument to differentiate with respect to, or several. Arguments passed by name are
        constant.
    has_aux
        Whether ``f`` returns ``(value, aux)``; the new function then returns both in place of the
        value.
    lazy
        For a function of variables: whether the gradient stays in the graph as an op, `loopax.ir.Grad`,
        that holds the function. Rewrites then see the function, and the rewritten function is
        differentiated. `jaxify` and PyTensor's modes take it. With False the gradient is taken at once,
        of the function as you wrote it, as by `pytensor.grad`.

    Raises
    ------
    LoopTypeError
        The function does not return a float scalar, or an argument to differentiate is not a float.

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
    """Return a function that computes the gradient of ``f``, like ``jax.grad``; see `value_and_grad`.

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

    def gradient(*args: object, **kwargs: object) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    gradient.__name__ = gradient.__qualname__ = f"grad of {getattr(f, '__name__', 'a function')}"
    gradient.__doc__ = f.__doc__
    return gradient
