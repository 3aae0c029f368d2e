"""Functions and classes in keys: by the code that they run, whatever name is written on them."""

import enum
import functools
import inspect
import re

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
import scipy.special
from pytensor.link.numba.dispatch.basic import register_funcify_and_cache_key
from pytensor.tensor.math import Dot, Sum

from loopax.cache.graph_key import content_key


def name_of(value):
    """A name without an address, the same in all test processes."""
    return getattr(value, "__qualname__", None) or str(value).partition(" at ")[0]


def closing_over(cls):
    """A function of PyTensor's that holds a class."""
    return register_funcify_and_cache_key(cls)


@pytest.mark.parametrize(
    "value",
    [np.exp, np.linalg.inv, len, inspect.signature, pt.exp, Dot, scipy.special.erf, re.RegexFlag.A],
    ids=name_of,
)
def test_what_a_library_has_is_known(value):
    assert content_key(value) == content_key(value) is not None


def test_a_function_is_known_by_what_it_closes_over():
    assert content_key(closing_over(Dot)) == content_key(closing_over(Dot)) is not None
    assert content_key(closing_over(Dot)) != content_key(closing_over(Sum))


@functools.wraps(np.linalg.inv)
def wraps_numpy(a):
    return np.linalg.inv(a) * 2


@functools.wraps(inspect.signature)
def wraps_python(f):
    return inspect.signature(f)


def in_their_name(value, of):
    """``value`` with the name and the module of something else."""
    for name in ("__module__", "__name__", "__qualname__"):
        setattr(value, name, getattr(of, name))
    return value


class Colour(enum.IntEnum):
    RED = 1


class Ratio(float):
    pass


@pytest.mark.parametrize(
    "value",
    [
        wraps_numpy,
        wraps_python,
        functools.partial(np.exp),
        in_their_name(lambda a: a, of=inspect.signature),
        in_their_name(type("Dot", (Dot,), {"perform": lambda self, *args: None}), of=Dot),
        type("CustomOp", (Dot,), {"__module__": Dot.__module__, "function": lambda x: 2 * x}),
        in_their_name(type("Dot", (Dot,), {}), of=Dot)(),
        closing_over(type("Own", (Dot,), {})),
        Colour.RED,
        Ratio(2.0),
        [].append,
        eval("lambda: 0", {"__name__": "numpy"}),
    ],
    ids=name_of,
)
def test_what_only_has_a_librarys_name_is_not_known(value):
    assert content_key(value) is None
    assert content_key((1, [value])) is None


def test_an_enumeration_is_no_number():
    kinds = [inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY]
    keys = {content_key(x) for x in (*kinds, *map(int, kinds))}
    assert len(keys) == 4 and None not in keys


@pytest.mark.parametrize(
    "wrap", [lambda f: f, staticmethod, property], ids=["method", "static", "property"]
)
def test_a_class_that_was_given_a_users_method_is_not_known(monkeypatch, wrap):
    assert content_key(ps.exp) is not None
    monkeypatch.setattr(ps.Exp, "impl", wrap(lambda self, x: 2 * x))
    assert content_key(ps.exp) is None


def test_a_patched_base_class_counts(monkeypatch):
    monkeypatch.setattr(ps.ScalarOp, "users_own", lambda self: 2, raising=False)
    assert content_key(ps.exp) is None


def test_what_holds_itself_is_not_known():
    def holder():
        return holder

    assert content_key(in_their_name(holder, of=inspect.signature)) is None
