"""The options of `jaxify` for each form that a program runs in."""

import pytest

from tests.support.both_backends import NATIVE

FORMS = {
    "xla": {"loops": "xla"},
    "native": {"loops": "native"},
    "numba": {"backend": "numba"},
    "auto": {"loops": "auto"},
}


def over(*names):
    """A test over the ``form``s of these names."""
    forms = FORMS | {"python": {"backend": NATIVE}}  # which lacks some options of those of users
    return pytest.mark.parametrize("form", [pytest.param(forms[k], id=k) for k in names])


in_all_forms = over("numba", "native", "xla")
in_jax = over("native", "xla")
without_numba = over("python", "xla")
