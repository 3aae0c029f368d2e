"""What is done around tests of several folders."""

from collections import Counter

import jax
import pytest

from tests.dear import DEAR


@pytest.fixture(scope="module")
def quickly_compiled(request):
    """In `make test`, XLA leaves out most of its optimisations; in `make test-all` it does them.

    For modules that compile large programs and run each of them once, on little data: there compilation
    is most of the time, and optimising them takes more of it than it gives back.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    quick = request.config.option.markexpr == "not slow"
    jax.config.update("jax_disable_most_optimizations", quick or before)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def pytest_collection_modifyitems(items):
    """The modules with most tests first: a module stays in one process, and a large one at the end would
    leave the others idle. Dear cases are slow ones."""
    for item in items:
        if item.nodeid in DEAR:
            item.add_marker(pytest.mark.slow)
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: -sizes[item.path])
