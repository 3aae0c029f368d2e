"""`jacobian`, `hessian`, `hvp`, `jvp` and `vjp` of functions of PyTensor variables, as graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from loopax.base.errors import LoopTypeError
from loopax.base.extensions import required
from loopax.frontend.loops.leaves import as_variable, variables_of
from loopax.frontend.loops.trees import flatten
from loopax.frontend.mistakes import name_of
from loopax.frontend.programs.symbols import Symbols
from loopax.ir.derivatives import of_graphs
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.derivatives.lazy import Grad, Jacobian, Pullback, Pushforward
from loopax.ir.replace import replaced


def jacobian(
    f: Callable[..., Any], argnums: int | Sequence[int], is_sparse: bool, lazy: bool
) -> Callable[..., Any]:
    """See `loopax.jacobian`."""

    @wraps(f)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        at = Symbols.of(args, kwargs, argnums, "jacobian")
        outs, tree = at.outputs(f, "jacobian")
        if not is_sparse and lazy:
            return _lazy_blocks(at, outs, tree.build, name_of(f))
        blocks = _sparse_blocks(at, outs) if is_sparse else of_graphs.jacobian(at.wrt, outs)
        return _nested(at, blocks, tree.build)

    return differentiated


def hessian(
    f: Callable[..., Any], argnums: int | Sequence[int], is_sparse: bool, lazy: bool
) -> Callable[..., Any]:
    """See `loopax.hessian`."""

    @wraps(f)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        at = Symbols.of(args, kwargs, argnums, "hessian")
        value, _, _ = at.value(f, has_aux=False)
        slopes = _slopes(at, value, not is_sparse and lazy, name_of(f))
        if not is_sparse and lazy:
            return _lazy_blocks(at, slopes, at.built, name_of(f))
        if is_sparse:
            blocks = _sparse_blocks(at, slopes, is_symmetric=True)
        else:
            blocks = of_graphs.jacobian(at.wrt, slopes, forward=True)
        return _nested(at, blocks, at.built)

    return differentiated


def _slopes(at: Symbols, value: Any, lazy: bool, name: str) -> list[Any]:
    """The gradient at the symbols."""
    if lazy:
        return Grad.of(at.roots, at.roots, at.wrt, [value], name=name)[1:]
    return of_graphs.gradients(at.wrt, [value])


def _lazy_blocks(at: Symbols, outs: Sequence[Any], build: Callable[[Any], Any], name: str) -> Any:
    found = Jacobian.of(at.roots, at.leaves, at.wrt, outs, name=name)[len(outs) :]
    n = len(at.wrt)
    return build([at.built(found[k * n : (k + 1) * n]) for k in range(len(outs))])


def _sparse_blocks(at: Symbols, outs: Sequence[Any], is_symmetric: bool = False) -> Any:
    """For each output a sparse matrix for each symbol to differentiate with respect to."""
    extension = required(
        "sparse_jacobians", "sparse=True", "a dense matrix, sparse=False, the default"
    )
    return extension.part("sparse_blocks")(at, outs, is_symmetric)


def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], lazy: bool
) -> tuple[Any, Any]:
    """See `loopax.jvp`."""
    at, directions = _with_tangents(primals, tangents, "jvp")
    outs, _, tree = variables_of(at.called(f), "result")
    found = _pushed(at, outs, directions, lazy, name_of(f))
    return tree.build(found[: len(outs)]), tree.build(found[len(outs) :])


def _pushed(
    at: Symbols, outs: Sequence[Any], tangents: Sequence[Any], lazy: bool, name: str
) -> list[Any]:
    """``outs`` at the arguments, and their derivatives along ``tangents``."""
    if lazy and at.wrt:
        return Pushforward.of(at.roots, at.leaves, at.wrt, outs, tangents, name)
    symbols = [v.type() for v in at.wrt]
    pushed = of_graphs.pushed_forward(at.wrt, outs, symbols)
    return _at_arguments(at, [*outs, *pushed], symbols, tangents)


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], lazy: bool) -> Any:
    """See `loopax.hvp`."""
    at, directions = _with_tangents(primals, tangents, "hvp")
    value, _, _ = at.value(f, has_aux=False)
    slopes = _slopes(at, value, lazy, name_of(f))
    result = at.built(_pushed(at, slopes, directions, lazy, name_of(f))[len(slopes) :])
    return result[0] if len(primals) == 1 else result


def vjp(
    f: Callable[..., Any], primals: Sequence[Any], lazy: bool
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """See `loopax.vjp`."""
    leaves = [flatten(x)[0] for x in primals]
    floats = [k for k, of in enumerate(leaves) if all(is_float(as_variable(x, "")) for x in of)]
    at = Symbols.of(tuple(primals), {}, floats, "vjp")
    returned = at.called(f)
    outs, _, tree = variables_of(returned, "result")
    name = name_of(f)
    symbols = [v.type() for v in outs]
    pulled = [] if lazy else of_graphs.pulled_back(at.wrt, outs, symbols)

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the primals, from one of the structure, shapes and dtypes of the result."""
        given, own = flatten(cotangents)
        if own != tree:
            raise LoopTypeError(
                f"The cotangent has another structure than the result of {name_of(f)}: {cotangents!r} for "
                f"{returned!r}. Give one of the result's structure, shapes and dtypes."
            )
        directions = _checked(given, outs, [f"cotangent {k}" for k in range(len(outs))])
        if lazy:
            made = Pullback.of(at.roots, at.leaves, at.wrt, outs, directions, name)[len(outs) :]
        else:
            made = _at_arguments(at, pulled, symbols, directions)
        found = iter(at.built(made))
        return tuple(next(found) if k in floats else None for k in range(len(primals)))

    return tree.build(at.placed(outs)), pullback


def _at_arguments(
    at: Symbols, results: Any, symbols: Sequence[Any], given: Sequence[Any]
) -> list[Any]:
    """``results`` at the arguments, with ``given`` for other symbols that they follow from."""
    replace = dict(zip([*at.roots, *symbols], [*at.leaves, *given], strict=True))
    return replaced(results, replace)


def refuse_no_tuples(primals: Any, tangents: Any, what: str) -> None:
    """Raise where the arguments of a product along tangents are not in a tuple."""
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, list | tuple):
            raise LoopTypeError(
                f"{what} takes {name} as a tuple with one entry for each argument; got {given!r}. For one "
                f"argument: {what}(f, (x,), (t,))."
            )


def _with_tangents(primals: Any, tangents: Any, what: str) -> tuple[Symbols, list[Any]]:
    """The symbols of a call, to be differentiated along the arguments that have a tangent; the tangents."""
    refuse_no_tuples(primals, tangents, what)
    if len(primals) != len(tangents):
        raise LoopTypeError(
            f"{what} has {len(primals)} primals and {len(tangents)} tangents: there is one for each, None "
            "for an argument that is constant."
        )
    moving = [k for k, t in enumerate(tangents) if t is not None]
    at = Symbols.of(tuple(primals), {}, moving, what)
    directions: list[Any] = []
    for k, (of, tree) in zip(moving, at.chosen, strict=True):
        leaves, own = flatten(tangents[k])
        if own != tree:
            raise LoopTypeError(
                f"Tangent {k} of {what} has another structure than its primal: {tangents[k]!r} for "
                f"{primals[k]!r}."
            )
        directions += _checked(leaves, of, [f"tangents[{k}]"] * len(of))
    return at, directions


def _checked(given: Sequence[Any], like: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Tangents or cotangents as variables of the types of ``like``."""
    found = []
    for x, v, name in zip(given, like, names, strict=True):
        x = as_variable(x, name)
        if getattr(x.type, "ndim", None) != v.type.ndim:
            raise LoopTypeError(
                f"{name} is {x.type}, and what it belongs to is {v.type}: they have one shape and dtype."
            )
        found.append(v.type.filter_variable(x.astype(v.type.dtype)))
    return found


def _nested(at: Symbols, blocks: Sequence[Sequence[Any]], build: Callable[[Any], Any]) -> Any:
    """A block for each output and each variable, in the structure of the ones around that of the others."""
    placed = at.placed([block for row in blocks for block in row])
    n = len(at.wrt)
    return build([at.built(placed[k : k + n]) for k in range(0, len(placed), n)] if n else [])
