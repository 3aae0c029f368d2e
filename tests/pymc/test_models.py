"""The models of `benchmarks/models`: each route has PyTensor's values; what is printed of them."""

import numpy as np
import pytensor
import pytest
from pytensor.compile.mode import Mode

from benchmarks import __main__ as command
from benchmarks import models_beside_pytensor as beside
from benchmarks.measure import Pairs, in_rounds
from benchmarks.models_report import EVALUATION, FIRST, MEMORY, TITLES, draw, models_table
from benchmarks.report import Figure

pytestmark = [
    pytest.mark.both_stacks,
    # PyMC checks parameters with assertions, which JAX skips: jaxify says so, once a function.
    pytest.mark.filterwarnings("ignore:The assertion .* depends on traced values:UserWarning"),
]

QUICK = ("eight_schools", "ar2_by_slices")


def names():
    """Of all models; the quick ones run in `make test`."""
    if not beside.pymc_is_there():
        return [pytest.param("", marks=pytest.mark.skip(reason="PyMC 6 needs Python 3.12"))]
    from benchmarks.models import MODELS

    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in MODELS]


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_routes_agree(name):
    model = beside.flat_model(name)
    outputs = beside.value_and_pytensor_grad(model)
    # Interpreted: to compile the C code of a scan takes longer than everything else here.
    results = {
        "PyTensor": pytensor.function(*outputs, mode=Mode("py", "fast_compile"))(model.point)
    }
    for route, _ in beside.ROUTES:
        results[route.name] = route.make(model)(model.point)
    beside.compare(name, results)


@pytest.mark.skipif(not beside.pymc_is_there(), reason="PyMC 6 needs Python 3.12")
def test_enough_models_each_of_them_documented():
    from benchmarks.models import FAMILIES, MODELS

    assert len(MODELS) == sum(len(family.MODELS) for family in FAMILIES) >= 24
    assert all(build.__doc__ for build in MODELS.values())


@pytest.mark.parametrize(
    "other", [(1.0 + 1e-6, np.ones(2)), (1.0, np.array([1.0, 1.1])), (1.0, np.array([1.0, np.nan]))]
)
def test_a_difference_is_an_error(other):
    with pytest.raises(AssertionError, match="walk: Numba beside JAX"):
        beside.compare("walk", {"JAX": (1.0, np.ones(2)), "Numba": other})


def figures():
    for name, ratios in {"a": (0.5, 0.6, 2.0), "b": (1.5, 0.8, 0.5)}.items():
        for route, ratio in zip(("transpiled", "jax.grad", "Numba"), ratios, strict=True):
            for measured in (EVALUATION, FIRST, MEMORY):
                pairs = Pairs(np.array([ratio * 1e-5]), np.array([1e-5]))
                yield Figure(name, route, measured, None, pairs)


def test_the_table_has_median_and_worst():
    lines = [line.split() for line in models_table(list(figures())).splitlines()]
    assert ["median", "1.00", "0.70", "|", "1.25"] in lines
    assert ["worst", "1.50", "0.80", "|", "2.00"] in lines
    text = models_table([f for f in figures() if (f.program, f.comparison) != ("b", "Numba")])
    (row,) = [line for line in text.split(TITLES[FIRST])[0].splitlines() if line.startswith("b ")]
    assert row.split()[1:] == ["10.0", "us", "1.50", "0.80", "|", "-", "-"]
    assert "Numba, worst of 1: 2.00 (limit 1.25) no" in text


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    draw(list(figures()), tmp_path / "new" / "models.png")
    assert (tmp_path / "new" / "models.png").read_bytes().startswith(b"\x89PNG")


def test_without_pymc_the_command_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(command, "pymc_is_there", lambda: False)
    with pytest.raises(SystemExit):
        command.main(["models"])
    assert (
        "written with PyMC, which is missing: pip install 'loopax[pymc]'" in capsys.readouterr().err
    )


def test_rounds_go_to_and_fro():
    calls = []
    sides = [lambda k=k: calls.append(k) or float(k) for k in range(3)]
    assert in_rounds(sides, 2).tolist() == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    assert calls == [0, 1, 2, 2, 1, 0]


def test_a_mode_that_is_wrong_is_left_out():
    def route(value):
        return beside.CompiledRoute(lambda x: (value, np.ones(2)), None, 0.0, 0.0)

    routes = {r.name: route(1.0) for r, _ in beside.ROUTES}
    agree = {**routes, "JAX": route(1.0), "NUMBA": route(1.0)}
    assert beside.disagreeing("walk", agree) == {}
    actual = beside.disagreeing("walk", {**agree, "JAX": route(2.0)})
    assert list(actual) == ["JAX"] and "difference" in actual["JAX"]
    with pytest.raises(AssertionError, match="walk"):
        beside.disagreeing("walk", {**routes, "JAX": route(2.0), "NUMBA": route(2.0)})
    with pytest.raises(AssertionError, match="walk: Numba"):
        beside.disagreeing("walk", {**agree, "Numba": route(2.0)})
