"""`jacobian`, `hessian`, `hvp`, `jvp` and `vjp` of functions of PyTensor variables, as graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from loopax.base.errors import LoopTypeError
from loopax.base.extensions import required
from loopax.frontend.loops.leaves import as_variable, variables_of
from loopax.frontend.loops.trees import flatten
from loopax.frontend.mistakes import name_of
from loopax.frontend.programs.symbols import Symbols
from loopax.ir.derivatives import graph_derivatives
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.derivatives.lazy import Grad, Jacobian, Pullback, Pushforward
from loopax.ir.replace import replaced


def jacobian(
    f: Callable[..., Any], argnums: int | Sequence[int], is_sparse: bool, lazy: bool
) -> Callable[..., Any]:
    """See `loopax.jacobian`."""

    @wraps(f)
    def differentiated(*args: object, **kwargs: object) -> Any:
        call = Symbols.of(args, kwargs, argnums, "jacobian")
        outs, tree = call.outputs(f, "jacobian")
        if not is_sparse and lazy:
            return _lazy_blocks(call, outs, tree.build, name_of(f))
        blocks = (
            _sparse_blocks(call, outs) if is_sparse else graph_derivatives.jacobian(call.wrt, outs)
        )
        return _nested(call, blocks, tree.build)

    return differentiated


def hessian(
    f: Callable[..., Any], argnums: int | Sequence[int], is_sparse: bool, lazy: bool
) -> Callable[..., Any]:
    """See `loopax.hessian`."""

    @wraps(f)
    def differentiated(*args: object, **kwargs: object) -> Any:
        call = Symbols.of(args, kwargs, argnums, "hessian")
        value, _, _ = call.value(f, has_aux=False)
        slopes = _slopes(call, value, not is_sparse and lazy, name_of(f))
        if not is_sparse and lazy:
            return _lazy_blocks(call, slopes, call.built, name_of(f))
        if is_sparse:
            blocks = _sparse_blocks(call, slopes, is_symmetric=True)
        else:
            blocks = graph_derivatives.jacobian(call.wrt, slopes, forward=True)
        return _nested(call, blocks, call.built)

    return differentiated


def _slopes(call: Symbols, value: TensorVariable, lazy: bool, name: str) -> list[Any]:
    if lazy:
        return Grad.of(call.roots, call.roots, call.wrt, [value], name=name)[1:]
    return graph_derivatives.gradients(call.wrt, [value])


def _lazy_blocks(
    call: Symbols, outs: Sequence[Variable], build: Callable[[Any], Any], name: str
) -> Any:
    results = Jacobian.of(call.roots, call.leaves, call.wrt, outs, name=name)[len(outs) :]
    n = len(call.wrt)
    return build([call.built(results[k * n : (k + 1) * n]) for k in range(len(outs))])


def _sparse_blocks(call: Symbols, outs: Sequence[Variable], is_symmetric: bool = False) -> Any:
    """The sparse blocks of the Jacobian: for each output a matrix for each variable of ``call.wrt``."""
    extension = required(
        "sparse_jacobians", "sparse=True", "a dense matrix, sparse=False, the default"
    )
    return extension.part("sparse_blocks")(call, outs, is_symmetric)


def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], lazy: bool
) -> tuple[Any, Any]:
    """See `loopax.jvp`."""
    call, directions = _with_tangents(primals, tangents, "jvp")
    outs, _, tree = variables_of(call.called(f), "result")
    results = _pushed(call, outs, directions, lazy, name_of(f))
    return tree.build(results[: len(outs)]), tree.build(results[len(outs) :])


def _pushed(
    call: Symbols,
    outs: Sequence[TensorVariable],
    tangents: Sequence[Variable],
    lazy: bool,
    name: str,
) -> list[Any]:
    """Compute ``outs`` at the arguments, followed by their derivatives along ``tangents``."""
    if lazy and call.wrt:
        return Pushforward.of(call.roots, call.leaves, call.wrt, outs, tangents, name)
    symbols = [v.type() for v in call.wrt]
    out_tangents = graph_derivatives.pushed_forward(call.wrt, outs, symbols)
    return _at_arguments(call, [*outs, *out_tangents], symbols, tangents)


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], lazy: bool) -> Any:
    """See `loopax.hvp`."""
    call, directions = _with_tangents(primals, tangents, "hvp")
    value, _, _ = call.value(f, has_aux=False)
    slopes = _slopes(call, value, lazy, name_of(f))
    result = call.built(_pushed(call, slopes, directions, lazy, name_of(f))[len(slopes) :])
    return result[0] if len(primals) == 1 else result


def vjp(
    f: Callable[..., Any], primals: Sequence[Any], lazy: bool
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """See `loopax.vjp`."""
    leaves = [flatten(x)[0] for x in primals]
    floats = [
        k
        for k, argument in enumerate(leaves)
        if all(is_float(as_variable(x, "")) for x in argument)
    ]
    call = Symbols.of(tuple(primals), {}, floats, "vjp")
    returned = call.called(f)
    outs, _, tree = variables_of(returned, "result")
    name = name_of(f)
    symbols = [v.type() for v in outs]
    in_cotangents = [] if lazy else graph_derivatives.pulled_back(call.wrt, outs, symbols)

    def pullback(cotangents: object) -> tuple[Any, ...]:
        """Pull a cotangent with the result's structure, shapes and dtypes back to the primals."""
        values, structure = flatten(cotangents)
        if structure != tree:
            raise LoopTypeError(
                f"The cotangent has another structure than the result of {name_of(f)}: {cotangents!r} "
                f"for {returned!r}. Pass a cotangent with the structure, shapes and dtypes of the "
                "result."
            )
        directions = _checked(values, outs, [f"cotangent {k}" for k in range(len(outs))])
        if lazy:
            results = Pullback.of(call.roots, call.leaves, call.wrt, outs, directions, name)[
                len(outs) :
            ]
        else:
            results = _at_arguments(call, in_cotangents, symbols, directions)
        remaining = iter(call.built(results))
        return tuple(next(remaining) if k in floats else None for k in range(len(primals)))

    return tree.build(call.placed(outs)), pullback


def _at_arguments(
    call: Symbols,
    results: Sequence[Variable],
    symbols: Sequence[Variable],
    values: Sequence[Variable],
) -> list[Any]:
    """Move ``results`` to the arguments, with ``values`` for the other ``symbols`` they depend on."""
    replace = dict(zip([*call.roots, *symbols], [*call.leaves, *values], strict=True))
    return replaced(results, replace)


def refuse_no_tuples(primals: object, tangents: object, label: str) -> None:
    for name, values in (("primals", primals), ("tangents", tangents)):
        if not isinstance(values, list | tuple):
            raise LoopTypeError(
                f"{label} takes {name} as a tuple with one entry for each argument, got {values!r}. "
                f"For one argument, write {label}(f, (x,), (t,))."
            )


def _with_tangents(
    primals: Sequence[Any], tangents: Sequence[Any], label: str
) -> tuple[Symbols, list[Any]]:
    """The symbols of a call, differentiated along the arguments with a tangent; and the tangents."""
    refuse_no_tuples(primals, tangents, label)
    if len(primals) != len(tangents):
        raise LoopTypeError(
            f"{label} has {len(primals)} primals and {len(tangents)} tangents. Pass one tangent for "
            "each primal, None for a constant argument."
        )
    moving = [k for k, t in enumerate(tangents) if t is not None]
    call = Symbols.of(tuple(primals), {}, moving, label)
    directions: list[Any] = []
    for k, (primal_leaves, tree) in zip(moving, call.chosen, strict=True):
        leaves, structure = flatten(tangents[k])
        if structure != tree:
            raise LoopTypeError(
                f"Tangent {k} of {label} has another structure than its primal: {tangents[k]!r} for "
                f"{primals[k]!r}."
            )
        directions += _checked(leaves, primal_leaves, [f"tangents[{k}]"] * len(primal_leaves))
    return call, directions


def _checked(values: Sequence[Any], like: Sequence[Variable], names: Sequence[str]) -> list[Any]:
    """Convert tangents or cotangents to variables of the types of ``like``."""
    variables = []
    for x, v, name in zip(values, like, names, strict=True):
        new: Any = as_variable(x, name)
        if getattr(new.type, "ndim", None) != v.type.ndim:
            raise LoopTypeError(
                f"{name} is {new.type}, but its argument is {v.type}: both must have the same shape and "
                "dtype."
            )
        variables.append(v.type.filter_variable(new.astype(v.type.dtype)))
    return variables


def _nested(
    call: Symbols, blocks: Sequence[Sequence[Variable]], build: Callable[[Any], Any]
) -> Any:
    """Nest the blocks in the structure of the outputs, each entry in the structure of the arguments."""
    placed = call.placed([block for row in blocks for block in row])
    n = len(call.wrt)
    return build([call.built(placed[k : k + n]) for k in range(0, len(placed), n)] if n else [])
