"""`cond`: a lazy conditional from two Python functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import TensorLike
from pytensor.tensor.type import TensorType

from loopax.base.errors import LoopTypeError, describe
from loopax.frontend.loops import keywords
from loopax.frontend.loops.capture import age, close
from loopax.frontend.loops.joins import fitted, is_unsettled, join_of_kind
from loopax.frontend.loops.leaves import as_flag, as_variable, exact_in, variables_of
from loopax.frontend.loops.trees import Tree, flatten, leaf_names
from loopax.frontend.mistakes import explained, label_of, refuse_no_step, refusing_arguments
from loopax.frontend.watching import breakpoints, with_breakpoints
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.ir.ops.cond import Cond
from loopax.ir.ops.random_ops import RandomCond, has_generators

T = TypeVar("T")


# A branch that returns a number does not determine the type of the other.
@overload
def cond(
    pred: TensorLike,
    true_fn: Callable[..., complex],
    false_fn: Callable[..., Any],
    *operands: object,
    name: str | None = None,
) -> Any: ...
@overload
def cond(
    pred: TensorLike,
    true_fn: Callable[..., T],
    false_fn: Callable[..., Any],
    *operands: object,
    name: str | None = None,
) -> T: ...
@refusing_arguments(keywords.COND)
def cond(
    pred: TensorLike,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    *operands: object,
    name: str | None = None,
) -> Any:
    """Compute one of two branches, chosen by ``pred``.

    ::

        cond :: (bool, a -> b, a -> b, a) -> b

        def cond(pred, true_fn, false_fn, *operands):
            return true_fn(*operands) if pred else false_fn(*operands)

    Parameters
    ----------
    pred
        A bool scalar.
    true_fn, false_fn
        Functions from the operands to pytrees of one structure. Each is called once, with symbols.
        Values created in a branch are computed only if it is taken; variables that it uses from outside
        are captured automatically, and always computed.

        The leaves of both have the same types, by the rules for the carry of a `scan`. A constant takes
        the type of the other leaf if that holds it exactly, floats take the wider type, and static
        shapes that differ become unknown. The shapes themselves may differ.
    operands
        Pytrees of variables, arrays and numbers.
    name
        A name for printing and for messages.

    Raises
    ------
    LoopTypeError
        ``pred`` is not a bool scalar, or the branches return different structures or types.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax import cond
    >>> x = pt.dscalar("x")
    >>> y = cond(x > 0, lambda x: pt.log(x), lambda x: 0, x)
    >>> y.eval({x: 1.0}), y.eval({x: -1.0})
    (array(0.), array(0.))
    """
    label = label_of("cond", name)
    call = f"{label}(pred, true_fn, false_fn, *operands)"
    for branch, role in ((true_fn, "true_fn"), (false_fn, "false_fn")):
        fix = "Two values that are computed already: pt.switch(pred, a, b)."
        refuse_no_step(branch, call, role, [f"operands[{k}]" for k in range(len(operands))], fix)
    flag = as_flag(pred, f"The condition of {label}", from_step=False)
    since = age(INDEX_TYPE())
    outer, names, tree = variables_of(operands, "operands")
    # A constant stays one: its value may determine a shape.
    dummies = [
        x if isinstance(x, Constant) else x.type(name=n) for x, n in zip(outer, names, strict=True)
    ]
    with explained(label):
        results, conditions = [], []
        for f in (true_fn, false_fn):
            with breakpoints() as flags:
                results.append(f(*tree.build(dummies)))
            conditions.append(flags)
    (then, then_tree), (otherwise, otherwise_tree) = (flatten(out) for out in results)
    _same_structure(results, then_tree, otherwise_tree, label)
    paths = [f"out{n}" for n in leaf_names(results[0])]
    pairs = [
        _joined(as_variable(a, n), as_variable(b, n), n, label)
        for a, b, n in zip(then, otherwise, paths, strict=True)
    ]
    branches = [a for a, _ in pairs], [b for _, b in pairs]
    outs = sum(map(with_breakpoints, branches, conditions), [])
    bindings = [(x, d) for x, d in zip(outer, dummies, strict=True) if x is not d]
    closure = close(outs, [d for _, d in bindings], since)
    bindings += zip(closure.outer, closure.inner, strict=True)
    # An operand that no branch reads would be computed for nothing.
    read_inputs = {*graph_inputs(closure.outs)}
    bindings = [(x, d) for x, d in bindings if d in read_inputs]
    inner = [d for _, d in bindings]
    kind = RandomCond if has_generators(inner) else Cond
    op = kind.from_branches(inner, closure.outs[: len(pairs)], closure.outs[len(pairs) :], name)
    return then_tree.build(op.bind(flag, [x for x, _ in bindings]))


def _same_structure(results: list[Any], then: Tree, otherwise: Tree, label: str) -> None:
    if then != otherwise:
        names = [["out" + n for n in leaf_names(out)] for out in results]
        raise LoopTypeError(
            f"The branches of {label} return different structures.\n"
            f"  true_fn:  {then.treedef}, with {', '.join(names[0]) or 'no leaf'}\n"
            f"  false_fn: {otherwise.treedef}, with {', '.join(names[1]) or 'no leaf'}\n"
            "Both must return the same structure: if a branch has no value for a leaf, return zeros "
            "of the right shape."
        )


def _joined(a: Variable, b: Variable, path: str, label: str) -> tuple[Variable, Variable]:
    """Convert both leaves to one type, except for static shapes, which `Cond` joins."""
    s: Any = a.type
    t: Any = b.type
    if s == t or s.is_super(t) or t.is_super(s):
        return a, b
    if isinstance(s, TensorType) and isinstance(t, TensorType) and s.ndim == t.ndim:
        dtype = _one_dtype(a, b)
        if dtype is not None:
            return fitted(a, s.clone(dtype=dtype)), fitted(b, t.clone(dtype=dtype))
    raise LoopTypeError(
        f"The branches of {label} return different types: {path} is {s} in true_fn and {t} in "
        "false_fn.\n"
        f"  true_fn:  {describe(a)}\n"
        f"  false_fn: {describe(b)}\n"
        "Both must return the same rank and dtype: use result.astype('float64'), for example, or "
        "pt.zeros(shape) in place of 0."
    )


def _one_dtype(a: Any, b: Any) -> str | None:
    dtype_a, dtype_b = str(a.type.dtype), str(b.type.dtype)
    fixed = [isinstance(v, Constant) for v in (a, b)]
    if dtype_a == dtype_b or (fixed == [False, True] and exact_in(b, dtype_a)):
        return dtype_a
    if fixed == [True, False] and exact_in(a, dtype_b):
        return dtype_b
    if (common := join_of_kind(dtype_a, dtype_b)) is not None:
        return common
    if fixed == [True, True]:
        return next((d for v, d in ((a, dtype_b), (b, dtype_a)) if exact_in(v, d)), None)
    for v, dtype in ((a, dtype_b), (b, dtype_a)):
        is_integer = v.type.dtype in pt.type.integer_dtypes
        if is_integer and dtype not in pt.type.discrete_dtypes and is_unsettled(v):
            return dtype
    return None
