"""Bodies are interpreted here: to compile the C code of each of them takes longer than all passes."""

import pytest


@pytest.fixture(autouse=True)
def without_compiling(interpreted_bodies):
    """For all tests of this folder."""
