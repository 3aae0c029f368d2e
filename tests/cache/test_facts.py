"""What a process found out about a program, a second one knows."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import jaxify
from loopax.cache.environment import environment
from loopax.cache.facts import fact_of_graph
from loopax.kernels import choice
from loopax.kernels.ffi import kernel_code

x = pt.dvector("x")


@pytest.fixture
def place(tmp_path, monkeypatch):
    environment()  # what it keeps of packages is not counted below
    monkeypatch.setenv("LOOPAX_CACHE_DIR", str(tmp_path / "facts"))
    return tmp_path / "facts"


def test_a_number_is_kept(place):
    one = fact_of_graph([x], [pt.exp(x)], "length")
    assert one.known() is None
    one.keep(812)
    again = pt.dvector("x")
    assert fact_of_graph([again], [pt.exp(again)], "length").known() == (812,)
    assert fact_of_graph([x], [pt.exp(x)], "width").known() is None
    assert fact_of_graph([x], [pt.sin(x)], "length").known() is None


def test_what_is_no_number_is_not_known(place):
    one = fact_of_graph([x], [pt.exp(x)])
    one.keep(812)
    for path in place.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert one.known() is None


@pytest.mark.parametrize("parts", [("length", None), ("length", object())], ids=["None", "unknown"])
def test_without_a_key_nothing_is_kept(place, parts):
    one = fact_of_graph([x], [pt.exp(x)], *parts)
    one.keep(812)
    assert one.known() is None
    assert not place.exists() or not list(place.iterdir())


def test_without_a_folder_nothing_is_kept(monkeypatch):
    monkeypatch.setenv("LOOPAX_CACHE_DIR", "")
    one = fact_of_graph([x], [pt.exp(x)])
    one.keep(812)
    assert one.known() is None


def test_what_was_refused_for_its_length_is_not_written_again(place, monkeypatch):
    monkeypatch.setattr(choice, "_MOST_LINES", 5)
    written = []
    real = kernel_code.KernelCode

    def counted(*args):
        written.append(args)
        return real(*args)

    monkeypatch.setattr(kernel_code, "KernelCode", counted)
    s = pt.dscalar("s")

    def program():
        v = pytensor.scan(lambda r, v: 0.9 * v + r, [x], [s], return_updates=False)[-1]
        return jax.jit(jaxify([x, s], v, loops="auto"))

    at = np.arange(6.0), 0.5
    first = program()(*at)
    assert written
    del written[:]
    assert program()(*at) == first
    assert not written
