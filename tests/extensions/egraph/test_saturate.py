"""Engines of egglog: how many programs each takes, and that no two threads have the same."""

from concurrent.futures import ThreadPoolExecutor

import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

pytest.importorskip("egglog", reason="the extra egraph")

from loopax.extensions.egraph import saturate
from loopax.extensions.egraph.encode import Encoded

x = pt.dvector("x")


def program(k):
    return Encoded(FunctionGraph([x], [pt.log1p(-pt.exp(x * k)).sum()], clone=True))


def read(k):
    actual = saturate.saturated(program(k))
    return actual.rounds, sorted(map(len, actual.classes.values()))


@pytest.mark.slow
def test_an_engine_takes_so_many_terms_and_no_more(monkeypatch):
    terms = len(program(1.5).terms)
    monkeypatch.setattr(saturate, "_idle", saturate._Idle())
    monkeypatch.setattr(saturate, "_TERMS_OF_ALL", 2 * terms)
    engines = []
    for _ in range(4):
        read(1.5)
        engines.append(saturate._idle.engine and saturate._idle.engine.terms)
    assert engines == [terms, None, terms, None]


@pytest.mark.slow
def test_threads_saturate_programs_at_once():
    factors = [1.5 + k for k in range(12)]
    alone = [read(k) for k in factors]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, factors)) == alone


def test_an_engine_in_which_something_failed_is_not_used_again(monkeypatch):
    monkeypatch.setattr(saturate, "_idle", saturate._Idle())
    wrong = program(1.5)
    wrong.facts.append("(Unknown 1)")
    with pytest.raises(Exception, match="Unknown"):
        saturate.saturated(wrong)
    assert saturate._idle.engine is None
