"""The programs of a plain Python function, found by the types of its arguments at each call."""

import numpy as np
import pytest

from loopax import jaxify
from loopax.frontend.programs import tracing


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_repeated_call_makes_no_types(backend, monkeypatch):
    f = jaxify(lambda x, k, flags: (x * k)[flags.sum()], backend=backend)
    arguments = np.array([2.0, 3.0]), 0.5, np.array([True, False])
    assert f(*arguments) == 1.5

    def refuse(*args, **kwargs):
        raise AssertionError("a type is made for a leaf whose type is known")

    monkeypatch.setattr(tracing, "TensorType", refuse)
    assert f(*arguments) == 1.5
