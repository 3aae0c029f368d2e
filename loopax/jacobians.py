"""`jacobian` and `hessian`, dense and sparse, of functions of variables and of what `jaxify` returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopax.by_backend import as_function, at_lengths, by_backend, of_functions, with_lazy_branches
from loopax.calling import BackendFunction
from loopax.frontend.programs import derivatives


@of_functions
def jacobian(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    sparse: bool = False,
    lazy: bool = True,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of ``f``, like ``jax.jacobian``.

    Parameters
    ----------
    f
        A function of PyTensor variables, in pytrees, that returns float tensors, in a pytree; or a
        function from `loopax.jaxify`. For a JAX function the result is ``jax.jacobian(f)``; for native
        code it is another native function, compiled separately.
    argnums
        The argument to differentiate with respect to, or several. Arguments passed by name are
        constant.
    sparse
        Whether to find on the graph, through its loops too, which element of the result may depend on
        which element of the argument, and to color the columns (or the rows, if that takes fewer
        colors). Two columns may share a color if no row has an entry in both (Gebremedhin, Manne and
        Pothen, What Color Is Your Jacobian?, SIAM Review 47, 2005). Each color takes one product with
        the Jacobian. If every element depends on every other, each column or row takes one product, as
        without this option.

    lazy
        As for `loopax.grad`; a sparse Jacobian is always taken at once.

    Returns
    -------
    A function like ``f``, whose result has in place of each tensor its Jacobian with respect to the
    argument, in the argument's structure: an array whose shape is the tensor's shape followed by the
    argument's. With ``sparse`` it is a matrix in CSR form, with a row for each element of the tensor
    and a column for each element of the argument, both in C order, and an entry wherever one is
    possible. It is a sparse PyTensor variable; for a `jaxify` function it is a ``scipy.sparse`` matrix
    or JAX's ``BCOO``.

    Raises
    ------
    LoopTypeError
        The function does not return floats, or an argument to differentiate is not a float; with
        ``sparse``, one of its lengths is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import jacobian
    >>> jacobian(lambda x: x[1:] * x[:-1])(np.array([1.0, 2.0, 3.0])).eval()
    array([[2., 1., 0.],
           [0., 3., 2.]])
    >>> jacobian(lambda x: x[1:] * x[:-1], sparse=True)(np.array([1.0, 2.0, 3.0])).eval().nnz
    4
    """
    f = as_function(f, "jacobian")
    return _matrix(f, jacobian, derivatives.jacobian, argnums, sparse, lazy)


@of_functions
def hessian(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    sparse: bool = False,
    lazy: bool = True,
) -> Callable[..., Any]:
    """Return a function that computes the Hessian of ``f``, which returns a float scalar, like
    ``jax.hessian``.

    Parameters
    ----------
    f, argnums
        As for `loopax.grad`.
    sparse
        As for `jacobian`. The Hessian is symmetric, so a star coloring is enough: two neighbors have
        two colors, and a path of four has three. It takes one Hessian-vector product for each color:
        three for a random walk of any length with a likelihood at each step.

    lazy
        As for `jacobian`.

    Returns
    -------
    A function of the same arguments. For one tensor it returns an array whose shape is the tensor's
    shape twice, or with ``sparse`` a matrix in CSR form with a row and a column for each element. For
    several tensors it returns a block for each pair, nested in their structure.

    Raises
    ------
    LoopTypeError
        As for `jacobian`.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import hessian
    >>> hessian(lambda x: (x[1:] * x[:-1]).sum())(np.ones(3)).eval()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    >>> hessian(lambda x: (x**3).sum(), sparse=True)(np.ones(3)).eval().nnz
    3
    """
    f = as_function(f, "hessian")
    return _matrix(f, hessian, derivatives.hessian, argnums, sparse, lazy)


def _matrix(
    f: Callable[..., Any],
    own: Callable[..., Any],
    of_variables: Callable[..., Any],
    argnums: int | Sequence[int],
    sparse: bool,
    lazy: bool,
) -> Any:
    def transform(g: Callable[..., Any]) -> Callable[..., Any]:
        return of_variables(with_lazy_branches(g), argnums, sparse, lazy)

    if not isinstance(f, BackendFunction):
        return transform(f)
    if sparse:  # its graph depends on lengths, which JAX knows while it traces
        key = own.__name__, argnums if isinstance(argnums, int) else tuple(argnums)
        return at_lengths(f, transform, key)
    return by_backend(f, own, argnums=argnums)
