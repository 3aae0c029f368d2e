"""`jvp`, `vjp` and `hvp`: products with Jacobians and Hessians that are never built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loopax.base.errors import LoopTypeError
from loopax.base.lock import TRACING
from loopax.builders import builder_of
from loopax.by_backend import as_function, made_once, program_of, with_lazy_branches
from loopax.calling import BackendFunction, TracedFunction
from loopax.frontend.loops.fixed import Fixed
from loopax.frontend.loops.trees import flatten
from loopax.frontend.programs import derivatives
from loopax.frontend.programs.program_transforms import transformed
from loopax.frontend.programs.tracing import signature
from loopax.ir.sequences import partial_at

if TYPE_CHECKING:
    from pytensor.graph.basic import Variable
    from pytensor.graph.type import Type


def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, lazy: bool = True
) -> tuple[Any, Any]:
    """Compute the value of ``f`` and its derivative along ``tangents`` by forward mode, like
    ``jax.jvp``.

    Parameters
    ----------
    f
        A function of PyTensor variables, in pytrees; or a function from `loopax.jaxify`. A JAX function
        goes to ``jax.jvp``; for native code it is a native function, compiled at the first call.
    primals
        The arguments, as a tuple.
    tangents
        For each argument a direction with its structure, shapes and dtypes, or None if it is constant.
    lazy
        As for `loopax.grad`.

    Returns
    -------
    The value, and the derivative in its structure, shapes and dtypes, with zeros for integers.

    Raises
    ------
    LoopTypeError
        An argument with a tangent is not a float, or has another structure or rank than its tangent.

    Examples
    --------
    >>> from loopax import jvp
    >>> value, slope = jvp(lambda a, b: a * b**2, (2.0, 3.0), (1.0, None))
    >>> value.eval(), slope.eval()
    (array(18.), array(9.))
    """
    value, slope = _along(f, derivatives.jvp, primals, tangents, lazy)
    return value, slope


def hvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, lazy: bool = True
) -> Any:
    """Compute the Hessian of ``f`` times ``tangents`` in one forward and one reverse pass.

    Parameters
    ----------
    f
        As for `loopax.grad`.
    primals, tangents, lazy
        As for `jvp`. The Hessian is with respect to the arguments that have a tangent.

    Returns
    -------
    The product, in the structure of the argument, if ``f`` has only one; otherwise a tuple with an entry
    for each argument that has a tangent.

    Raises
    ------
    LoopTypeError
        As for `grad` and `jvp`.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import hvp
    >>> hvp(lambda x: (x**3).sum(), (np.array([1.0, 2.0]),), (np.array([1.0, 0.5]),)).eval()
    array([6., 6.])
    """
    return _along(f, derivatives.hvp, primals, tangents, lazy)


def vjp(
    f: Callable[..., Any], *primals: object, lazy: bool = True
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Compute the value of ``f`` and its pullback by reverse mode, like ``jax.vjp``.

    Parameters
    ----------
    f
        As for `jvp`.
    primals
        The arguments.
    lazy
        As for `loopax.grad`.

    Returns
    -------
    The value, and a function that takes a cotangent with the value's structure, shapes and dtypes, and
    returns a tuple with the cotangent of each argument: the transposed Jacobian times the given
    cotangent. It is None for an argument with a leaf that is not a float.

    Raises
    ------
    LoopTypeError
        The pullback gets a cotangent of another structure or rank.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import vjp
    >>> value, pullback = vjp(lambda x: x**2, np.array([1.0, 2.0]))
    >>> pullback(np.array([1.0, 10.0]))[0].eval()
    array([ 2., 40.])
    """
    f = as_function(f, "vjp")
    if not isinstance(f, BackendFunction):
        return derivatives.vjp(with_lazy_branches(f), primals, lazy)
    primals = _marked(f, primals)
    own = f.backend.transformations.get("vjp")
    if own:
        return _vjp_by(own, f, primals)

    constant = {k for k, x in enumerate(primals) if not _is_float(x)}

    def of_cotangent(g: Callable[..., Any], values: Sequence[Any], cotangent: object) -> Any:
        cotangents = derivatives.vjp(g, values, lazy=True)[1](cotangent)
        return tuple(x for x in cotangents if x is not None)

    leaves, tree = flatten(primals)
    # The pullback is at these values, even if an array or a shared variable changes before it is called.
    primals = tree.build([x.copy() if isinstance(x, np.ndarray) else x for x in leaves])
    context = f.init_context(*primals) if isinstance(f, TracedFunction) else f.init_context()

    def pulled_back(cotangent: object) -> tuple[Any, ...]:
        function, leaves = _product(f, "vjp", of_cotangent, (primals, cotangent))
        products = iter(function.apply(context, *leaves)[1])
        return tuple(None if k in constant else next(products) for k in range(len(primals)))

    return f(*primals), pulled_back


def _vjp_by(own: Any, f: Any, primals: Sequence[Any]) -> tuple[Any, Callable[[Any], Any]]:
    """``vjp`` by a backend's own transformation, which takes no static arguments."""
    moving = [k for k, x in enumerate(primals) if not isinstance(x, Fixed)]
    value, pull = own(partial_at(f, primals, moving), *(primals[k] for k in moving))
    if len(moving) == len(primals):
        return value, pull

    def pulled_back(cotangent: object) -> tuple[Any, ...]:
        cotangents = iter(pull(cotangent))
        return tuple(next(cotangents) if k in moving else None for k in range(len(primals)))

    return value, pulled_back


def _is_float(x: object) -> bool:
    leaves = flatten(x)[0]
    return not isinstance(x, Fixed) and all(np.result_type(leaf).kind in "fc" for leaf in leaves)


def _marked(f: BackendFunction, primals: Sequence[Any]) -> tuple[Any, ...]:
    """Mark static arguments in a call of ``f``, so that they have no leaves."""
    if not isinstance(f, TracedFunction):
        return tuple(primals)
    marked: tuple[Any, ...] = f.marked(tuple(primals), {})[0]
    return marked


def _along(
    f: Callable[..., Any],
    product: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    lazy: bool,
) -> Any:
    """Apply a product of ``f``, on variables or by its backend, along tangents."""
    f = as_function(f, product.__name__)
    if not isinstance(f, BackendFunction):
        return product(with_lazy_branches(f), primals, tangents, lazy)
    if own := f.backend.transformations.get(product.__name__):
        return own(f, primals, tangents)
    derivatives.refuse_no_tuples(primals, tangents, product.__name__)

    def of_tangents(
        g: Callable[..., Any], primals: Sequence[Variable], tangents: Sequence[Variable | None]
    ) -> Any:
        return product(g, primals, tangents, True)

    function, leaves = _product(
        f, product.__name__, of_tangents, (_marked(f, primals), tuple(tangents))
    )
    return function(*leaves)


def _product(
    f: Any, name: str, product: Callable[..., Any], arguments: tuple[Any, Any]
) -> tuple[Any, list[Any]]:
    """A function for ``product(g, *arguments)``, where ``f`` computes ``g``, and its arguments.

    The function is compiled once for each structure of the arguments.
    """
    leaves, tree = flatten(arguments)

    def make() -> Any:
        if isinstance(f, TracedFunction):
            g = with_lazy_branches(f.__wrapped__)
            of_leaves = lambda *flat: product(g, *tree.build(flat))  # noqa: E731
            return type(f)(of_leaves, builder_of(f), f.__name__, f.instance)
        program = program_of(f)

        def of_variables(g: Callable[..., Any]) -> Callable[..., Any]:
            lazy = with_lazy_branches(g)

            def new(*flat: object) -> Any:
                return product(lazy, *tree.build(flat))

            new.__name__ = f"{name} of {g.__name__}"
            return new

        kinds = [i.variable.type for i in program.inputs]
        names = [i.name for i in program.inputs]
        inputs = _types(kinds, names, arguments, name)
        with TRACING:
            return builder_of(f)(transformed(program, of_variables, inputs=inputs))

    return made_once(f, (name, tree), make), leaves


def _types(
    kinds: Sequence[Type], names: Sequence[str | None], arguments: tuple[Any, Any], name: str
) -> list[tuple[Any, str | None]]:
    """The types and names of a product's inputs: the arguments, and their tangents, or a cotangent."""
    primals, directions = arguments
    if len(primals) != len(kinds):
        raise LoopTypeError(
            f"{name} has {len(primals)} primals, but the function takes {len(kinds)}."
        )
    types = list(zip(kinds, names, strict=True))
    if name == "vjp":
        at, _ = signature((directions,), {})
        return types + [(t, f"cotangent{k}") for k, t in enumerate(at.leaves)]
    moving = [k for k, t in enumerate(directions) if t is not None]
    return types + [(kinds[k], f"tangent of {names[k] or k}") for k in moving]
