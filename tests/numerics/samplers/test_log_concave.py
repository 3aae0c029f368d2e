"""The hat that all three families of counts are drawn under."""

import numpy as np
import pytest
from scipy import stats

from loopax.numerics.samplers.log_concave import SMALL, hat_width


@pytest.mark.parametrize("name", ["hypergeometric", "binomial", "poisson"])
def test_the_hat_of_the_ratio_of_uniforms_is_above_the_mass(name):
    """``|x - centre| sqrt(mass(k) / mass(mode)) <= width / 2`` for all ``x`` in ``[k, k + 1]``."""
    laws = {
        "poisson": [stats.poisson(m) for m in (10, 10.5, 10.99, 37.2, 1e3, 1e5)],
        "binomial": [
            stats.binom(n, p)
            for n in (20, 21, 50, 10**4)
            for p in (0.5, 0.2, 0.01)
            if n * p >= SMALL
        ],
        "hypergeometric": [
            stats.hypergeom(total, good, n)
            for total in (40, 41, 100, 10**4)
            for good in (total // 2, total // 4)
            for n in (total // 2, total // 3, total // 5)
            if n * good / total >= SMALL
        ],
    }[name]
    for law in laws:
        k = np.arange(max(0, law.mean() - 40 * law.std()), law.mean() + 40 * law.std()).round()
        mass = law.pmf(k)
        from_centre = np.maximum(abs(k - law.mean() - 0.5), abs(k + 1 - law.mean() - 0.5))
        width = float(hat_width(law.var()))
        assert (from_centre * np.sqrt(mass / mass.max()) <= width / 2).all()
