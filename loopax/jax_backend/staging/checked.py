"""An identity in which JAX's checkify finds a check, at no cost otherwise.

``checkify.debug_check`` leaves an effect in the program, and JAX dispatches a program with an effect by
its slow path: a call of a model with two parameters took 94 microseconds, and 8 without the check. Our own
primitive has no effect. It is lowered to its inputs, and XLA drops the computation of the condition.

Checkify has no public way to register a rule for a primitive, and its private one differs between releases
of JAX. Its treatment of a primitive with a ``call_jaxpr`` is the same in all of them: it calls ``bind``
with a function in ``subfuns``, which is that jaxpr with its checks collected. So the jaxpr here contains
the check, by the public `checkify.debug_check`. `test_checks.py` fails if that changes.

With ``raises`` the lowered program has a branch for a false condition, which calls the host to raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.experimental import checkify
from jax.typing import ArrayLike

from loopax.base.errors import UnsupportedOpError
from loopax.base.upstream.jax import ad, batching, mlir, trace_cache
from loopax.ir.sequences import with_items
from loopax.jax_backend.staging.checkable import Checkable
from loopax.jax_backend.staging.primitive_rules import BatchAxes, Tangents
from loopax.jax_backend.values.generators import is_key
from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array


class Failure(NamedTuple):
    """The error that a failing check raises."""

    kind: type[Exception]
    message: str

    def __str__(self) -> str:
        return f"{self.kind.__name__}: {self.message}"

    def error(self) -> Exception:
        return self.kind(self.message)


def check_when_run(context: Any, x: object, ok: ArrayLike, failure: Failure) -> Any:
    """Check the traced flag ``ok`` in the way that ``jaxify(..., checks=)`` asks for; return ``x``.

    ``x`` is a pytree of arrays, ``context`` the `Context` of the evaluation.
    """
    if context.checks == "ignore":
        return x
    if context.checks == "raise":
        context.failures.add(failure)
    elif context.checks == "flag":
        context.flagged.add(failure)
    else:
        context.warn_once(
            failure.message,
            f"The assertion {failure.message!r} depends on traced values. JAX checks it only under "
            "`jax.experimental.checkify.checkify`, and skips it otherwise. To raise wherever the "
            'program runs, use jaxify(..., checks="raise"); to skip it without this warning, use '
            'checks="ignore".',
        )
    return checked(x, ok, failure, raises=context.checks == "raise")


def checked(x: object, ok: ArrayLike, failure: Failure, raises: bool = False) -> Any:
    """Return ``x``, a pytree of arrays, with an error if ``ok``, a flag, is false.

    Checkify finds it, or with ``raises`` it is raised when the program runs; under ``vmap``, if any row of
    ``ok`` is false. Derivatives pass through it.
    """
    leaves, tree = jax.tree.flatten(x)
    if not leaves:
        return x
    return jax.tree.unflatten(tree, _bind(leaves, ok, failure, raises))


def _bind(leaves: Sequence[Array], ok: ArrayLike, failure: Failure, raises: bool) -> list[Any]:
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    jaxpr = _with_check(len(leaves), str(failure))
    return _check.bind(*leaves, ok, call_jaxpr=jaxpr, failure=failure, raises=raises)


@trace_cache
def _with_check(count: int, message: str) -> Any:
    """A jaxpr ``(*xs, ok) -> xs`` with the check; the types of ``xs`` do not matter to checkify."""

    def run(*args: jax.Array) -> list[Any]:
        # checkify takes a format string.
        checkify.debug_check(args[-1], message.replace("{", "{{").replace("}", "}}"))
        return list(args[:-1])

    flag = jax.ShapeDtypeStruct((), np.dtype(bool))
    return jax.make_jaxpr(run)(*[flag] * (count + 1))


_check = Checkable("check")
_check.multiple_results = True


@_check.def_abstract_eval
def _shapes(*args: ShapedArray, **params: object) -> list[Any]:
    return list(args[:-1])


@_check.def_impl
def _run(*args: jax.Array, failure: Failure, raises: bool, **params: object) -> list[Any]:
    if raises and not bool(args[-1]):
        raise failure.error()
    return list(args[:-1])


def _raising(*args: jax.Array, failure: Failure, **params: object) -> list[Any]:
    def fail() -> Any:
        raise failure.error()

    def failed(xs: Sequence[jax.Array]) -> Any:
        return raised_on_host(fail, xs)

    return manual_axes.cond(args[-1], lambda xs: xs, failed, list(args[:-1]))


def raised_on_host(
    fail: Callable[..., Any], xs: Sequence[jax.Array], *operands: object
) -> list[Any]:
    """Return ``xs`` from ``fail``, which raises on the host: XLA would drop a call without results."""
    numbers = [jax.eval_shape(jax.random.key_data, x) if is_key(x) else x for x in xs]
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in numbers]
    answers = manual_axes.pure_callback(fail, shapes, *operands)
    return [
        jax.random.wrap_key_data(answer, impl=jax.random.key_impl(x)) if is_key(x) else answer
        for answer, x in zip(answers, xs, strict=True)
    ]


_lowered_raising = mlir.lower_fun(_raising, multiple_results=True)


def _lower(
    ctx: mlir.LoweringRuleContext, *args: object, failure: Failure, raises: bool, **params: object
) -> Any:
    if not raises:
        return list(args[:-1])
    if ctx.module_context.lowering_parameters.for_export:
        reason = (
            f"The check {failure.message!r} calls Python where it fails, and no exported program can. "
            "Export that of jaxify(..., checks='ignore'), and let it return what is to be checked: "
            "jaxify([x], [y, (x > 0).all()], checks='ignore')."
        )
        raise UnsupportedOpError(reason, [reason])
    return _lowered_raising(ctx, *args, failure=failure, **params)


def _jvp(
    primals: Sequence[jax.Array],
    tangents: Tangents,
    *,
    failure: Failure,
    raises: bool,
    **params: object,
) -> Any:
    outs = _bind(primals[:-1], primals[-1], failure, raises)
    return outs, _through(tangents[:-1], primals[-1], failure, raises)


def _transpose(
    cotangents: Tangents, *args: Any, failure: Failure, raises: bool, **params: object
) -> Any:
    return [*_through(cotangents, args[-1], failure, raises), None]


def _through(dots: Tangents, ok: ArrayLike, failure: Failure, raises: bool) -> list[Any]:
    """Tangents or cotangents, with the check if it raises: a gradient need not read the value."""
    through: list[Any] = list(dots)
    at = [k for k, dot in enumerate(dots) if not isinstance(dot, ad.Zero)]
    if raises and at:
        through = with_items(through, at, _bind([through[k] for k in at], ok, failure, raises))
    return through


def _batch(
    args: Sequence[jax.Array], axes: BatchAxes, *, failure: Failure, raises: bool, **params: object
) -> Any:
    ok = args[-1] if axes[-1] is None else jnp.all(args[-1], axis=axes[-1])
    return _bind(args[:-1], ok, failure, raises), list(axes[:-1])


mlir.register_lowering(_check, _lower)
ad.primitive_jvps[_check] = _jvp
ad.primitive_transposes[_check] = _transpose
batching.primitive_batchers[_check] = _batch
