"""`loopax.profile`: the parts that it measures. How long they take is no business of a test."""

import json

import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import cond, jaxify, profile, scan
from loopax.explanation.profile import time_in_words


def program(x):
    final, ys = scan(lambda c, r: (pt.tanh(c + r), c), pt.constant(0.0, dtype="float64"), x)
    either = cond(final > 0, lambda: ys.sum(), lambda: pt.exp(final))
    return either + pt.dot(x, ys) + pt.cumsum(x)[-1]


def test_times_in_words():
    times = [time_in_words(s) for s in (0.0, 3e-9, 2.5e-6, 0.02, 1.234)]
    assert times == ["0 ns", "3 ns", "2.5 us", "20 ms", "1.23 s"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"backend": "numba"}, {"loops": "xla"}])
def test_parts(options):
    measured = profile(jaxify(program, **options), np.linspace(0.0, 1.0, 20))
    forms = {"JAX's operations", "native code"}
    assert set(measured.seconds) == forms
    titles = [part.title for part in measured.parts]
    assert any(title.startswith("Scan{loop}: 20 steps") for title in titles)
    assert any(title.startswith("Cond") for title in titles)
    assert all(set(part.seconds) == forms for part in measured.parts)
    assert abs(sum(part.expected for part in measured.parts) - 1) < 0.05
    text = str(measured)
    assert "a whole call" in text and "expected" in text
    assert "<table>" in measured._repr_html_()


def test_a_trace_for_perfetto(tmp_path):
    measured = profile(jaxify(program), np.ones(5))
    measured.to_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    parts = [event for event in events if event["ph"] == "X"]
    assert len(parts) == sum(len(part.seconds) for part in measured.parts)
    assert all(event["dur"] > 0 for event in parts)


@pytest.mark.slow
def test_what_it_takes():
    x = pt.dvector("x")
    rng = pt.random.type.random_generator_type("rng")
    with_draws = jaxify([x, rng], x + rng.normal(size=3)[1], backend="numba")
    assert profile(with_draws, np.ones(3), np.random.default_rng(1)).parts
    with pytest.raises(TypeError, match="takes a function"):
        profile(3)
    assert loopax.profile(lambda x: x + 1, np.ones(2)).name
