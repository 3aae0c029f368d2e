"""Which Op classes there are in the PyTensor that is installed, and which of them a program is made of."""

import importlib
import pkgutil
import sys
import warnings
from functools import cache
from typing import Any

import pytensor
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op

# They do something when imported. The last one calls a C compiler, which `make test` does without.
_PROGRAMS = ("pytensor.misc", "pytensor.bin", "pytensor.ipython", "pytensor.link.c.cutils")


@cache
def op_classes() -> tuple[type, ...]:
    """The Op classes of all modules of PyTensor that can be imported here, by module and name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.walk_packages(pytensor.__path__, "pytensor.", lambda name: None):
            if module.name.startswith(_PROGRAMS):
                continue
            package, _, name = module.name.rpartition(".")
            there = getattr(sys.modules.get(package), name, None)
            try:
                importlib.import_module(module.name)
            except ImportError:  # it wants a package that loopax does not need
                continue
            if there is not None:  # `pt.var` is a function, and a module of old names
                setattr(sys.modules[package], name, there)
    classes = {c for c in _subclasses(Op) if c.__module__.startswith("pytensor.") and _is_named(c)}
    return tuple(sorted(classes, key=lambda c: (c.__module__, c.__name__)))


def _is_named(cls: type) -> bool:
    """Whether a module has it: PyTensor makes some classes while it runs."""
    return getattr(sys.modules[cls.__module__], cls.__name__, None) is cls


def _subclasses(cls: type) -> Any:
    for c in cls.__subclasses__():
        yield c
        yield from _subclasses(c)


def classes_in(graph: AbstractFunctionGraph) -> set[type]:
    """The classes of the ops of a graph, those inside of other ops included."""
    actual: set[type] = set()
    for node in graph.apply_nodes:
        actual |= _classes_of(node.op)
    return actual


def _classes_of(op: Any) -> set[type]:
    actual = {type(op)}
    for name in ("scalar_op", "core_op"):
        inner = getattr(op, name, None)
        if isinstance(inner, Op):
            actual |= _classes_of(inner)
    inner = getattr(op, "fgraph", None)
    return actual | classes_in(inner) if isinstance(inner, AbstractFunctionGraph) else actual
