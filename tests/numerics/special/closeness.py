"""How near a value is to be to what SciPy or mpmath says."""

import numpy as np


def close(actual, expected, rtol=1e-9, atol=0.0):
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=rtol, atol=atol)


# PyTensor has no native trigamma and polygamma: they run as Python, and it is said.
