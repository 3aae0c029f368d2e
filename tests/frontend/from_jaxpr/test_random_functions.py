"""Random functions of JAX, with loops and branches in each other, against XLA; and their derivatives.

A seed is the name of a case: ``pytest -k "seed-17"`` runs it again, and
``python -m tests.frontend.from_jaxpr.random_functions --seed 17 --n 1 --all`` all its transformations.
"""

from __future__ import annotations

import pytest

from loopax.frontend.from_jaxpr.reading import NotImportable
from tests.frontend.from_jaxpr.random_functions import comparing
from tests.frontend.from_jaxpr.random_functions.writing import random_function


def seeds(*numbers: int) -> list[object]:
    return [pytest.param(k, id=f"seed-{k}") for k in range(*numbers)]


def compare(seed: int, names: list[str], form: str) -> int:
    """The number of transformations that are differentiable, which all agree with XLA."""
    n = 0
    for name in names:
        try:
            comparison = comparing.Comparison(random_function(seed), name, comparing.dtype_of(seed))
        except comparing.NotDifferentiable:
            continue
        what = comparison.difference(form)
        assert what is None, f"seed {seed}, {name}: {what}"
        n += 1
    return n


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 10])
def test_the_ir_means_what_xla_computes(first: int) -> None:
    n = 0
    for seed in range(first, first + 10):
        try:
            n += compare(seed, ["value"], "ir")
        except (NotImportable, pytest.skip.Exception):  # its loop stays JAX's; see `in_the_ir`
            continue
    assert n > 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20))
def test_a_transformation_is_that_of_xla(seed: int) -> None:
    """The program of native code runs as Python."""
    compare(seed, [comparing.transformations_of(seed)[seed % 2]], "python")


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(100, 160))
def test_transformations_are_those_of_xla(seed: int) -> None:
    compare(seed, comparing.transformations_of(seed), "python")


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(200, 215))
def test_native_code_and_its_transformations_are_those_of_xla(seed: int) -> None:
    compare(seed, comparing.transformations_of(seed), "native")
