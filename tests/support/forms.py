"""The options of `jaxify` for each form that a program runs in."""

import pytest

FORMS = {
    "xla": {"loops": "xla"},
    "native": {"loops": "native"},
    "numba": {"backend": "numba"},
    "auto": {"loops": "auto"},
}


def over(*names):
    """A test over the ``form``s of these names."""
    return pytest.mark.parametrize("form", [pytest.param(FORMS[k], id=k) for k in names])


in_all_forms = over("numba", "native", "xla")
in_jax = over("native", "xla")
