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
    """A function that returns the Jacobian of ``f``, as ``jax.jacobian``.

    Parameters
    ----------
    f
        A function of PyTensor variables, in pytrees, that returns float tensors, in a pytree; or what
        `loopax.jaxify` returns: of JAX it is what ``jax.jacobian`` makes of it, of native code one of the
        same kind, compiled anew.
    argnums
        The argument to differentiate with respect to, or several. What is given by name is constant.
    sparse
        Whether to find on the graph, through its loops too, which element of the result may depend on
        which of the argument, and to compute no more products with the Jacobian than columns (or rows,
        where that is fewer) have colours: two have one colour where no row has an entry in both
        (Gebremedhin, Manne and Pothen, What Color Is Your Jacobian?, SIAM Review 47, 2005). Where all
        depends on all, that is one for each column or row, as without it.

    lazy
        As for `loopax.grad`; a sparse one is always taken at once.

    Returns
    -------
    A function like ``f``, whose result has in the place of each tensor the Jacobian with respect to the
    argument, in its structure: an array of the shapes of both, one behind the other. With ``sparse``, a
    matrix in CSR form, with a row for each element of the one and a column for each of the other, both in
    C order, and an entry wherever there may be one: a sparse variable of PyTensor, or of a `jaxify`
    function ``scipy.sparse`` or JAX's ``BCOO``.

    Raises
    ------
    LoopTypeError
        The function returns no floats, or such an argument is no float; with ``sparse``, a length of it
        is not known.

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
    """A function that returns the Hessian of ``f``, a float scalar, as ``jax.hessian``.

    Parameters
    ----------
    f, argnums
        As for `loopax.grad`.
    sparse
        As for `jacobian`; the Hessian is symmetric, so that a star colouring does: two neighbours have two
        colours, and a path of four has three. It needs as many Hessian-vector products as there are
        colours, three for a random walk of any length with a likelihood at each step.

    lazy
        As for `jacobian`.

    Returns
    -------
    A function of the same arguments. With respect to one tensor it returns an array of its shape twice, one
    behind the other, or with ``sparse`` a matrix in CSR form with a row and a column for each element; with
    respect to several, a block for each two of them, in their structure, nested.

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


def _matrix(f: Any, own: Any, of_variables: Any, argnums: Any, sparse: bool, lazy: Any) -> Any:
    def transform(g: Callable[..., Any]) -> Callable[..., Any]:
        return of_variables(with_lazy_branches(g), argnums, sparse, lazy)

    if not isinstance(f, BackendFunction):
        return transform(f)
    if sparse:  # what it is made of hangs on lengths, which JAX knows while it traces
        key = own.__name__, argnums if isinstance(argnums, int) else tuple(argnums)
        return at_lengths(f, transform, key)
    return by_backend(f, own, argnums=argnums)
