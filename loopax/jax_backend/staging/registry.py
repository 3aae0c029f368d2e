"""The registry of conversions.

A conversion is a *rule*, registered on an Op class with `rule`. It takes a `Site` and the values of
the node's inputs, and returns the output, or a tuple of them. An input is *static* where it is a
NumPy value, known while JAX traces, and *traced* where it is a JAX array. A rule that must know a
value asks for it with ``site.static(k)``.

An Op without a rule of loopax is converted by PyTensor's registry, ``jax_funcify``, so what a user
registered there works here too. There is a rule of loopax only where PyTensor's is wrong, missing, or
does not use static values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify

Rule = Callable[..., Any]
_RULES: dict[type, Rule] = {}
_TRACE_RULES: dict[type, Rule] = {}
_LEAF: list[Rule] = []  # the rule of `leaf_rule`


def rule(*op_classes: type) -> Callable[[Rule], Rule]:
    """Register a rule for Op classes, subclasses included. A second rule for a class is an error."""
    return _registering(_RULES, op_classes)


def trace_rule(*op_classes: type) -> Callable[[Rule], Rule]:
    """Register a rule for inputs that are a `PaddedArray`, and for results whose length is left open.

    The rule of ``Op`` itself serves all ops without another one.
    """
    return _registering(_TRACE_RULES, op_classes)


def leaf_rule(function: Rule) -> Rule:
    """Register the rule of all Ops without one of their own."""
    assert not _LEAF, f"there is one already: {_LEAF}"
    _LEAF.append(function)
    return function


def _registering(rules: dict[type, Rule], op_classes: Sequence[type]) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for cls in op_classes:
            assert cls not in rules, f"{cls.__name__} already has a rule: {rules[cls]}"
            rules[cls] = function
        return function

    return register


def find_rule(op: Op) -> Rule | None:
    """The rule of the nearest class of ``op``."""
    return _nearest(_RULES, op)


def find_leaf_rule() -> Rule:
    """The rule of all Ops without one of their own."""
    return _LEAF[0]


def find_trace_rule(op: Op) -> Rule:
    """The rule of the nearest class of ``op``, `Op` included."""
    trace_rule = _nearest(_TRACE_RULES, op)
    assert trace_rule is not None
    return trace_rule


def has_trace_rule(op: Op) -> bool:
    """Whether ``op`` has a rule other than the rule of all ops."""
    return find_trace_rule(op) is not _TRACE_RULES[Op]


def _nearest(rules: dict[type, Rule], op: Op) -> Rule | None:
    for cls in type(op).__mro__:
        if cls in rules:
            return rules[cls]
    return None


def has_conversion(op: Op) -> bool:
    """Whether ``op`` has a rule of loopax or an entry in PyTensor's registry."""
    unregistered = jax_funcify.dispatch(object)
    return find_rule(op) is not None or jax_funcify.dispatch(type(op)) is not unregistered


def converted_ops() -> tuple[type, ...]:
    """The Op classes that have a rule of loopax."""
    return tuple(_RULES)
